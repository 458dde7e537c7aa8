//! Who gets what is left, and who is asked for what lies idle or is returned.
//!
//! Parts are computed in `f64`, as the store's function does. Each result is cut to whole units and to what there is, so
//! rounding moves a unit between nodes, and never makes one.

use crate::message::Line;

use super::rows::{Budget, Hold};

/// The lease up to which a node's waiting charges go before those of nodes that have more, where `budget` includes its hold.
///
/// It is the equal part of all that use the budget; or, if that is more, the equal part of all for whose charges wait in what the
/// others have not leased.
pub(super) fn level(budget: &Budget) -> u64 {
    let Budget { limit, minimum, leased, sharers, hungry, hungry_leased, .. } = *budget;
    let equal = limit / sharers.max(1);
    let rest = limit.saturating_sub(leased - hungry_leased);
    equal.max(rest.checked_div(hungry).unwrap_or(0)).max(minimum)
}

/// What `hold` is granted beyond its lease, where it would like `need` more, and charges wait for `urgent` of that, the oldest of
/// them for `next`. `others` is the budget without this hold; `mine` is what would be set aside for the hold, were it granted
/// nothing.
///
/// What the hold lacks to the minimum comes first, from all that is left. For more, what others lack to theirs is set aside, and
/// what is set aside for charges of others: for the one that waits longest before this one, and if nothing is set aside for this
/// one, for all. Of the rest, charges that wait get what they need, if all of it is there. If it is not, and charges of others wait
/// as well, the oldest gets what it needs, and what is set aside for the hold; or nothing, if not even that is there: halves would
/// serve nobody. Of what is left then the hold gets the part that its need is of all unmet wants.
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

/// What a hold asks for beyond its lease.
#[derive(Clone, Copy)]
pub(super) struct Asks {
    pub need: u64,
    pub urgent: u64,
    pub next: u64,
}

/// Sets aside for the charges that wait for a hold what they lack to the [`level`]; for one that is larger than that all it
/// lacks, when it has waited for as long as a lease holds (`ttl`). `others` is the budget without this hold.
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

/// How much `hold` gives back as it is returned, before charges of its own get it. `budget` includes it. The lease may have `grown`
/// just now: what the charge needs that it was granted for is not due before the charge has it, and never what is gathered for one
/// that is larger than any node's part.
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
