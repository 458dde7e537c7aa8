//! Sharing: how free units are distributed, and which nodes are asked for idle or returned ones.
//!
//! Shares are computed in `f64`, like in the store's function. Each result is cut to whole units and to the units that exist, so
//! rounding moves a unit between nodes but never creates one.

use crate::message::Line;

use super::rows::{Budget, Hold};

/// Returns the lease up to which a node's waiting charges precede those of nodes with larger leases. `budget` includes the node's
/// hold.
///
/// It is an equal share of the limit among all holds that use the budget, or, if that is more, an equal share among the holds
/// with waiting charges of all units that the other holds have not leased. It is at least the minimum.
pub(super) fn level(budget: &Budget) -> u64 {
    let Budget { limit, minimum, leased, sharers, hungry, hungry_leased, .. } = *budget;
    let equal = limit / sharers.max(1);
    let rest = limit.saturating_sub(leased - hungry_leased);
    equal.max(rest.checked_div(hungry).unwrap_or(0)).max(minimum)
}

/// Returns how many units `hold` is granted beyond its lease. It asks for `need` more, of which its charges wait for `urgent`,
/// and the oldest of these for `next`. `others` is the budget without this hold; `mine` is what would be set aside for the hold
/// if it were granted nothing.
///
/// Units up to the minimum come first, from all that is left. Beyond the minimum, two reserves are excluded: the units that
/// others lack to their minimum, and units set aside for charges of others. Of the latter, a hold for which nothing is set aside
/// respects all; a hold that waits longer than the head respects none; any other respects those of the head.
///
/// If the rest covers all waiting charges of the hold, they get what they need. If it does not, and charges of others wait as
/// well, the oldest charge gets what it needs, but at least what is set aside for the hold. If not even the oldest charge can be
/// covered, the hold gets nothing, because a part of it would serve no charge. The remainder is shared in proportion to the unmet
/// wants.
pub(super) fn grant(others: &Budget, hold: &Hold, mine: &Hold, asks: Asks) -> u64 {
    let Asks { need, urgent, next } = asks;
    let left = others.limit.saturating_sub(others.held() + hold.lease);
    let first = need.min(others.minimum.saturating_sub(hold.lease)).min(left);
    let free = (left - first).saturating_sub(others.lacking);
    let is_head = mine.entitled > 0 && (others.head.since == 0 || mine.since <= others.head.since);
    let before = match mine.entitled {
        _ if is_head => 0,
        1.. => others.head.lacks,
        0 => others.entitled,
    };
    let (urgent, next) = (urgent.min(need), next.min(urgent).min(need));
    let (urgent, next) = (urgent.saturating_sub(first), next.saturating_sub(first));
    let mine = mine.entitled.saturating_sub(first);
    let free_now = free.saturating_sub(before);
    let whole = if urgent <= free_now {
        urgent
    } else if others.waiting > 0 {
        if next > free_now {
            return first;
        }
        next.max(mine.min(urgent)).min(free_now)
    } else {
        0
    };
    let got = first + whole;
    let rest = (free - whole).saturating_sub(others.entitled);
    got + part(rest, need - got, others.unmet)
}

/// The wishes of a hold beyond its lease.
#[derive(Clone, Copy)]
pub(super) struct Asks {
    pub need: u64,
    pub urgent: u64,
    pub next: u64,
}

/// Sets units aside for the waiting charges of a hold: as many as they lack to the [`level`]. A charge that is larger than that
/// gets all it lacks set aside once it has waited for the length of a lease (`ttl`). `others` is the budget without this hold.
pub(super) fn entitle(others: &Budget, hold: &mut Hold, line: &Line, time: u64, ttl: u64) {
    (hold.entitled, hold.since, hold.large) = (0, 0, false);
    let mut all = others.clone();
    all.put_in(hold);
    if hold.waiting == 0 || line.next > all.limit {
        return;
    }
    let level = level(&all);
    let lacks = line.next.saturating_sub(hold.lease).min(hold.waiting);
    let room = level.saturating_sub(hold.lease);
    hold.large = line.next.saturating_sub(line.used) > level;
    hold.entitled = match hold.large {
        true if line.waited >= ttl => lacks,
        false if lacks <= room => hold.waiting.min(room),
        _ => 0,
    };
    if hold.entitled > 0 {
        hold.since = time.saturating_sub(line.waited) + 1;
    }
}

/// Returns how many units `hold` gives back as they are returned, before charges of its own get them. `budget` includes the hold.
/// If the lease has `grown` just now, the units that the granted charge needs are not due until the charge has them. Units
/// gathered for a charge that is larger than any node's part are never due.
pub(super) fn due(budget: &Budget, hold: &Hold, line: &Line, grown: bool) -> u64 {
    if hold.is_head(budget) {
        return 0;
    }
    let others = budget.entitled - hold.entitled;
    let level = level(budget);
    let large = line.next.saturating_sub(line.used) > level;
    let kept = if grown || large { line.next } else { 0 };
    let above = others.min(hold.lease.saturating_sub(level.max(kept)));
    let gathered = if budget.head.large { budget.head.lacks } else { 0 };
    above.max(gathered.min(hold.lease.saturating_sub(budget.minimum.max(kept))))
}

/// Returns the share of `free` for a hold that needs `need` beside others that need `unmet`. It is not 0 unless `free` or `need`
/// is, so no hold starves.
fn part(free: u64, need: u64, unmet: u64) -> u64 {
    let all = need as f64 + unmet as f64;
    if all <= free as f64 {
        return need;
    }
    let part = (free as f64 * (need as f64 / all)).ceil() as u64;
    part.min(free).min(need)
}

/// Returns how many units of its lease `hold` is asked to give back. `budget` includes the hold.
///
/// Idle units are asked for in proportion: the unmet need of others, divided by all idle units. Units in use are asked for while
/// the budget is over by more than lies idle. The wants of others never reduce a hold below the minimum.
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

/// Returns how many units of its lease charges of others wait for. `budget` includes the hold.
pub(super) fn wanted(budget: &Budget, hold: &Hold) -> u64 {
    (budget.waiting - hold.waiting).min(hold.lease.saturating_sub(budget.minimum))
}

/// Returns `mine` times `needed / all`, rounded up, at most `mine`.
fn fraction(mine: u64, needed: f64, all: u64) -> u64 {
    if needed >= all as f64 {
        return mine;
    }
    ((mine as f64 * (needed / all as f64)).ceil() as u64).min(mine)
}
