//! Snapshots: the whole tree as owned data, without locks, from one pass over the rows in use.

use crate::control::events::Events;
use crate::ledger::Ledger;
use crate::report::estimate::Estimate;
use crate::report::scan::{Line, Scan};
use crate::size::Limit;
use crate::sync::Ordering;
use crate::table::Table;
use crate::table::follow;
use crate::table::id::GroupId;
use crate::table::row::{Row, state};
use crate::table::sums::{COUNTED, Sum};
use crate::whose;

/// A picture of the whole tree. Each group is read once, so groups that change meanwhile may be read some nanoseconds apart.
/// If the picture is `steady`, units that a [transfer](crate::Charge::transfer) moves are in one of its two groups, never in
/// both or neither, and units that a thread [carries](crate::alloc) are seen once.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Snapshot {
    /// The unit of the counts.
    pub unit: &'static str,
    /// The groups, each followed by its children (in order of creation), the root first.
    pub groups: Vec<GroupSnapshot>,
    /// Whether no transfer was under way while the groups were read. If not, units may be counted twice. That happens if
    /// transfers of other processes follow each other without a pause, or if one stopped in the middle, because its process
    /// was killed or a signal handler interrupted its thread.
    pub steady: bool,
    /// Whether another program wrote over the ledger: a group is [damaged](GroupState::Damaged), or the ledger's header is.
    /// The other groups' numbers may then be wrong, too, since a plausible value is not detected.
    pub damaged: bool,
}

/// Whether a group still accepts charges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum GroupState {
    /// It accepts charges.
    Live,
    /// Its process ended; it is kept for the account.
    Exited,
    /// Another program wrote over its row, which holds values that a ledger never writes: a usage, a limit or a count of more
    /// than 2^62, an invalid name, a parent that does not lead to the root. The group's numbers have no meaning.
    Damaged,
}

/// One group at the time of a snapshot.
///
/// `max_events`, `high_events`, the limits, `owner`, `state` and `at_exit` are of the group alone. All other numbers are of
/// its subtree. Their counts include those of destroyed groups below it, and never decrease while the group lives.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct GroupSnapshot {
    /// Its number.
    pub id: GroupId,
    /// Its path, like a cgroup's.
    pub path: String,
    /// The last part of the path; `/` for the root.
    pub name: String,
    /// Levels below the root.
    pub depth: u32,
    /// Units charged now, without idle stock.
    pub current: u64,
    /// Units granted now, idle stock included.
    pub approximate: u64,
    /// Highest usage (see [`Group::peak`](crate::Group::peak)).
    pub peak: Estimate,
    /// Charges to the group and all below it, ever.
    pub charges: u64,
    /// Uncharges of the group and all below it, ever.
    pub uncharges: u64,
    /// How many charges met this group's own max, and were refused or granted above it
    /// ([`Group::max_events`](crate::Group::max_events)). `events` has the subtree's.
    pub max_events: u64,
    /// How many walks to the counters ended above this group's own high. `events` has the subtree's.
    pub high_events: u64,
    /// Charges to the group and all below it that a limit refused, whichever it was: `refused` in
    /// [`Group::stat`](crate::Group::stat).
    pub refused: u64,
    /// Units that caches of the group and of all below it gave back: `reclaimed` in [`Group::stat`](crate::Group::stat).
    pub reclaimed: u64,
    /// Charges to the group and all below it that were slowed down: `throttled` in
    /// [`Group::stat`](crate::Group::stat).
    pub throttled: u64,
    /// The total delay of these charges in microseconds.
    pub throttled_usec: u64,
    /// The events of the group and of all below it ([`Group::events`](crate::Group::events)).
    pub events: Events,
    /// The hard limit.
    pub max: Limit,
    /// The soft limit.
    pub high: Limit,
    /// Its `low`: protected unless no other memory is left.
    pub low: Limit,
    /// Its `min`: always protected.
    pub min: Limit,
    /// The process that charges it; 0 in a ledger of one process.
    pub owner: u32,
    /// Whether it still accepts charges.
    pub state: GroupState,
    /// The units that its process held when it ended.
    pub at_exit: u64,
}

impl Ledger {
    /// Takes a picture of the tree as it is now. It leaves out destroyed groups, and groups that are destroyed while it is
    /// taken; units that they still hold are in their ancestors' numbers. It costs O(rows in use), about a microsecond a
    /// group. If transfers follow each other without a pause, slow paths are held up for one look at the rows, which takes
    /// about a millisecond at most. A ledger of more than 32 768 rows does not do that.
    pub fn snapshot(&self) -> Snapshot {
        // The caller itself may be charged to a group that is full, so this is exempt from charging.
        whose::nobody(|| {
            let mut scan = Scan::of(self.table());
            scan.sum_up();
            of(self.table(), &scan)
        })
    }
}

/// Returns the picture of a table, from a scan that is summed up.
pub(crate) fn of(table: &Table, scan: &Scan) -> Snapshot {
    let lines = &scan.lines;
    // The first child of each row, and the next one of the same parent: in order of their rows.
    let mut first = vec![0u32; lines.len()];
    let mut next = vec![0u32; lines.len()];
    for (index, line) in lines.iter().enumerate().skip(1) {
        if line.state != state::FREE && !line.is_destroyed() {
            next[index] = std::mem::replace(&mut first[line.parent as usize], index as u32);
        }
    }
    let mut groups: Vec<GroupSnapshot> = Vec::new();
    let mut damaged = table.is_header_damaged();
    // Each with its parent's index among the groups.
    let mut open = vec![(0u32, 0)];
    while let Some((index, parent)) = open.pop() {
        // The root's own path is not a part of the paths below it.
        let above = if parent == 0 { "" } else { &groups[parent].path };
        let line = &lines[index as usize];
        let id = GroupId::from_parts(index, line.generation);
        let look = |row: &Row| picture(table, id, row, above, line);
        // A group that is gone by now is left out, as are those below it, which were destroyed before. The root stays,
        // whatever another program wrote there.
        let read = if index == 0 {
            Some(look(table.row(0)))
        } else {
            follow::read_in_use(table, id, look)
        };
        let Some(group) = read else { continue };
        damaged |= group.state == GroupState::Damaged;
        let mut child = first[index as usize];
        while child != 0 {
            open.push((child, groups.len()));
            child = next[child as usize];
        }
        groups.push(group);
    }
    Snapshot { unit: "bytes", groups, steady: scan.steady, damaged }
}

/// Returns the picture of a group below one whose path is `above`.
fn picture(table: &Table, id: GroupId, row: &Row, above: &str, line: &Line) -> GroupSnapshot {
    let is_root = id.index() == 0;
    // A row has its depth, which must match its parent's.
    let parent = row.parent.load(Ordering::Relaxed).min(table.capacity() - 1);
    let misplaced =
        !is_root && row.depth() != line.depth && row.depth() != table.row(parent).depth() + 1;
    let damaged = line.damaged || misplaced || row.is_damaged(is_root);
    let counter = &row.counter;
    let words = line.words();
    let sum = |sum: Sum| words[COUNTED + sum as usize].cast_unsigned();
    let load = |word: &crate::sync::AtomicU64| word.load(Ordering::Relaxed);
    let name = match row.name() {
        _ if is_root => "/".into(),
        // Only a damaged row has an empty name.
        name if name.is_empty() => "(no name)".into(),
        name => name,
    };
    GroupSnapshot {
        id,
        path: if is_root { "/".into() } else { format!("{above}/{name}") },
        name,
        depth: line.depth,
        current: line.current(),
        approximate: line.usage,
        peak: Estimate::between(counter.peak()),
        charges: line.charges,
        uncharges: line.uncharges,
        max_events: load(&counter.track.max_events),
        high_events: load(&counter.track.high_events),
        refused: sum(Sum::Refused),
        reclaimed: sum(Sum::Reclaimed),
        throttled: sum(Sum::Throttled),
        throttled_usec: sum(Sum::ThrottledTime),
        events: Events::of_words(&words),
        max: Limit::units(counter.max_as_set()),
        high: Limit::units(load(&counter.limits.high)),
        low: Limit::units(load(&counter.limits.low)),
        min: Limit::units(load(&counter.limits.min)),
        owner: row.owner.load(Ordering::Relaxed),
        state: match line.state {
            _ if damaged => GroupState::Damaged,
            state::EXITED | state::SETTLED => GroupState::Exited,
            _ => GroupState::Live,
        },
        at_exit: load(&row.at_exit),
    }
}
