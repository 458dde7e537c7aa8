//! Times, events, refusals and errors in words.

use crate::terminal::output::printable;
use crate::terminal::text::counted;
use ledgerline::size;
use ledgerline_fleet::book::{
    BudgetView, Event, Full, HoldView, IncarnationView, Moved, NodeView, Refused, View, What,
};
use ledgerline_fleet::store::{Kind, StoreError};

/// Returns a store's error, with advice.
#[must_use]
pub fn advised(error: &StoreError) -> String {
    let advice = match error.kind {
        Kind::NoLibrary => "; `ledgerline fleet load` loads it, as a user who may",
        Kind::OtherVersion => {
            "; use the ledgerline of that version (in a Redis with an older one, `ledgerline fleet load` loads this one's)"
        }
        Kind::Denied => {
            "; name another user by LEDGERLINE_FLEET_USER and LEDGERLINE_FLEET_PASSWORD"
        }
        _ => "",
    };
    format!("{error}{advice}")
}

/// Returns the message for an organisation without a book.
#[must_use]
pub fn unknown(organisation: &str) -> String {
    format!(
        "{organisation} has no budgets in this store: `ledgerline fleet set /{organisation} max=SIZE` makes one"
    )
}

/// The text for no value.
pub(crate) const NONE: &str = "-";

/// Returns a number of units, or a dash for zero.
pub(crate) fn some(units: u64) -> String {
    if units == 0 { NONE.to_owned() } else { size::format(units) }
}

/// Returns a number, or a dash for 0.
pub(crate) fn count(number: u64) -> String {
    if number == 0 { NONE.to_owned() } else { number.to_string() }
}

/// Returns the number of nodes that are present.
pub(crate) fn here(view: &View) -> usize {
    view.nodes.iter().filter(|node| !node.incarnations.is_empty()).count()
}

/// Returns the number of nodes that are present, and the time that leases hold.
pub(crate) fn terms(view: &View) -> String {
    let nodes = counted(here(view), "node");
    let (ttl, grace) = (seconds(view.ttl), seconds(view.grace));
    let learning = match view.learning {
        0 => String::new(),
        left => format!(
            "; the store lost what it knew, and grants nothing for {} while nodes say what they hold",
            seconds(left)
        ),
    };
    format!("{nodes}; leases hold {ttl}, then {grace} of grace{learning}")
}

/// Returns the units of a budget that nodes used at their last report.
pub(crate) fn used(budget: &BudgetView) -> u64 {
    budget.holds.iter().map(|hold| hold.used).sum()
}

/// Returns the cells of a budget: max, leased, used, idle, unmet, over and refused.
pub(crate) fn of_budget(budget: &BudgetView) -> [String; 7] {
    [
        size::format(budget.limit),
        some(budget.leased),
        some(used(budget)),
        some(budget.idle),
        some(budget.unmet),
        some(budget.over),
        count(budget.refused),
    ]
}

/// Returns the same cells of a node's part, but without a max.
pub(crate) fn of_hold(hold: &HoldView) -> [String; 6] {
    [
        some(hold.lease),
        some(hold.used),
        some(hold.lease.saturating_sub(hold.used)),
        some(hold.unmet),
        some(hold.excess),
        count(hold.refused),
    ]
}

/// Returns a budget's path, with its minimum and whether it is deleted.
pub(crate) fn title(budget: &BudgetView) -> String {
    let minimum = match budget.minimum {
        0 => String::new(),
        units => format!(" (min {})", size::format(units)),
    };
    let state = match budget {
        BudgetView { lost: true, .. } => " (its max is lost: set it again)",
        BudgetView { closing: true, .. } => " (deleted)",
        _ => "",
    };
    format!("{}{minimum}{state}", budget.path)
}

pub(crate) fn seconds(milliseconds: u64) -> String {
    format!("{:.1} s", milliseconds as f64 / 1000.0)
}

/// Returns a time that has passed, in its largest unit.
pub(crate) fn age(milliseconds: u64) -> String {
    match milliseconds / 1000 {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds @ 7200..172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

/// Returns the name of a lease's holder, marked if another process has that name by now.
pub(crate) fn holder(hold: &HoldView, nodes: &[NodeView]) -> String {
    let node = nodes.iter().find(|node| node.name == hold.node);
    let starts = node.map(|node| node.incarnations.as_slice()).unwrap_or_default();
    let mine = starts.iter().find(|start| start.incarnation == hold.incarnation);
    let older = if mine.is_some_and(|start| start.fenced) { " (older)" } else { "" };
    format!("{}{older}", hold.node)
}

/// Returns when the leases of a node's start end, or when others get its units.
pub(crate) fn ends(start: &IncarnationView, at: u64) -> String {
    let left = seconds(start.ends.saturating_sub(at));
    let freed = seconds(start.freed.saturating_sub(at));
    match (start.fenced, start.ends > at) {
        (false, true) => format!("its leases end in {left} unless it speaks"),
        (false, false) => {
            format!("its leases have ended; others get its units in {freed} unless it speaks")
        }
        (true, true) => format!("an older process of this name has leases, which end in {left}"),
        (true, false) => {
            format!(
                "the leases of an older process of this name have ended; others get its units in {freed}"
            )
        }
    }
}

pub(crate) fn happened(event: &Event) -> String {
    let node = printable(&event.node);
    match &event.what {
        What::Adopted { path, units, over } => format!(
            "the store had lost writes: {node} holds {} of {} that it did not know of{}",
            size::format(*units),
            printable(path),
            if *over > 0 {
                format!(", {} more than there is", size::format(*over))
            } else {
                String::new()
            }
        ),
        What::Fenced { .. } => format!("another process took the name {node}"),
        What::Ended { .. } => format!("{node} did not speak in time; its units are free again"),
        What::Set { path, limit, minimum } => {
            let changes = [changed("max", limit), changed("min", minimum)];
            let changes = changes.into_iter().flatten().collect::<Vec<_>>().join(", ");
            let opened = if changes.is_empty() { "open again" } else { changes.as_str() };
            format!("{} set {}: {opened}", by(&node), printable(path))
        }
        What::Deleted { path } => format!("{} deleted {}", by(&node), printable(path)),
        What::Terms { ttl, grace } => {
            let moved = |name: &str, moved: &Moved| match moved.from {
                Some(from) if from != moved.to => {
                    Some(format!("{name} {} -> {}", seconds(from), seconds(moved.to)))
                }
                _ => None,
            };
            let changes = [moved("lease", ttl), moved("grace", grace)];
            let changes = changes.into_iter().flatten().collect::<Vec<_>>().join(", ");
            format!("{} set terms: {changes}", by(&node))
        }
        What::Drained { node: drained, on: true } => {
            format!("{} drained {}", by(&node), printable(drained))
        }
        What::Drained { node: drained, on: false } => {
            format!("{} ended the drain of {}", by(&node), printable(drained))
        }
        What::Repaired { budgets: 0 } => {
            format!("{} had the sums counted anew: all were right", by(&node))
        }
        What::Repaired { budgets } => {
            format!("{} had the sums counted anew: {} wrong", by(&node), counted_wrong(*budgets))
        }
        What::Damaged { budgets } => format!(
            "the store had lost a part of the book: sums were counted anew, {} wrong",
            counted_wrong(*budgets)
        ),
    }
}

/// Returns the name of the operator who made a change, if it is known.
fn by(who: &str) -> &str {
    if who.is_empty() { "somebody" } else { who }
}

fn counted_wrong(budgets: u64) -> String {
    match budgets {
        1 => "those of 1 budget were".to_owned(),
        budgets => format!("those of {budgets} budgets were"),
    }
}

/// A size that is new, or was changed.
fn changed(name: &str, moved: &Moved) -> Option<String> {
    match *moved {
        Moved { from: None, to } => Some(format!("{name} {}", size::format(to))),
        Moved { from: Some(from), to } if from != to => {
            Some(format!("{name} {} -> {}", size::format(from), size::format(to)))
        }
        Moved { .. } => None,
    }
}

/// Returns the subject, the size and the reason of a refusal.
pub(crate) fn refused(refused: &Refused) -> String {
    let Refused { since, at, units, count, .. } = *refused;
    let (node, group, budget) =
        (printable(&refused.node), printable(&refused.group), printable(&refused.budget));
    let often = match count {
        1 => String::new(),
        count if at - since < 1000 => format!(" {count} times, at most"),
        count => format!(" {count} times in {}, at most", age(at - since)),
    };
    let why = match refused.full {
        Full::Limit => format!("{budget} is full"),
        Full::Lease => format!("its lease of {budget} was too small"),
        Full::Deleted => format!("{budget} is deleted"),
        Full::Drained => format!("{node} is drained"),
    };
    format!("{node} refused {group}{often} {}: {why}", size::format(units))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_passed_have_their_largest_unit() {
        for (milliseconds, told) in [
            (0, "0 s"),
            (119_999, "119 s"),
            (120_000, "2 min"),
            (7_200_000, "2 h"),
            (172_800_000, "2 days"),
        ] {
            assert_eq!(age(milliseconds), told);
        }
    }

    #[test]
    fn a_change_says_who_made_it_and_what_was_before() {
        let moved = |from, to| Moved { from, to };
        let path = || "/acme".to_owned();
        let said = |what| happened(&Event { at: 0, node: "root@host".to_owned(), what });
        let set = |limit, minimum| said(What::Set { path: path(), limit, minimum });
        let new = set(moved(None, 2 << 30), moved(None, 0));
        assert_eq!(new, "root@host set /acme: max 2.0G, min 0");
        let lower = set(moved(Some(2 << 30), 1 << 30), moved(Some(0), 0));
        assert_eq!(lower, "root@host set /acme: max 2.0G -> 1.0G");
        assert_eq!(set(moved(Some(1), 1), moved(Some(0), 0)), "root@host set /acme: open again");
        assert_eq!(said(What::Deleted { path: path() }), "root@host deleted /acme");
        let terms =
            What::Terms { ttl: moved(Some(10_000), 5_000), grace: moved(Some(5_000), 5_000) };
        assert_eq!(said(terms), "root@host set terms: lease 10.0 s -> 5.0 s");
        let drained = said(What::Drained { node: "n7".to_owned(), on: true });
        assert_eq!(drained, "root@host drained n7");
        let repaired = said(What::Repaired { budgets: 1 });
        assert_eq!(repaired, "root@host had the sums counted anew: those of 1 budget were wrong");
        let unknown = Event { at: 0, node: String::new(), what: What::Deleted { path: path() } };
        assert_eq!(happened(&unknown), "somebody deleted /acme");
    }
}
