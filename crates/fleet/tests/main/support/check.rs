//! Invariants of a book, recomputed from its rows.

use ledgerline_fleet::book::{Book, BudgetView, HoldView, View, What};
use ledgerline_fleet::message::{MAX_UNITS, Reply, Sync, above};

use super::world::World;

/// Checks that each sum is the sum of its parts, and can be counted exactly.
pub fn sums(view: &View) {
    for budget in &view.budgets {
        let sum = |part: fn(&HoldView) -> u64| budget.holds.iter().map(part).sum::<u64>();
        assert_eq!(budget.leased, sum(|hold| hold.lease), "leased of {budget:?}");
        assert_eq!(budget.excess, sum(|hold| hold.excess), "excess of {budget:?}");
        assert_eq!(budget.unmet, sum(|hold| hold.unmet), "unmet of {budget:?}");
        assert_eq!(budget.waiting, sum(|hold| hold.waiting), "waiting of {budget:?}");
        assert_eq!(
            budget.idle,
            sum(|hold| hold.lease.saturating_sub(hold.used)),
            "idle of {budget:?}"
        );
        assert_eq!(budget.lacking, sum(|hold| hold.lacking), "lacking of {budget:?}");
        assert_eq!(budget.over, (budget.leased + budget.excess).saturating_sub(budget.limit));
        for sum in [budget.leased + budget.excess, budget.unmet, budget.idle, budget.lacking] {
            assert!(sum <= MAX_UNITS, "{budget:?}");
        }
        for hold in &budget.holds {
            let fits = hold.excess <= hold.used.saturating_sub(hold.lease)
                && hold.waiting <= hold.unmet
                && hold.unmet <= hold.want;
            assert!(fits, "{hold:?}");
        }
        assert!(!budget.closing || !budget.holds.is_empty(), "{budget:?} waits for nothing");
        let below = budget.path.rfind('/').filter(|at| *at > 0).map(|at| &budget.path[..at]);
        assert!(below.is_none_or(|above| view.budgets.iter().any(|budget| budget.path == above)));
    }
}

/// Checks that no refusal counts more than once, and that no more are kept than stated.
pub fn refusals(world: &World, view: &View) {
    let counted: u64 = view.refusals.iter().map(|refused| refused.count).sum();
    assert!(counted <= world.refusals, "{counted} of {}: {:?}", world.refusals, view.refusals);
    assert!(view.refusals.len() <= Book::REFUSALS);
    assert!(view.refusals.iter().all(|refused| refused.since <= refused.at));
}

/// Checks that no lease grows while its budget is over, unless it is adopted, and that none grows beyond its limit.
pub fn growth(before: &View, after: &View) {
    let adopted = |path: &str| {
        let of_path =
            |event: &&_| matches!(event, What::Adopted { path: other, .. } if other == path);
        let count =
            |view: &View| view.events.iter().map(|event| &event.what).filter(of_path).count();
        count(after) != count(before) || after.events.len() == Book::EVENTS
    };
    for budget in &after.budgets {
        let was = before.budgets.iter().find(|was| was.path == budget.path);
        let grew = budget.holds.iter().any(|hold| lease(was, hold) < hold.lease);
        assert!(!grew || budget.over == 0 || adopted(&budget.path), "{was:?} became {budget:?}");
    }
}

fn lease(was: Option<&BudgetView>, of: &HoldView) -> u64 {
    let same = |hold: &&HoldView| (&hold.node, hold.incarnation) == (&of.node, of.incarnation);
    was.and_then(|was| was.holds.iter().find(same)).map_or(0, |hold| hold.lease)
}

/// Checks that no lease grew beyond the one above it on the same node.
pub fn levels(message: &Sync, reply: &Reply) {
    let Reply::Synced { lines, .. } = reply else { return };
    for (line, granted) in message.lines.iter().zip(lines) {
        let Some(above) = above(&line.path) else { continue };
        let at = message
            .lines
            .iter()
            .position(|line| line.path == above)
            .expect("the level above is named");
        assert!(granted.lease <= line.lease.max(lines[at].lease), "{message:?} got {reply:?}");
        assert!(granted.asked <= granted.lease, "{message:?} got {reply:?}");
    }
}

/// Checks that the book has the units that a process may use.
pub fn beliefs(world: &World, view: &View) {
    for process in world
        .processes
        .iter()
        .filter(|process| !process.forgotten && process.ends > world.true_time())
    {
        for (path, believed) in process.leases.iter().filter(|(_, believed)| **believed > 0) {
            let budget = view.budgets.iter().find(|budget| budget.path == *path);
            let mine = |hold: &&HoldView| hold.incarnation == process.incarnation;
            let hold = budget.and_then(|budget| budget.holds.iter().find(mine));
            assert!(
                hold.is_some_and(|hold| hold.lease >= *believed),
                "{process:?} {path} {budget:?}"
            );
        }
    }
}
