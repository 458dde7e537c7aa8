//! Who gets what is left, and who is asked for what lies idle.
//!
//! Parts are computed in `f64`, as the store's function does. Each result is cut to whole units and to what there is, so
//! rounding moves a unit between nodes, and never makes one.

use super::rows::{Budget, Hold};

/// What `hold` is granted beyond its lease, where it would like `need` more, and charges wait for `urgent` of that. `others`
/// is the budget without this hold.
///
/// What the hold lacks to the minimum comes first, from all that is left. For more, what others lack to theirs is set aside.
/// Of the rest, charges that wait get what they need, if all of it is there. If it is not, and charges of others wait as well, they
/// get nothing: halves would serve none of them, and a while later one may be served. Of what is left then the hold gets the part
/// that its need is of all unmet wants.
pub(super) fn grant(others: &Budget, hold: &Hold, need: u64, urgent: u64) -> u64 {
    let left = others.limit.saturating_sub(others.held() + hold.lease);
    let first = need.min(others.minimum.saturating_sub(hold.lease)).min(left);
    let free = (left - first).saturating_sub(others.lacking);
    let urgent = urgent.min(need).saturating_sub(first);
    let fits = urgent <= free;
    if !fits && others.waiting > 0 {
        return first;
    }
    let whole = if fits { urgent } else { 0 };
    let got = first + whole;
    got + part(free - whole, need - got, others.unmet)
}

/// The part of `free` for one who needs `need` beside others who need `unmet`. Not 0 if there is anything: nobody starves.
fn part(free: u64, need: u64, unmet: u64) -> u64 {
    let all = need as f64 + unmet as f64;
    if all <= free as f64 {
        return need;
    }
    let part = (free as f64 * (need as f64 / all)).ceil() as u64;
    part.min(free).min(need)
}

/// How much of its lease `hold` is asked to give back. `budget` includes it.
///
/// Idle units are asked for as long as they serve: as large a part of them as what others need is of all that lies idle. Units in
/// use are asked for while the budget is over by more than lies idle. Nobody is asked for its minimum because others want more.
pub(super) fn asked(budget: &Budget, hold: &Hold) -> u64 {
    let over = budget.over();
    let idle = fraction(hold.idle(), over as f64 + (budget.unmet - hold.unmet) as f64, budget.idle);
    if over == 0 {
        return idle.min(hold.lease.saturating_sub(budget.minimum));
    }
    let busy = fraction(
        hold.lease - hold.idle(),
        over.saturating_sub(budget.idle) as f64,
        budget.leased - budget.idle,
    );
    idle + busy
}

/// How much of its lease charges of others wait for. `budget` includes it.
pub(super) fn wanted(budget: &Budget, hold: &Hold) -> u64 {
    (budget.waiting - hold.waiting).min(hold.lease.saturating_sub(budget.minimum))
}

/// As large a part of `mine` as `needed` is of `all`.
fn fraction(mine: u64, needed: f64, all: u64) -> u64 {
    if needed >= all as f64 {
        return mine;
    }
    ((mine as f64 * (needed / all as f64)).ceil() as u64).min(mine)
}
