//! Chooses the work that ends for an allocation that an ancestor's limit refuses.
//!
//! ```text
//! groups below the full one are over their own limits by as much as is lacking     no other work: their work was marked (overrun.rs)
//! work that was marked a short time ago holds as much, and has not ended           no other work
//! else                                                                            of the scopes below the full group, and the
//!                                                                                 one that asks, the one whose group holds most:
//!                                                                                 what it asks for counts as well
//! ```
//!
//! A group with a registered [victim](super::victim) may hold more than that. Its score is the program's code, which
//! an allocation must not run, so a thread of the library calls it (`deferred.rs`).

use super::deferred::Deferred;
use super::overrun::is_anothers;
use super::protection::Unclaimed;
use super::victim::{self, Choice};
use super::{attempt, events};
use crate::group::Group;
use crate::scope::{self, Endable, Held, ScopeId};
use crate::stock::refusal::{Reason, Refusal};
use crate::table::path::{self, RowPath};
use crate::table::sums::Sum;
use crate::whose::nobody;

static CANCELLER: Deferred<Wish> = Deferred::new(c"ledgerline-cancel", carry_out);

/// A request to cancel victims, made for an allocation that a limit refused.
#[derive(Clone, Copy)]
pub(crate) enum Wish {
    /// Cancels the victims that are registered for this group. Its work was marked, since `full` had no room for it.
    Cancel { group: Group<'static>, full: Group<'static>, requested: u64 },
    /// Cancels the victim below `full` that holds most, if it holds more than `most`. Otherwise ends `work`, which
    /// holds `most`.
    Choose { asking: Group<'static>, full: Group<'static>, requested: u64, work: Work, most: u64 },
}

fn carry_out(wish: Wish) {
    match wish {
        Wish::Cancel { group, full, requested } => victim::cancel_all_of(group, full, requested),
        Wish::Choose { asking, full, requested, work, most } => {
            if victim::choose(full, asking.id(), requested, most) == Choice::Nobody {
                work.end();
            }
        }
    }
}

/// Work that is to end, and the refusal that ends it.
#[derive(Clone, Copy)]
pub(crate) struct Work {
    group: Group<'static>,
    /// Names no scope for work outside of any: then only the tokens of its victims fire.
    scope: ScopeId,
    full: Group<'static>,
    refusal: Refusal,
}

impl Work {
    /// Returns the work that asked, by its group and its scope.
    pub(crate) fn asking(group: Group<'static>, scope: Option<&Held>, refusal: Refusal) -> Work {
        let scope = scope.map_or(ScopeId::NONE, Held::id);
        Work { group, scope, full: group.ledger().group(refusal.group), refusal }
    }

    /// Returns the work of another scope, to be ended for the refused work.
    fn other(group: Group<'static>, scope: ScopeId, for_whom: &Refusal) -> Work {
        let full = group.ledger().group(for_whom.group);
        let reason = Reason::Cancelled;
        let refusal = Refusal { group: group.id(), charged: group.id(), reason, ..*for_whom };
        Work { group, scope, full, refusal }
    }

    /// Marks the work, counts that once, and cancels its victims' tokens. Runs none of the program's code.
    pub(crate) fn end(self) {
        let Work { group, scope, full, refusal } = self;
        let first = match Held::new(scope) {
            Some(scope) => scope.mark(group.pack(), refusal),
            // Outside of a scope, a group counts one refusal until it is within its limit again.
            None => !scope.is_named() && refusal.usage <= refusal.limit,
        };
        let ledger = group.ledger();
        if first {
            nobody(|| match refusal.reason {
                Reason::Cancelled => {
                    events::count(ledger, full.id(), Sum::Oom);
                    events::count(ledger, group.id(), Sum::OomKill);
                }
                _ => attempt::count_refusal(ledger, &refusal),
            });
        }
        if (first || !scope.is_named()) && victim::any(ledger) {
            CANCELLER.post(Wish::Cancel { group, full, requested: refusal.requested });
        }
    }
}

/// Returns a lower bound of the units that a group holds.
fn held(group: Group<'_>) -> u64 {
    let counter = &group.row().counter;
    counter.usage().saturating_sub(counter.idle_at_most())
}

/// Returns whether a row lies strictly below another.
fn is_below(group: Group<'_>, top: u32, row: u32) -> bool {
    row != top && path::leads_through(group.table(), row, top)
}

/// Ends the work that is to give way for an allocation of `group` that a limit refused, or leaves the choice to the
/// thread. Returns whether the work that asked is to be slowed down, since it may be the one that ends. Allocates
/// nothing that is charged. At an ancestor's limit it costs a pass over the rows in use and one over the scopes.
pub(crate) fn end_one(group: Group<'static>, scope: Option<&Held>, refusal: Refusal) -> bool {
    let asking = Work::asking(group, scope, refusal);
    if refusal.group == group.id() {
        asking.end();
        return true;
    }
    let lacking = refusal.usage.saturating_add(refusal.requested).saturating_sub(refusal.limit);
    let full = asking.full;
    nobody(|| {
        if is_anothers(full, group, lacking.max(1)) || is_ending(full, group, lacking) {
            return false;
        }
        let top = full.id().index();
        let own = scope.and_then(|scope| scope::group(scope.id())).map(Group::<'static>::unpack);
        let own = own.filter(|own| is_below(full, top, own.id().index()));
        let own = held(own.unwrap_or(group)).saturating_add(refusal.requested);
        let (work, most, is_asking) = match largest(full, group, own) {
            Some((other, most)) => {
                (Work::other(Group::unpack(other.group), other.id, &refusal), most, false)
            }
            None => (asking, own, true),
        };
        // A victim may hold more.
        let wish = Wish::Choose { asking: group, full, requested: refusal.requested, work, most };
        if !victim::may_outdo(full, most) || !CANCELLER.post(wish) {
            work.end();
        }
        is_asking
    })
}

/// Calls `look` for each scope of a group below the full one, except scopes whose group is on the path of the asking
/// one or below it.
fn each_other(full: Group<'_>, asking: Group<'_>, mut look: impl FnMut(Endable, Group<'static>)) {
    let Some(own) = RowPath::of(full.table(), asking.id()) else { return };
    let (top, me) = (full.id().index(), asking.id().index());
    scope::each_endable(|other| {
        let group = Group::<'static>::unpack(other.group);
        let row = group.id().index();
        if group.ledger().is(full.ledger())
            && group.exists()
            && !own.rows().contains(&row)
            && is_below(full, top, row)
            && !path::leads_through(full.table(), row, me)
        {
            look(other, group);
        }
    });
}

/// Returns whether other work below a full group was marked a short time ago and holds at least `lacking` units.
///
/// A group is counted once, even if it has several scopes. Of groups below each other, only the one that was found
/// first is counted, so the sum may be too small. It is also too small beyond sixteen groups.
pub(crate) fn is_ending(full: Group<'_>, asking: Group<'_>, lacking: u64) -> bool {
    let time = full.ledger().control().times.victim;
    let (mut rows, mut known, mut together) = ([0; 16], 0, 0u64);
    each_other(full, asking, |other, group| {
        let row = group.id().index();
        let is_new = |&seen: &u32| {
            !path::leads_through(full.table(), row, seen)
                && !path::leads_through(full.table(), seen, row)
        };
        if other.marked.is_some_and(|ago| ago < time)
            && known < rows.len()
            && rows[..known].iter().all(is_new)
        {
            (rows[known], known) = (row, known + 1);
            together = together.saturating_add(held(group));
        }
    });
    together >= lacking.max(1)
}

/// Returns the unmarked scope whose group holds most above its protection, if that is more than `least`.
fn largest(full: Group<'_>, asking: Group<'_>, least: u64) -> Option<(Endable, u64)> {
    let (mut best, mut most) = (None, least);
    each_other(full, asking, |other, group| {
        // The protection only lowers the number and takes a walk, so the cheap comparison comes first.
        if other.marked.is_none() && held(group) > most {
            let protection = group.protection(full, Unclaimed::Lost);
            let above = held(group).saturating_sub(protection.low.max(protection.min));
            if above > most {
                (best, most) = (Some(other), above);
            }
        }
    });
    best.map(|best| (best, most))
}
