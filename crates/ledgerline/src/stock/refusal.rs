//! A charge that was refused, and who said no: the lowest level that is full.
//!
//! A charge can be refused by several levels at a time. The one that is named, reclaimed from and searched
//! for victims is the nearest to the group that was charged: as long as that is full, whatever anybody outside
//! of it gives up is given up in vain. And where some level can never fit the request, nobody is asked to give
//! up anything for it at all.
//!
//! A charge may be tried several times (after reclaim, while it waits), but it is refused once. So a try
//! counts nothing, and whoever gives the final answer does (control/charging.rs).

use crate::counter::walk::NotGranted;
use crate::counter::{COUNTER_MAX, PageCounter};
use crate::table::Table;
use crate::table::id::GroupId;
use crate::table::path::RowPath;
use std::fmt;

/// Why a charge was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// A group's limit does not leave room for it.
    Limit,
    /// The group was destroyed, or its process ended.
    Gone,
    /// It would have had to wait, and the group was cancelled to make room for others.
    Cancelled,
}

/// A charge that was refused, in plain numbers: for allocators, which may not allocate to say no.
///
/// [`Refused`](crate::Refused) is the same with the group's path. This one is printed with [numbers](GroupId) for groups and
/// plain units, which allocates nothing either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refusal {
    /// The group whose limit said no: the one that was charged, or an ancestor.
    pub group: GroupId,
    /// The group that was to be charged.
    pub charged: GroupId,
    /// That limit, in units.
    pub limit: u64,
    /// What was in use below that limit when the refusal was decided, or a moment later.
    pub usage: u64,
    /// What was asked for.
    pub requested: u64,
    /// Why.
    pub reason: Reason,
}

impl Refusal {
    pub(crate) fn cancelled(id: GroupId, requested: u64) -> Refusal {
        Refusal { reason: Reason::Cancelled, ..Refusal::gone(id, requested) }
    }

    pub(crate) fn gone(id: GroupId, requested: u64) -> Refusal {
        Refusal { group: id, charged: id, limit: 0, usage: 0, requested, reason: Reason::Gone }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refusal { group, limit, usage, requested, .. } = self;
        match self.reason {
            Reason::Limit if *requested > COUNTER_MAX => {
                write!(
                    f,
                    "group {group} cannot hold {requested}: no group counts beyond {COUNTER_MAX}"
                )
            }
            Reason::Limit => write!(
                f,
                "group {group} is full: {requested} requested, {usage} of max {limit} in use"
            ),
            Reason::Cancelled => write!(
                f,
                "group {group} was cancelled to make room for others, and waits for none ({requested} \
                 requested)"
            ),
            Reason::Gone => {
                write!(f, "group {group} takes no more charges ({requested} requested)")
            }
        }
    }
}

impl std::error::Error for Refusal {}

/// What a walk's no says to whoever asked.
pub(crate) fn of(
    table: &Table,
    path: &RowPath<'_>,
    charged: GroupId,
    requested: u64,
    no: NotGranted,
) -> Refusal {
    let (level, reason) = match no {
        NotGranted::Full { level } => (level, Reason::Limit),
        // The row may be another group's by now.
        NotGranted::Closed { level: 0 } => return Refusal::gone(charged, requested),
        NotGranted::Closed { level } => (level, Reason::Gone),
    };
    let index = path.row(level);
    let counter = path.counters()[level];
    Refusal {
        group: table.id(index),
        charged,
        limit: counter.max(),
        usage: counter.usage(),
        requested,
        reason,
    }
}

/// The lowest group on the way that has no room for so much more; what may lie idle counts as room,
/// since it is drained when a charge is tried.
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

/// Whether every limit on the way would allow so much, if nothing else were in use.
pub(crate) fn can_ever_fit(table: &Table, id: GroupId, units: u64) -> bool {
    RowPath::of(table, id).is_none_or(|path| path.counters().iter().all(|it| it.max() >= units))
}
