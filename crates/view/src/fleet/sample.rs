//! Books for tests.

use ledgerline_fleet::book::{
    BudgetView, Event, Full, HoldView, IncarnationView, NodeView, Refused, View, What,
};

use crate::fleet::read::{Book, Books, Damaged};

fn hold(node: &str, lease: u64, used: u64, unmet: u64, excess: u64, refused: u64) -> HoldView {
    HoldView {
        node: node.to_owned(),
        incarnation: 7,
        lease,
        used,
        want: lease + unmet,
        excess,
        unmet,
        waiting: 0,
        lacking: 0,
        refused,
    }
}

/// Returns the book of an organisation with three nodes and many problems.
pub fn view() -> View {
    let start = |fenced, ends| {
        let freed = ends + 1500;
        IncarnationView {
            incarnation: if fenced { 6 } else { 7 },
            fenced,
            sequence: 3,
            ends,
            freed,
        }
    };
    let node = |name: &str, draining, incarnations| NodeView {
        name: name.to_owned(),
        draining,
        incarnations,
    };
    let event = |at, what| Event { at, node: "b".to_owned(), what };
    let refused = |since, at, group: &str, full, units, count| Refused {
        since,
        at,
        node: "a".to_owned(),
        incarnation: 7,
        budget: "/acme/batch".to_owned(),
        group: group.to_owned(),
        full,
        units,
        count,
    };
    View {
        at: 1_000_000,
        ttl: 10_000,
        grace: 1500,
        learning: 0,
        budgets: vec![
            BudgetView {
                path: "/acme".to_owned(),
                limit: 10 << 30,
                leased: 9 << 30,
                idle: 1 << 30,
                ..BudgetView::default()
            },
            BudgetView {
                path: "/acme/batch".to_owned(),
                limit: 1 << 30,
                minimum: 64 << 20,
                closing: true,
                leased: 3 << 29,
                excess: 1 << 20,
                over: (1 << 29) + (1 << 20),
                unmet: 100,
                refused: 12,
                lost: false,
                holds: vec![
                    hold("a", 1 << 30, 1 << 30, 100, 0, 12),
                    HoldView { incarnation: 6, ..hold("b\u{1b}", 1 << 29, 5 << 20, 0, 1 << 20, 0) },
                ],
                ..BudgetView::default()
            },
        ],
        nodes: vec![
            node("a", false, vec![start(false, 1_004_200)]),
            node("b\u{1b}", true, vec![start(true, 1_001_000), start(false, 1_009_000)]),
            node("gone", true, Vec::new()),
        ],
        events: vec![
            event(400_000, What::Fenced { incarnation: 6 }),
            event(
                940_000,
                What::Adopted { path: "/acme/batch".to_owned(), units: 1 << 29, over: 5 },
            ),
            event(999_000, What::Ended { incarnation: 6 }),
        ],
        refusals: vec![
            refused(700_000, 730_000, "/acme/batch/q42\u{1b}", Full::Limit, 400 << 20, 11),
            refused(998_000, 998_000, "/acme/batch", Full::Lease, 5 << 20, 1),
        ],
    }
}

pub fn books() -> Books {
    let budget = |path: &str, limit: u64, unmet: u64| BudgetView {
        path: path.to_owned(),
        limit,
        leased: limit,
        unmet,
        ..BudgetView::default()
    };
    let other = View {
        at: 1_000_000,
        ttl: 10_000,
        grace: 1500,
        budgets: vec![
            budget("/zeta", 5 << 30, 0),
            budget("/zeta/b", 1 << 30, 0),
            budget("/zeta/b x", 2 << 30, 7 << 20),
            budget("/zeta/b/c", 3 << 20, 0),
        ],
        ..View::default()
    };
    let book = |organisation: &str, view| Book { organisation: organisation.to_owned(), view };
    let why = "redis at 10.0.0.5:6379 answers nonsense (key budgets, field \"/beta\")".to_owned();
    let damaged = vec![Damaged { organisation: "beta".to_owned(), why }];
    Books { books: vec![book("acme", view()), book("zeta", other)], damaged, more: 3 }
}
