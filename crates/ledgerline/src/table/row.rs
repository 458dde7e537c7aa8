//! The row of one group.

use super::name::{self, NAME_MAX};
use crate::counter::{IMPOSSIBLE, PageCounter};
use crate::region::row_set::Bits;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// The states of a row.
pub(crate) mod state {
    pub(crate) const FREE: u32 = 0;
    pub(crate) const LIVE: u32 = 1;
    /// The group was destroyed. The row is kept until its last charge is returned.
    pub(crate) const RETIRED: u32 = 2;
    /// The group's process ended. The row is kept for the account.
    pub(crate) const EXITED: u32 = 3;
    /// The group's process ended, and nothing is left in the row.
    pub(crate) const SETTLED: u32 = 4;
    /// The highest state.
    pub(crate) const LAST: u32 = SETTLED;
}

/// In `children`: the row takes no more children.
const NO_MORE_CHILDREN: u32 = 1 << 31;
/// In `children`, below that: the last bits of the generation whose children are counted. They keep an old handle from
/// counting a child in the row's next group, or from making that group refuse children. If the row goes through as many
/// generations as there are such numbers between two steps of an old handle, that handle affects the row's present group
/// until it checks the row's generation again.
const FAMILY_SHIFT: u32 = 21;
/// Returns the word of a generation that has no child.
const fn family(generation: u16) -> u32 {
    (generation as u32) << FAMILY_SHIFT & !NO_MORE_CHILDREN
}

/// All rows may be children of one, and each may be counted once more while a thread finds that no row is left.
const _: () = assert!(2 * super::handle::CAPACITY_MAX <= 1 << FAMILY_SHIFT);

/// In `depth`: the number of levels below the root.
const DEPTH: u32 = 0xff;

/// Flags of a row: bits of `depth`, above the number.
pub(crate) mod flag {
    /// Charges are not counted (`control/mode.rs`).
    pub(crate) const OFF: u32 = 1 << 8;
    /// If anything in the subtree is cancelled, the whole subtree is (`control/victim.rs`).
    pub(crate) const OOM_GROUP: u32 = 1 << 9;
}

/// One group. It has two pairs of lines, separated by their writers: first the counter's words (`counter/mod.rs`), and 128
/// bytes further the words that a walk reads and that are rarely written.
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
    /// The units that the process held when it ended (`state::EXITED`).
    pub(crate) at_exit: AtomicU64,
    /// UTF-8, padded with zeros.
    name: [AtomicU64; NAME_MAX / 8],
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<Row>() == 256);
    // Limits, parent, generation and state share the line that walks only read.
    assert!(offset_of!(Row, counter.limits) / 64 == offset_of!(Row, state) / 64);
    assert!(offset_of!(Row, counter.limits) % 128 == 0);
    assert!(offset_of!(Row, children) / 64 == 2);
};

/// Sets a bit. If it is already set, nothing is written, so the line stays shared.
#[inline]
fn note(bits: &AtomicU64, bit: u32) {
    if bits.load(Ordering::Relaxed) >> bit & 1 == 0 {
        bits.fetch_or(1 << bit, Ordering::Relaxed);
    }
}

impl Row {
    /// Must come before the first store to the row that does not belong to its last group. The caller has seen that group
    /// retired, or has freed the row.
    pub(crate) fn begin_change(&self) {
        // Partner of the fence in `follow::read_as`.
        fence(Ordering::Release);
    }

    /// Initializes the root's row.
    pub(crate) fn begin_root(&self) {
        self.children.store(family(1), Ordering::Relaxed);
        self.generation.store(1, Ordering::Relaxed);
        self.state.store(state::LIVE, Ordering::Release);
    }

    /// Initializes a row that no other thread can reach for its next group. Returns that group's generation. Generations
    /// run from 1 to `last`.
    pub(crate) fn begin(&self, parent: u32, depth: u32, owner: u32, name: &str, last: u16) -> u16 {
        self.parent.store(parent, Ordering::Relaxed);
        self.depth.store(depth, Ordering::Relaxed);
        self.owner.store(owner, Ordering::Relaxed);
        self.columns.store(0, Ordering::Relaxed);
        self.at_exit.store(0, Ordering::Relaxed);
        name::store::<NAME_MAX>(&self.name, name);
        let generation = self.generation() % last + 1;
        self.children.store(family(generation), Ordering::Relaxed);
        // Release, partner of the Acquire in `generation_acquired`: a reader that sees the generation sees all of the
        // above.
        self.generation.store(u32::from(generation), Ordering::Release);
        self.counter.open();
        // Release: a reader that sees the row live sees all of the above. SeqCst: see `adopt_mode`.
        self.state.store(state::LIVE, Ordering::SeqCst);
        generation
    }

    pub(crate) fn generation(&self) -> u16 {
        self.generation.load(Ordering::Relaxed) as u16
    }

    /// Returns the generation. The load also makes the group's initial values visible.
    pub(crate) fn generation_acquired(&self) -> u16 {
        self.generation.load(Ordering::Acquire) as u16
    }

    pub(crate) fn depth(&self) -> u32 {
        self.depth.load(Ordering::Relaxed) & DEPTH
    }

    /// Returns whether a [`flag`] is set.
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

    /// Counts a child of that generation. Fails if the row accepts no more children or belongs to another generation.
    pub(crate) fn add_child(&self, generation: u16) -> bool {
        let open = family(generation) >> FAMILY_SHIFT;
        self.children
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |children| {
                (children >> FAMILY_SHIFT == open).then(|| children + 1)
            })
            .is_ok()
    }

    pub(crate) fn remove_child(&self) {
        self.children.fetch_sub(1, Ordering::AcqRel);
    }

    pub(crate) fn children(&self) -> u32 {
        self.children.load(Ordering::Relaxed) % (1 << FAMILY_SHIFT)
    }

    /// Forbids new children of that generation. Fails while there are children, and then returns their number. Fails with 0
    /// if the row belongs to another generation, or refuses children already.
    pub(crate) fn refuse_children(&self, generation: u16) -> Result<(), u32> {
        let none = family(generation);
        self.children
            .compare_exchange(none, none | NO_MORE_CHILDREN, Ordering::AcqRel, Ordering::Relaxed)
            .map(drop)
            .map_err(|seen| seen.checked_sub(none).filter(|&n| n >> FAMILY_SHIFT == 0).unwrap_or(0))
    }

    /// Returns whether the row takes no more children, because a thread is destroying its group or has destroyed it.
    pub(crate) fn refuses_children(&self) -> bool {
        // Acquire, partner of `refuse_children` and `accept_children`.
        self.children.load(Ordering::Acquire) & NO_MORE_CHILDREN != 0
    }

    /// Undoes [`refuse_children`](Self::refuse_children).
    pub(crate) fn accept_children(&self) {
        self.children.fetch_and(!NO_MORE_CHILDREN, Ordering::AcqRel);
    }

    /// Notes that a column holds a cell or counts of this row.
    pub(crate) fn note_column(&self, column: u32) {
        note(&self.columns, column % 64);
    }

    /// Returns the noted columns as a number: different sets have different numbers.
    pub(crate) fn columns_noted(&self) -> u64 {
        self.columns.load(Ordering::Acquire)
    }

    /// Returns the columns that may hold cells or counts of this row.
    pub(crate) fn noted_columns(&self, count: u32) -> impl Iterator<Item = u32> {
        let noted = self.columns.load(Ordering::Relaxed);
        (0..count).step_by(64).flat_map(move |first| {
            let bits = Bits(noted).map(move |bit| first + bit as u32);
            bits.take_while(move |&column| column < count)
        })
    }

    /// Notes that a column has sums of this row (`sums.rs`). The last bit stands for the totals; the columns share the
    /// others.
    pub(crate) fn note_statistics(&self, column: u32) {
        note(&self.counter.track.statistics, column % 63);
    }

    /// Notes that this row has totals.
    pub(crate) fn note_totals(&self) {
        note(&self.counter.track.statistics, 63);
    }

    /// Returns whether the row may have sums or totals.
    pub(crate) fn has_statistics(&self) -> bool {
        self.counter.track.statistics.load(Ordering::Relaxed) != 0
    }

    /// Returns whether a column may have sums of this row.
    pub(crate) fn has_sums_in(&self, column: u32) -> bool {
        self.counter.track.statistics.load(Ordering::Relaxed) >> (column % 63) & 1 != 0
    }

    /// Returns the columns (modulo 63) in which the row has sums. The last bit is set if it has totals.
    pub(super) fn statistics_noted(&self) -> u64 {
        self.counter.track.statistics.load(Ordering::Relaxed)
    }

    pub(crate) fn forget_statistics(&self) {
        self.counter.track.statistics.store(0, Ordering::Relaxed);
    }

    pub(crate) fn forget_columns(&self) {
        self.columns.store(0, Ordering::Relaxed);
    }

    /// Returns whether two copies of a row have the same generation, comparing all bits of the word.
    pub(super) fn is_of_generation_of(&self, other: &Row) -> bool {
        self.generation.load(Ordering::Relaxed) == other.generation.load(Ordering::Relaxed)
    }

    /// Returns whether a copied row looks like one that was never used.
    pub(super) fn is_blank(&self) -> bool {
        let words = [&self.state, &self.generation, &self.parent];
        words.into_iter().all(|word| word.load(Ordering::Relaxed) == 0)
    }

    /// Makes a copied row look like one that was never used.
    pub(super) fn blank(&self) {
        for word in [&self.state, &self.generation, &self.parent] {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// Returns the name. Another process may have written over it: invalid UTF-8 shows as replacement characters, and
    /// characters that no name may hold are escaped.
    pub(crate) fn name(&self) -> String {
        name::of_bytes(&self.name_bytes())
    }

    /// Returns the bytes of the name, padded with zeros. Allocates nothing.
    pub(crate) fn name_bytes(&self) -> [u8; NAME_MAX] {
        name::load(&self.name)
    }

    /// Returns whether the row has this name, which has no zero. Allocates nothing.
    pub(crate) fn has_name(&self, name: &[u8]) -> bool {
        let bytes = self.name_bytes();
        bytes.starts_with(name) && bytes.get(name.len()).is_none_or(|&byte| byte == 0)
    }

    /// Returns whether the row of a group holds values that the ledger never writes, because another program wrote over it.
    /// Plausible values are not noticed. Allocates nothing.
    pub(crate) fn is_damaged(&self, is_root: bool) -> bool {
        let state = self.state.load(Ordering::Acquire);
        let generation = self.generation.load(Ordering::Relaxed);
        let flags = self.depth.load(Ordering::Relaxed) & !(DEPTH | flag::OFF | flag::OOM_GROUP);
        if is_root {
            return state != state::LIVE
                || (generation, self.depth(), flags) != (1, 0, 0)
                || self.counter.is_damaged();
        }
        let bytes = self.name_bytes();
        let (text, rest) = name::before_zeros(&bytes);
        let is_name =
            |text: &[u8]| std::str::from_utf8(text).is_ok_and(|it| name::check(it).is_ok());
        state > state::LAST
            || generation == 0
            || generation > u32::from(u16::MAX)
            || flags != 0
            || self.at_exit.load(Ordering::Relaxed) > IMPOSSIBLE
            || !is_name(text)
            || rest.iter().any(|&byte| byte != 0)
            || self.counter.is_damaged()
    }
}
