//! What readers get: owned data, no locks, one pass over the rows in use.

use crate::ledger::Ledger;
use crate::percpu::word;
use crate::row::{GroupId, state};
use crate::size::Limit;
use crate::sync::Ordering;

/// A picture of the whole tree. Each group is read once; groups that change meanwhile may be some
/// nanoseconds apart from each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// What is counted.
    pub unit: &'static str,
    /// The groups, each followed by its children (in order of creation), the root first.
    pub groups: Vec<GroupSnapshot>,
}

/// Whether a group still takes charges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupState {
    /// It does.
    Live,
    /// Its process ended; it is kept for the account.
    Exited,
}

/// One group at the time of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSnapshot {
    /// Its number.
    pub id: GroupId,
    /// Its path, like a cgroup's.
    pub path: String,
    /// The last part of the path; `/` for the root.
    pub name: String,
    /// Levels below the root.
    pub depth: u32,
    /// Units charged now, idle stock left out.
    pub current: u64,
    /// Units granted now, idle stock included.
    pub approximate: u64,
    /// Highest usage (see [`Group::peak`](crate::Group::peak)).
    pub peak: u64,
    /// Charges to the group and all below it, ever.
    pub charges: u64,
    /// Uncharges likewise.
    pub uncharges: u64,
    /// Charges that this group's own limit refused, or that were forced over it.
    pub max_events: u64,
    /// Fetches that ended above this group's high.
    pub high_events: u64,
    /// Charges that a limit of this group or of one below it refused.
    pub refused: u64,
    /// The hard limit.
    pub max: Limit,
    /// The soft limit.
    pub high: Limit,
    /// What is protected unless nothing else is left.
    pub low: Limit,
    /// What is protected always.
    pub min: Limit,
    /// The process that charges it; 0 in a ledger of one process.
    pub owner: u32,
    /// Whether it still takes charges.
    pub state: GroupState,
    /// What its process held when it ended.
    pub at_exit: u64,
}

/// Sums over a subtree, collected from the leaves up.
#[derive(Clone, Copy, Default)]
struct Sums {
    idle: u64,
    charges: u64,
    uncharges: u64,
    refused: u64,
}

impl Ledger {
    /// A picture of the tree as it is now. Destroyed groups are not in it; what they still hold is
    /// in their ancestors' numbers. O(rows in use); about a microsecond a group.
    pub fn snapshot(&self) -> Snapshot {
        let rows = self.high_water() as usize;
        let mut sums = vec![Sums::default(); rows];
        let mut children: Vec<Vec<u32>> = vec![Vec::new(); rows];
        let mut parents = vec![0u32; rows];
        let mut order: Vec<(u32, u32)> = Vec::with_capacity(rows);
        for index in 0..rows as u32 {
            let row = self.row(index);
            let state = row.state.load(Ordering::Acquire);
            if state == state::FREE {
                continue;
            }
            let parent = row.parent.load(Ordering::Relaxed);
            // Only what leads to the root counts; another process may have written nonsense.
            if index != 0 && (parent as usize >= rows || self.depth_of(index).is_none()) {
                continue;
            }
            order.push((self.depth_of(index).unwrap_or(0), index));
            parents[index as usize] = parent;
            if index != 0 && state != state::RETIRED {
                children[parent as usize].push(index);
            }
            let (charges, uncharges) = self.own_counts(index);
            let own = &mut sums[index as usize];
            own.charges = charges;
            own.uncharges = uncharges;
            own.refused = row.counter.failcnt();
            for column in row.noted_columns(self.columns().count()) {
                let word = self.columns().cell(column, index).word.load(Ordering::Acquire);
                if word::generation(word) == self.cell_generation(row) {
                    own.idle += word::stock(word);
                }
            }
        }
        // The deepest first: each row's sums are complete when they go to its parent.
        order.sort_unstable_by(|a, b| b.cmp(a));
        for &(_, index) in &order {
            if index != 0 {
                let own = sums[index as usize];
                let up = &mut sums[parents[index as usize] as usize];
                // (Wrapping: another process may have written nonsense here, too.)
                up.idle = up.idle.wrapping_add(own.idle);
                up.charges = up.charges.wrapping_add(own.charges);
                up.uncharges = up.uncharges.wrapping_add(own.uncharges);
                up.refused = up.refused.wrapping_add(own.refused);
            }
        }
        let mut groups = Vec::with_capacity(order.len());
        let mut open = vec![(0u32, 0u32, String::new())];
        while let Some((index, depth, path)) = open.pop() {
            for &child in children[index as usize].iter().rev() {
                let below = format!("{path}/{}", self.row(child).name());
                open.push((child, depth + 1, below));
            }
            groups.push(self.picture(index, depth, path, sums[index as usize]));
        }
        Snapshot { unit: "bytes", groups }
    }

    fn depth_of(&self, index: u32) -> Option<u32> {
        crate::path::RowPath::new(self, index).map(|path| path.rows().len() as u32 - 1)
    }

    fn picture(&self, index: u32, depth: u32, path: String, sums: Sums) -> GroupSnapshot {
        let row = self.row(index);
        let counter = &row.counter;
        let limit = |word: u64| Limit::units(word);
        let load = |word: &crate::sync::AtomicU64| word.load(Ordering::Relaxed);
        let approximate = counter.usage();
        GroupSnapshot {
            id: GroupId::from_parts(index, row.generation()),
            name: if index == 0 { "/".into() } else { row.name() },
            path: if index == 0 { "/".into() } else { path },
            depth,
            current: approximate.saturating_sub(sums.idle),
            approximate,
            peak: counter.watermark(),
            charges: sums.charges,
            uncharges: sums.uncharges,
            max_events: load(&counter.track.max_events),
            high_events: load(&counter.track.high_events),
            refused: sums.refused,
            max: limit(counter.max_as_set()),
            high: limit(load(&counter.limits.high)),
            low: limit(load(&counter.limits.low)),
            min: limit(load(&counter.limits.min)),
            owner: row.owner.load(Ordering::Relaxed),
            state: match row.state.load(Ordering::Relaxed) {
                state::EXITED | state::SETTLED => GroupState::Exited,
                _ => GroupState::Live,
            },
            at_exit: load(&row.at_exit),
        }
    }
}
