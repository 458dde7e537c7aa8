//! Grants to the levels above a budget: no more than they and those below them can use.

use ledgerline_fleet::book::{Book, Change};
use ledgerline_fleet::message::{Line, Reply, Sync};

use crate::support::said;

/// Returns a book with `/a` of 100 units.
fn book() -> Book {
    let mut book = Book::new();
    set(&mut book, "/a", 100);
    book
}

fn set(book: &mut Book, path: &str, limit: u64) {
    let change = Change::Set { path: path.to_owned(), limit: Some(limit), minimum: None };
    book.administer(0, &change).unwrap();
}

/// Returns a node's lines of `/a` and of two jobs below it: lease, want, and the part of the want for the level itself.
fn levels(sequence: u64, lines: [(&str, u64, u64, u64); 3]) -> Sync {
    let line = |(path, lease, want, least): (&str, u64, u64, u64)| {
        let path = path.to_owned();
        Line { path, lease, used: 0, want, least, urgent: 0, next: 0, waited: 0, refused: 0 }
    };
    Sync {
        sequence,
        taken: sequence - 1,
        lines: lines.into_iter().map(line).collect(),
        ..said::sync("one", "/a", sequence, 0, 0)
    }
}

fn leases(reply: &Reply) -> Vec<u64> {
    let Reply::Synced { lines, .. } = reply else { panic!("{reply:?}") };
    lines.iter().map(|line| line.lease).collect()
}

#[test]
fn a_level_grows_by_what_those_below_it_are_granted_and_by_what_it_needs_itself() {
    let mut book = book();
    set(&mut book, "/a/full", 10);
    set(&mut book, "/a/open", 90);
    // Units that the full job is refused lie idle nowhere above.
    let said = levels(1, [("/a", 0, 60, 0), ("/a/full", 0, 40, 40), ("/a/open", 0, 20, 20)]);
    let reply = book.apply(1, &said);
    assert_eq!(leases(&reply), [30, 10, 20]);
    let view = book.view(1);
    let unmet: Vec<u64> = view.budgets.iter().map(|budget| budget.unmet).collect();
    assert_eq!(unmet, [0, 30, 0], "only where the limit is");
    // A level with its own usage gets units for that as well.
    let said = levels(2, [("/a", 30, 75, 45), ("/a/full", 10, 40, 40), ("/a/open", 20, 20, 20)]);
    assert_eq!(leases(&book.apply(2, &said)), [45, 10, 20]);
    // Units that it already holds are not taken away.
    let said = levels(3, [("/a", 45, 75, 0), ("/a/full", 10, 40, 40), ("/a/open", 20, 25, 25)]);
    assert_eq!(leases(&book.apply(3, &said)), [45, 10, 25]);
}

#[test]
fn where_the_level_above_is_full_it_lacks_what_those_below_could_use() {
    let mut book = book();
    set(&mut book, "/a/full", 10);
    set(&mut book, "/a/open", 900);
    let said = levels(1, [("/a", 0, 340, 0), ("/a/full", 0, 40, 40), ("/a/open", 0, 300, 300)]);
    assert_eq!(leases(&book.apply(1, &said)), [100, 10, 100]);
    let unmet: Vec<u64> = book.view(1).budgets.iter().map(|budget| budget.unmet).collect();
    assert_eq!(unmet, [210, 30, 0], "the 30 serve nobody while the one below is full");
    // If both levels are full, the nodes that hold units of the lower one are asked: more units above would be useless.
    set(&mut book, "/a/open", 100);
    let said =
        levels(2, [("/a", 100, 340, 100), ("/a/full", 10, 40, 40), ("/a/open", 100, 300, 300)]);
    assert_eq!(leases(&book.apply(2, &said)), [100, 10, 100]);
    let unmet: Vec<u64> = book.view(2).budgets.iter().map(|budget| budget.unmet).collect();
    assert_eq!(unmet, [0, 30, 200]);
}

/// A budget that is alone in its organisation, or may use all of it, is full when the organisation is.
#[test]
fn where_two_levels_are_full_at_once_others_are_asked_for_what_lies_idle() {
    let mut book = book();
    set(&mut book, "/a/all", 100);
    let lines = |lease, used, want, urgent| {
        let line = |path: &str, least| Line {
            path: path.to_owned(),
            lease,
            used,
            want,
            least,
            urgent,
            next: urgent,
            waited: 0,
            refused: 0,
        };
        vec![line("/a", lease), line("/a/all", want)]
    };
    let has = Sync { lines: lines(0, 40, 100, 0), ..said::sync("has", "/a", 1, 0, 0) };
    assert_eq!(leases(&book.apply(1, &has)), [100, 100]);
    for urgent in [0, 50] {
        let sequence = 1 + urgent;
        let lacks = Sync {
            sequence,
            lines: lines(0, 0, 50, urgent),
            ..said::sync("lacks", "/a", sequence, 0, 0)
        };
        assert_eq!(leases(&book.apply(2, &lacks)), [0, 0]);
        let view = book.view(2);
        let all = &view.budgets[1];
        assert_eq!((all.unmet, all.waiting), (50, urgent), "{:?}", view.budgets[0].unmet);
        let sequence = 2 + urgent;
        let has = Sync {
            sequence,
            taken: sequence - 1,
            lines: lines(100, 40, 100, 0),
            ..said::sync("has", "/a", sequence, 0, 0)
        };
        let Reply::Synced { lines, .. } = book.apply(3, &has) else { panic!() };
        assert_eq!((lines[1].asked, lines[1].wanted), (50, urgent), "{lines:?}");
    }
}
