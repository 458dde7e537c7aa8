//! The row of one group.

use super::name::{self, NAME_MAX};
use crate::counter::{IMPOSSIBLE, PageCounter};
use crate::region::row_set::Bits;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// The states of a row.
pub(crate) mod state {
    pub(crate) const FREE: u32 = 0;
    pub(crate) const LIVE: u32 = 1;
    /// The group was destroyed; the row is kept until its last charge is returned.
    pub(crate) const RETIRED: u32 = 2;
    /// The group's process ended; the row is kept for the account.
    pub(crate) const EXITED: u32 = 3;
    /// The group's process ended, and nothing is left in the row.
    pub(crate) const SETTLED: u32 = 4;
    /// There are no states beyond this one.
    pub(crate) const LAST: u32 = SETTLED;
}

/// In `children`: the row takes no more children.
const NO_MORE_CHILDREN: u32 = 1 << 31;
/// In `children`, below that: the last bits of the generation whose children are counted. They keep an old
/// handle from counting a child in the row's next group, or from making that group refuse children. (If the
/// row goes through as many generations as there are such numbers, between one step of such a handle and
/// the next, the handle touches it for the moment until it asks again whose row it is.)
const FAMILY_SHIFT: u32 = 21;
/// The word of a generation that has no child.
const fn family(generation: u16) -> u32 {
    (generation as u32) << FAMILY_SHIFT & !NO_MORE_CHILDREN
}

/// All rows may be children of one, and each may be counted once more while a thread finds that no row is
/// left to take.
const _: () = assert!(2 * super::handle::CAPACITY_MAX <= 1 << FAMILY_SHIFT);

/// In `depth`: the number of levels below the root.
const DEPTH: u32 = 0xff;

/// Flags of a row: bits of `depth`, above the number.
pub(crate) mod flag {
    /// Charges are not counted (`control/mode.rs`).
    pub(crate) const OFF: u32 = 1 << 8;
    /// When something in the subtree is cancelled, all of it is (`control/victim.rs`).
    pub(crate) const OOM_GROUP: u32 = 1 << 9;
}

/// One group. It has two pairs of lines, by their writers: the counter's words (`counter/mod.rs`), and 128
/// bytes further the words that a walk reads and that are seldom written.
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

/// Sets a bit. (The line stays shared while it is set.)
#[inline]
fn note(bits: &AtomicU64, bit: u32) {
    if bits.load(Ordering::Relaxed) >> bit & 1 == 0 {
        bits.fetch_or(1 << bit, Ordering::Relaxed);
    }
}

impl Row {
    /// From here on the row may say something that is not of its last group. (The caller has seen that
    /// group retired, or has freed the row.)
    pub(crate) fn begin_change(&self) {
        // Partner of the fence in `follow::read_as`.
        fence(Ordering::Release);
    }

    /// Makes the root's row ready.
    pub(crate) fn begin_root(&self) {
        self.children.store(family(1), Ordering::Relaxed);
        self.generation.store(1, Ordering::Relaxed);
        self.state.store(state::LIVE, Ordering::Release);
    }

    /// Makes a row that no other thread can reach ready for its next group. Returns that group's
    /// generation. Generations go from 1 to `last`.
    pub(crate) fn begin(&self, parent: u32, depth: u32, owner: u32, name: &str, last: u16) -> u16 {
        self.parent.store(parent, Ordering::Relaxed);
        self.depth.store(depth, Ordering::Relaxed);
        self.owner.store(owner, Ordering::Relaxed);
        self.columns.store(0, Ordering::Relaxed);
        self.at_exit.store(0, Ordering::Relaxed);
        name::store::<NAME_MAX>(&self.name, name);
        let generation = self.generation() % last + 1;
        self.children.store(family(generation), Ordering::Relaxed);
        // Release, partner of the Acquire in `generation_acquired`: a reader that sees the generation sees
        // all of the above.
        self.generation.store(u32::from(generation), Ordering::Release);
        self.counter.open();
        // Release: a reader that sees the row live sees all of the above. SeqCst: as `adopt_mode` says.
        self.state.store(state::LIVE, Ordering::SeqCst);
        generation
    }

    pub(crate) fn generation(&self) -> u16 {
        self.generation.load(Ordering::Relaxed) as u16
    }

    /// The generation, read so that all that its group began with is seen too.
    pub(crate) fn generation_acquired(&self) -> u16 {
        self.generation.load(Ordering::Acquire) as u16
    }

    pub(crate) fn depth(&self) -> u32 {
        self.depth.load(Ordering::Relaxed) & DEPTH
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

    /// Counts a child of that generation. Fails if the row accepts none any more, or is another's.
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

    /// From now on no child of that generation can be made. Fails while there is one, and says how many there were at
    /// that moment; with 0 where the row is another's, or refuses them already.
    pub(crate) fn refuse_children(&self, generation: u16) -> Result<(), u32> {
        let none = family(generation);
        self.children
            .compare_exchange(none, none | NO_MORE_CHILDREN, Ordering::AcqRel, Ordering::Relaxed)
            .map(drop)
            .map_err(|seen| seen.checked_sub(none).filter(|&n| n >> FAMILY_SHIFT == 0).unwrap_or(0))
    }

    /// Whether the row takes no more children: somebody destroys its group, or has done so.
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

    /// The noted columns as a number: another set gives another number.
    pub(crate) fn columns_noted(&self) -> u64 {
        self.columns.load(Ordering::Acquire)
    }

    /// The columns that may hold cells or counts of this row.
    pub(crate) fn noted_columns(&self, count: u32) -> impl Iterator<Item = u32> {
        let noted = self.columns.load(Ordering::Relaxed);
        (0..count).step_by(64).flat_map(move |first| {
            let bits = Bits(noted).map(move |bit| first + bit as u32);
            bits.take_while(move |&column| column < count)
        })
    }

    /// Notes that a column has sums of this row (`sums.rs`). The last bit stands for the totals, so the
    /// columns share the others.
    pub(crate) fn note_statistics(&self, column: u32) {
        note(&self.counter.track.statistics, column % 63);
    }

    /// Notes that there are totals of this row.
    pub(crate) fn note_totals(&self) {
        note(&self.counter.track.statistics, 63);
    }

    /// Whether the row may have sums or totals.
    pub(crate) fn has_statistics(&self) -> bool {
        self.counter.track.statistics.load(Ordering::Relaxed) != 0
    }

    /// Whether a column may have sums of this row.
    pub(crate) fn has_sums_in(&self, column: u32) -> bool {
        self.counter.track.statistics.load(Ordering::Relaxed) >> (column % 63) & 1 != 0
    }

    /// In which columns (modulo 63) the row has sums, and by the last bit whether it has totals.
    pub(super) fn statistics_noted(&self) -> u64 {
        self.counter.track.statistics.load(Ordering::Relaxed)
    }

    pub(crate) fn forget_statistics(&self) {
        self.counter.track.statistics.store(0, Ordering::Relaxed);
    }

    pub(crate) fn forget_columns(&self) {
        self.columns.store(0, Ordering::Relaxed);
    }

    /// Whether a row of a copy has the same generation as another copy of it, all bits of the word compared.
    pub(super) fn is_of_generation_of(&self, other: &Row) -> bool {
        self.generation.load(Ordering::Relaxed) == other.generation.load(Ordering::Relaxed)
    }

    /// Whether a row of a copy looks like one that was never used.
    pub(super) fn is_blank(&self) -> bool {
        let words = [&self.state, &self.generation, &self.parent];
        words.into_iter().all(|word| word.load(Ordering::Relaxed) == 0)
    }

    /// Makes a row of a copy look like one that was never used.
    pub(super) fn blank(&self) {
        for word in [&self.state, &self.generation, &self.parent] {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// The name. Another process may have written over it: what is not UTF-8 shows as replacement marks,
    /// and what no name may hold is escaped.
    pub(crate) fn name(&self) -> String {
        name::of_bytes(&self.name_bytes())
    }

    /// The name's bytes, and zeros. Allocates nothing.
    pub(crate) fn name_bytes(&self) -> [u8; NAME_MAX] {
        name::load(&self.name)
    }

    /// Whether the name is this one, which has no zero. Allocates nothing.
    pub(crate) fn has_name(&self, name: &[u8]) -> bool {
        let bytes = self.name_bytes();
        bytes.starts_with(name) && bytes.get(name.len()).is_none_or(|&byte| byte == 0)
    }

    /// Whether the row of a group holds what the ledger never writes: another program wrote over it. (What still makes
    /// sense is not noticed.) Allocates nothing.
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
