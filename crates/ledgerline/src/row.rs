//! One group's row, and the number that names it.

use crate::page_counter::PageCounter;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Longest name of a group, in bytes.
pub const NAME_MAX: usize = 56;

/// A group's number: which row, and which of the row's successive groups.
///
/// Sixteen bits of generation: an id that outlived its group is refused, unless exactly a multiple
/// of 65 535 other groups have used that row since. (A group with live charges keeps its row, so a
/// charge's id never goes stale; only a copy of a handle can.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GroupId(u64);

impl GroupId {
    pub(crate) const ROOT: GroupId = GroupId::from_parts(0, 1);
    /// Names no group, and no cell ever serves it: it has a bit where a sum must have none.
    pub(crate) const NOBODY: GroupId = GroupId(crate::percpu::word::FROZEN);

    /// Puts an id together. Any numbers may be given; an id that names no group is refused on use.
    pub const fn from_parts(index: u32, generation: u16) -> GroupId {
        GroupId((generation as u64) << 48 | (index & 0x7fff_ffff) as u64)
    }

    /// The row.
    pub const fn index(self) -> u32 {
        self.0 as u32
    }

    /// Which of the row's successive groups; never zero for a group that exists.
    pub const fn generation(self) -> u16 {
        (self.0 >> 48) as u16
    }

    /// The row that a raw id names.
    pub(crate) const fn row_of(raw: u64) -> u32 {
        raw as u32
    }

    /// The generation in the upper 16 bits and the row in the lower 32: as in the charge word.
    pub(crate) const fn raw(self) -> u64 {
        self.0
    }
}

/// What a row is used for.
pub(crate) mod state {
    pub(crate) const FREE: u32 = 0;
    pub(crate) const LIVE: u32 = 1;
    /// Destroyed, and kept until its last charge is returned.
    pub(crate) const RETIRED: u32 = 2;
    /// Its process ended; kept for the account.
    pub(crate) const EXITED: u32 = 3;
    /// The same, and nothing is left in it.
    pub(crate) const SETTLED: u32 = 4;
}

/// In `children`: the row takes no more children.
const NO_MORE_CHILDREN: u32 = 1 << 31;

/// What a row is told beside its limits: bits of `depth`, above the number.
pub(crate) mod flag {
    /// Charges are not counted (mode.rs).
    pub(crate) const OFF: u32 = 1 << 8;
    /// Whoever kills something in the subtree kills all of it (victim.rs).
    pub(crate) const OOM_GROUP: u32 = 1 << 9;
}

/// One group. Two pairs of lines by who writes them: the counter's words (`page_counter.rs`), and
/// 128 bytes further what is read on the way and seldom written.
#[repr(C, align(256))]
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) counter: PageCounter,
    /// While the row is free: the next free row.
    pub(crate) parent: AtomicU32,
    generation: AtomicU32,
    pub(crate) state: AtomicU32,
    /// Levels below the root, and flags.
    depth: AtomicU32,
    /// The process whose columns serve this row; 0 in a ledger of one process.
    pub(crate) owner: AtomicU32,
    children: AtomicU32,
    /// Columns (modulo 64) in which the row has, or had, cells or counts.
    columns: AtomicU64,
    /// What the process held when it ended (`state::EXITED`).
    pub(crate) at_exit: AtomicU64,
    /// UTF-8, filled up with zeros.
    name: [AtomicU64; NAME_MAX / 8],
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<Row>() == 256);
    // Limits, parent, generation and state share the line that a walk only reads.
    assert!(offset_of!(Row, counter.limits) / 64 == offset_of!(Row, state) / 64);
    assert!(offset_of!(Row, counter.limits) % 128 == 0);
    assert!(offset_of!(Row, children) / 64 == 2);
};

impl Row {
    /// Makes the root's row ready.
    pub(crate) fn begin_root(&self) {
        self.generation.store(1, Ordering::Relaxed);
        self.state.store(state::LIVE, Ordering::Release);
    }

    /// Makes a row that nobody else can reach ready for its next group; that group's generation.
    /// Generations go from 1 to `last`.
    pub(crate) fn begin(&self, parent: u32, depth: u32, owner: u32, name: &str, last: u16) -> u16 {
        self.parent.store(parent, Ordering::Relaxed);
        self.depth.store(depth, Ordering::Relaxed);
        self.owner.store(owner, Ordering::Relaxed);
        self.children.store(0, Ordering::Relaxed);
        self.columns.store(0, Ordering::Relaxed);
        self.at_exit.store(0, Ordering::Relaxed);
        self.set_name(name);
        let generation = self.generation() % last + 1;
        self.generation.store(u32::from(generation), Ordering::Relaxed);
        self.counter.open();
        // Release: who sees the row live sees all of the above.
        self.state.store(state::LIVE, Ordering::Release);
        generation
    }

    pub(crate) fn generation(&self) -> u16 {
        self.generation.load(Ordering::Relaxed) as u16
    }

    pub(crate) fn depth(&self) -> u32 {
        self.depth.load(Ordering::Relaxed) & 0xff
    }

    /// Whether a [`flag`] is set.
    pub(crate) fn has(&self, flag: u32) -> bool {
        self.depth.load(Ordering::SeqCst) & flag != 0
    }

    pub(crate) fn set(&self, flag: u32, on: bool) {
        if on {
            self.depth.fetch_or(flag, Ordering::SeqCst);
        } else {
            self.depth.fetch_and(!flag, Ordering::SeqCst);
        }
    }

    /// Counts a child, unless the row takes none any more.
    pub(crate) fn add_child(&self) -> bool {
        self.children
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |children| {
                (children & NO_MORE_CHILDREN == 0).then(|| children + 1)
            })
            .is_ok()
    }

    pub(crate) fn remove_child(&self) {
        self.children.fetch_sub(1, Ordering::AcqRel);
    }

    pub(crate) fn children(&self) -> u32 {
        self.children.load(Ordering::Relaxed) & !NO_MORE_CHILDREN
    }

    /// From now on no child can be made; fails while there is one.
    pub(crate) fn refuse_children(&self) -> bool {
        self.children
            .compare_exchange(0, NO_MORE_CHILDREN, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Undoes [`refuse_children`](Self::refuse_children).
    pub(crate) fn accept_children(&self) {
        self.children.fetch_and(!NO_MORE_CHILDREN, Ordering::AcqRel);
    }

    /// Notes that a column holds a cell or counts of this row.
    pub(crate) fn note_column(&self, column: u32) {
        let bit = 1 << (column % 64);
        if self.columns.load(Ordering::Relaxed) & bit == 0 {
            self.columns.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// The columns that may hold something of this row.
    pub(crate) fn noted_columns(&self, count: u32) -> impl Iterator<Item = u32> {
        let noted = self.columns.load(Ordering::Relaxed);
        (0..count).filter(move |column| noted >> (column % 64) & 1 != 0)
    }

    /// Notes that a column has sums of this row (memory_stat.rs). The last bit stands for the
    /// totals, so the columns share the others.
    pub(crate) fn note_statistics(&self, column: u32) {
        self.note_in_statistics(1 << (column % 63));
    }

    /// Notes that there are totals of this row.
    pub(crate) fn note_totals(&self) {
        self.note_in_statistics(1 << 63);
    }

    fn note_in_statistics(&self, bit: u64) {
        let noted = &self.counter.track.statistics;
        if noted.load(Ordering::Relaxed) & bit == 0 {
            noted.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Whether the row may have sums or totals.
    pub(crate) fn has_statistics(&self) -> bool {
        self.counter.track.statistics.load(Ordering::Relaxed) != 0
    }

    /// Whether a column may have sums of this row.
    pub(crate) fn has_sums_in(&self, column: u32) -> bool {
        self.counter.track.statistics.load(Ordering::Relaxed) >> (column % 63) & 1 != 0
    }

    pub(crate) fn forget_statistics(&self) {
        self.counter.track.statistics.store(0, Ordering::Relaxed);
    }

    pub(crate) fn forget_columns(&self) {
        self.columns.store(0, Ordering::Relaxed);
    }

    fn set_name(&self, name: &str) {
        let mut bytes = [0u8; NAME_MAX];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        for (word, part) in self.name.iter().zip(bytes.chunks_exact(8)) {
            let part = part.try_into().expect("chunks of eight");
            word.store(u64::from_le_bytes(part), Ordering::Relaxed);
        }
    }

    /// The name; what is not UTF-8 (another process wrote over it) shows as replacement marks.
    pub(crate) fn name(&self) -> String {
        let mut bytes = [0u8; NAME_MAX];
        for (word, part) in self.name.iter().zip(bytes.chunks_exact_mut(8)) {
            part.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        let length = bytes.iter().position(|&byte| byte == 0).unwrap_or(NAME_MAX);
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }
}
