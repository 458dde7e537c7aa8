//! A refusal names the refused charge and the group that refused it: the lowest full one.
//!
//! Several levels can refuse a charge at a time. The refusal names the one nearest to the charged group. Reclaim and
//! the search for victims work on that group: while it is full, reclaim in groups outside of it does not help. If
//! any level can never fit the request, nothing is reclaimed for it.
//!
//! A charge may be tried several times (after reclaim, while it waits), but it is refused once. So a try counts
//! nothing, and the function that gives the final answer counts the refusal (`control/slow_path.rs`).

use crate::counter::walk::NotGranted;
use crate::counter::{COUNTER_MAX, IMPOSSIBLE, PageCounter};
use crate::table::Table;
use crate::table::id::GroupId;
use crate::table::path::RowPath;
use std::fmt;

/// Why a charge was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// A group's limit leaves no room for the charge.
    Limit,
    /// The group was destroyed, or its process ended.
    Gone,
    /// The ledger holds values that it never writes itself: another program wrote over it. The refusal names no
    /// limit, since the limit may be overwritten as well.
    Damaged,
    /// The group was cancelled to make room for others: its charge does not wait for room, or its
    /// [`catch`](crate::Group::catch) was ended. `limit` and `usage` are those of the full group above it.
    Cancelled,
    /// Other requests wait for room in that group, and the ledger is fair
    /// ([`Ledger::set_fair`](crate::Ledger::set_fair)).
    Queued,
}

/// A charge that was refused, in plain numbers: for allocators, which may not allocate while they refuse.
///
/// [`Refused`](crate::Refused) is the same with the group's path. This type prints groups as [numbers](GroupId) and
/// plain units, which allocates nothing either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refusal {
    /// The group whose limit refused the charge: the charged group or an ancestor.
    pub group: GroupId,
    /// The group that was to be charged.
    pub charged: GroupId,
    /// The limit, in units.
    pub limit: u64,
    /// The usage of the group with the limit when the refusal was decided, or a moment later.
    pub usage: u64,
    /// The units of the charge.
    pub requested: u64,
    /// Why the charge was refused.
    pub reason: Reason,
}

impl Refusal {
    pub(crate) fn cancelled(id: GroupId, requested: u64) -> Refusal {
        Refusal { reason: Reason::Cancelled, ..Refusal::gone(id, requested) }
    }

    pub(crate) fn damaged(id: GroupId, requested: u64) -> Refusal {
        Refusal { reason: Reason::Damaged, ..Refusal::gone(id, requested) }
    }

    pub(crate) fn gone(id: GroupId, requested: u64) -> Refusal {
        Refusal { group: id, charged: id, limit: 0, usage: 0, requested, reason: Reason::Gone }
    }
}

impl Refusal {
    /// Writes the refusal's message, with `group` as the group's name and numbers as `number` shows them.
    pub(crate) fn say<T: fmt::Display>(
        &self,
        f: &mut fmt::Formatter<'_>,
        group: impl fmt::Display,
        number: impl Fn(u64) -> T,
    ) -> fmt::Result {
        let [requested, usage, limit, most] =
            [self.requested, self.usage, self.limit, COUNTER_MAX].map(number);
        match self.reason {
            Reason::Limit if self.requested > COUNTER_MAX => {
                write!(f, "{group} cannot hold {requested}: no group counts beyond {most}")
            }
            Reason::Limit if self.is_beyond() => write!(
                f,
                "{group} cannot hold {requested} more, {usage} in use: no group counts beyond {most}"
            ),
            Reason::Limit => {
                write!(f, "{group} is full: {requested} requested, {usage} of max {limit} in use")
            }
            Reason::Cancelled => {
                write!(f, "{group} was cancelled to make room for others ({requested} requested)")
            }
            Reason::Queued => {
                write!(f, "others wait for room in {group} ({requested} requested)")
            }
            Reason::Damaged => {
                write!(f, "the ledger is damaged: {group} was not charged ({requested} requested)")
            }
            Reason::Gone => write!(f, "{group} takes no more charges ({requested} requested)"),
        }
    }

    /// Returns whether the charge was refused by the range of the counters, not by a limit that was set. A group
    /// without a limit has that range as its limit. A charge that may overrun limits is refused only for this.
    fn is_beyond(&self) -> bool {
        self.limit >= COUNTER_MAX || self.usage.saturating_add(self.requested) > COUNTER_MAX
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // This allocates nothing.
        self.say(f, format_args!("group {}", self.group), |number| number)
    }
}

impl std::error::Error for Refusal {}

/// Turns a walk's refusal into the one for the caller.
pub(crate) fn of(
    table: &Table,
    path: &RowPath<'_>,
    charged: GroupId,
    requested: u64,
    no: NotGranted,
) -> Refusal {
    let (level, reason) = match no {
        NotGranted::Full { level } => (level, Reason::Limit),
        // The row may belong to another group by now.
        NotGranted::Closed { level: 0 } => return Refusal::gone(charged, requested),
        NotGranted::Closed { level } => (level, Reason::Gone),
        NotGranted::Damaged => return Refusal::damaged(charged, requested),
    };
    let index = path.row(level);
    let counter = path.counters()[level];
    let (limit, usage) = (counter.max(), counter.usage());
    if usage > IMPOSSIBLE || limit > COUNTER_MAX {
        return Refusal::damaged(charged, requested);
    }
    Refusal { group: table.id(index), charged, limit, usage, requested, reason }
}

/// Returns the lowest group of the path that has no room for this much more. Units that may lie idle count as room,
/// since a charge drains them.
pub(crate) fn lowest_full(table: &Table, id: GroupId, units: u64) -> Option<GroupId> {
    let path = RowPath::of(table, id)?;
    let full = |counter: &&PageCounter| {
        let usage = counter.usage().saturating_sub(counter.idle_at_most());
        units > 0 && usage.saturating_add(units) > counter.max()
    };
    let level = path.counters().iter().position(full)?;
    let row = path.row(level);
    Some(table.id(row))
}

/// Returns whether every limit of the path would allow this much if nothing else were in use.
pub(crate) fn can_ever_fit(table: &Table, id: GroupId, units: u64) -> bool {
    RowPath::of(table, id).is_none_or(|path| path.counters().iter().all(|it| it.max() >= units))
}
