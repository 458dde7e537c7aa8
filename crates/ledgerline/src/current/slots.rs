//! Slots: the numbers by which the allocator's blocks name their owners. A group gets one at its first block.
//!
//! `SLOTS` has an entry for each number: the group's handle, packed and in parts. A free finds its group there, and an
//! allocation sees there whether the slot that its thread remembers is still the group's. (The parts are there so that
//! the fast paths unpack nothing.)
//!
//! **The way back**, from a group to its number, is a shadow of the ledgers' cells (`NUMBERS`): the entry of the
//! group's cell holds the number. It is right if the slot holds that very group.
//!
//! **A number is used again** when its group is over: destroyed, and its row free or another's. No block bears the
//! number then. For a block has the number of the group that it is charged to, one unit at least; a row is not freed
//! while a unit is charged there; and a charge that succeeds proves that the group was not over since the thread found
//! the number in its slot. (A handle of a group that is over is never charged: its generation is not the row's.) A group
//! in the row of one that is over takes over its number at once. When no fresh number is left, all slots are looked at
//! for one whose group is over.
//!
//! **Fork.** Groups of a ledger that processes share have numbers from the upper end, in pages that the kernel wipes in
//! a forked child. What the child inherits then names nobody, and its frees touch no account of its parent's. Those
//! numbers are never given again in the child, since inherited blocks bear them: a slot that is zero is fresh or dead.
//! Groups of a ledger in the process's own memory have numbers from the lower end: the child has its own copy of the
//! ledger, of the blocks and of their owners.
//!
//! All of it is lock-free. A fork, or a thread that is killed, in the middle of a step loses a number at worst.

use crate::group::Group;
use crate::os::{self, Advice, memory};
use crate::percpu::word::Cell;
use crate::region::shadow::Shadow;
use crate::sync::are_calls_forbidden;
use crate::table::handle::Packed;
use crate::table::row::Row;
use crate::table::{attached, follow};
pub(crate) use crate::whose::Slot;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// Zero is nobody's.
const COUNT: u32 = 1 << 16;
const PAGE: usize = 4096;
const IN_PAGE: u32 = (PAGE / size_of::<Slot>()) as u32;
/// After a look through all slots in vain, so many requests for a number are refused at once.
const PAUSE: u32 = 256;

/// In a slot's `group`: a thread changes the slot.
const BUSY: u64 = 1;

#[repr(C, align(4096))]
struct Slots([Slot; COUNT as usize]);

static SLOTS: Slots = Slots(
    [const {
        Slot {
            group: AtomicU64::new(0),
            cell: AtomicPtr::new(null_mut()),
            generation_bits: AtomicU64::new(0),
            number: AtomicU64::new(0),
        }
    }; COUNT as usize],
);

/// The parent of the group in each slot; zero for a root. A task that outlives its group is charged there. (Half a MiB of
/// zeros, which cost memory where they are touched.)
static PARENTS: [AtomicU64; COUNT as usize] = [const { AtomicU64::new(0) }; COUNT as usize];

impl Slot {
    /// Whether it is the group's.
    #[inline(always)]
    pub(crate) fn holds(&self, group: Packed) -> bool {
        // Acquire, partner of the Release in `fill`: the parts are the group's, too.
        self.group.load(Ordering::Acquire) == group.raw()
    }

    /// The group; `None` in the slot of an inherited block.
    #[inline(always)]
    pub(crate) fn group(&self) -> Option<Group<'static>> {
        // (It is not busy: a block bears its number.)
        Packed::from_raw(self.group.load(Ordering::Relaxed)).map(Group::unpack)
    }

    /// The group's cell and generation bits, for whoever knows by a block that bears the number, or finds by
    /// [`holds`](Self::holds) *afterwards*, whose they are. The cell is null in the slot of an inherited block.
    #[inline(always)]
    pub(crate) fn parts(&self) -> (*const Cell, u64) {
        // Acquire, partners of the Releases in `fill`: whoever sees a part of the next group sees the slot busy, or that
        // group's, after that.
        (self.cell.load(Ordering::Acquire), self.generation_bits.load(Ordering::Acquire))
    }

    #[inline(always)]
    pub(crate) fn number(&self) -> u16 {
        self.number.load(Ordering::Relaxed) as u16
    }

    /// Gives the slot, which this thread made busy or has fresh, to a group.
    fn fill(&self, group: Packed, number: u16) {
        let handle = group.unpack();
        // Release, partners of the Acquires in `parts`.
        self.cell.store(handle.cell.as_ptr(), Ordering::Release);
        self.generation_bits.store(handle.generation_bits, Ordering::Release);
        self.number.store(u64::from(number), Ordering::Relaxed);
        let parent = parent(Group::unpack(group)).map_or(0, |parent| parent.pack().raw());
        PARENTS[usize::from(number)].store(parent, Ordering::Release);
        // Release, partner of the Acquire in `holds`.
        self.group.store(group.raw(), Ordering::Release);
    }

    /// Takes the slot over for a group if that of last time is over.
    fn take_over(&self, group: Packed, number: u16) -> bool {
        let held = self.group.load(Ordering::Acquire);
        let over = held != BUSY && Packed::from_raw(held).is_some_and(is_over);
        // AcqRel: of two threads one gets it, and sees all that the last owner's end was.
        let taken = over
            && self.group.compare_exchange(held, BUSY, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if taken {
            self.fill(group, number);
        }
        taken
    }
}

/// The slot of a number that a block bears.
#[inline(always)]
pub(crate) fn at(number: u16) -> &'static Slot {
    &SLOTS.0[number as usize]
}

/// The number of the group in each row, by the address of the row's cell.
static NUMBERS: Shadow<AtomicU16, 4> = Shadow::new();
/// The lowest fresh number, and in the upper half the first that is not fresh again.
static FRESH: AtomicU64 = AtomicU64::new((COUNT as u64) << 32 | 1);
/// Pages that a fork wipes.
static WIPED: [AtomicBool; (COUNT / IN_PAGE) as usize] =
    [const { AtomicBool::new(false) }; (COUNT / IN_PAGE) as usize];
static PAUSING: AtomicU32 = AtomicU32::new(0);

/// Why a group has no slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Without {
    /// It was destroyed.
    Gone,
    /// Another process charges it, or there is no memory for the number.
    Foreign,
    /// All numbers are taken by groups that are not over.
    Full,
}

/// The slot of a group, which gets one if it has none. Makes no system call but for the first group in a GiB of cells,
/// and for the first in a page of numbers of shared ledgers.
pub(crate) fn of(group: Group<'static>) -> Result<&'static Slot, Without> {
    known(group).map_or_else(|| give(group), Ok)
}

/// The slot of a group that has one.
pub(crate) fn known(group: Group<'static>) -> Option<&'static Slot> {
    let number = NUMBERS.entry(cell(group)).map_or(0, |entry| entry.load(Ordering::Relaxed));
    (number != 0 && at(number).holds(group.pack())).then(|| at(number))
}

/// The parent of a group: of one that holds something, as its row says; of one whose row is free by now, as its slot does, as
/// long as no other group has its number. `None` if it never had one, and for a root.
pub(crate) fn parent_of(group: Group<'static>) -> Option<Group<'static>> {
    parent(group).or_else(|| remembered(group))
}

fn remembered(group: Group<'static>) -> Option<Group<'static>> {
    let slot = known(group)?;
    // Acquire, partner of the Release in `fill`: if it is the next group's parent, the slot is seen busy or that group's.
    let parent = PARENTS[usize::from(slot.number())].load(Ordering::Acquire);
    slot.holds(group.pack()).then(|| Packed::from_raw(parent).map(Group::unpack))?
}

/// The parent of a group that exists, or holds something: a row that does keeps its ancestors' rows.
fn parent(group: Group<'static>) -> Option<Group<'static>> {
    let (table, id) = (group.table(), group.id());
    let parent = |row: &Row| table.id(row.parent.load(Ordering::Relaxed).min(table.capacity() - 1));
    let not_root = group != group.ledger().root();
    not_root.then(|| follow::read_held(table, id, parent).map(|id| group.ledger().group(id)))?
}

fn cell(group: Group<'static>) -> usize {
    group.pack().unpack().cell.addr().get()
}

#[cold]
fn give(group: Group<'static>) -> Result<&'static Slot, Without> {
    // The root comes first: whoever gets no number has an ancestor with one then. (Where the root is another process's,
    // or none is left for it, it has none.)
    let root = group.ledger().root();
    if group != root && known(root).is_none() {
        let _ = number_for(root);
    }
    number_for(group).map(at)
}

fn number_for(group: Group<'static>) -> Result<u16, Without> {
    let (table, packed, cell) = (group.table(), group.pack(), cell(group));
    if !group.exists() {
        return Err(Without::Gone);
    }
    let shared = table.is_shared();
    if shared && !(attached::is_here() && table.is_mine(group.id().index())) {
        return Err(Without::Foreign);
    }
    let entry = make(&NUMBERS, cell).ok_or(Without::Foreign)?;
    // The number of the row's last group. (If it became another row's since, that row's group decides.)
    let last = entry.load(Ordering::Relaxed);
    let of_row = last != 0 && at(last).parts().0.addr() == cell;
    if of_row && (at(last).take_over(packed, last) || at(last).holds(packed)) {
        return Ok(last);
    }
    let number = match fresh(shared)? {
        Some(number) => {
            at(number).fill(packed, number);
            number
        }
        None => look_through(shared, packed).ok_or(Without::Full)?,
    };
    // (Two threads may have got a number each for one group. Either names it.)
    entry.store(number, Ordering::Relaxed);
    Ok(number)
}

/// As [`Shadow::make`], where system calls are allowed.
pub(crate) fn make<const BITS: u32>(
    shadow: &Shadow<AtomicU16, BITS>,
    address: usize,
) -> Option<&'static AtomicU16> {
    if are_calls_forbidden() { shadow.entry(address) } else { shadow.make(address) }
}

/// Whether nothing can be charged to a group any more, and nothing is.
fn is_over(packed: Packed) -> bool {
    let group = Group::<'static>::unpack(packed);
    follow::read_held(group.table(), group.id(), |_| ()).is_none()
}

/// A number that no group ever had; `None` if there is none left.
fn fresh(shared: bool) -> Result<Option<u16>, Without> {
    let take = |word: u64| {
        let (low, high) = (word as u32, (word >> 32) as u32);
        // A page of slots is wiped on fork or is not.
        let first_wiped = if high == COUNT { COUNT / IN_PAGE } else { high / IN_PAGE };
        if shared {
            ((high - 1) / IN_PAGE > (low - 1) / IN_PAGE).then(|| word - (1 << 32))
        } else {
            (low < COUNT && low / IN_PAGE < first_wiped).then(|| word + 1)
        }
    };
    // Relaxed: the numbers are all there is to see.
    let Ok(word) = FRESH.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) else {
        return Ok(None);
    };
    if !shared {
        return Ok(Some(word as u16));
    }
    let number = (word >> 32) as u32 - 1;
    if wipe(number / IN_PAGE) { Ok(Some(number as u16)) } else { Err(Without::Foreign) }
}

/// Has the kernel wipe a page of slots in forked children.
fn wipe(page: u32) -> bool {
    let wiped = &WIPED[page as usize];
    // Acquire and Release are partners: whoever sees the flag has the kernel's word.
    if wiped.load(Ordering::Acquire) {
        return true;
    }
    if are_calls_forbidden() {
        return false;
    }
    let start = &raw const SLOTS.0[(page * IN_PAGE) as usize];
    // SAFETY: the advice is about one page of a table of ours, which begins at a page. (Where pages are larger, the
    // kernel refuses a part of one. There are no sections there, either.)
    let done = unsafe {
        os::page_size() == PAGE && memory::advise(start as *mut u8, PAGE, Advice::WipedInChildren)
    };
    if done {
        wiped.store(true, Ordering::Release);
    }
    done
}

/// A number whose group is over, among those of the kind, for another group.
fn look_through(shared: bool, group: Packed) -> Option<u16> {
    /// Where the last look ended.
    static CURSOR: AtomicU32 = AtomicU32::new(0);
    let pause = |left: u32| left.checked_sub(1);
    if PAUSING.fetch_update(Ordering::Relaxed, Ordering::Relaxed, pause).is_ok() {
        return None;
    }
    let word = FRESH.load(Ordering::Relaxed);
    let (first, end) = if shared { ((word >> 32) as u32, COUNT) } else { (1, word as u32) };
    let start = CURSOR.load(Ordering::Relaxed).clamp(first, end);
    let numbers = (start..end).chain(first..start).map(|number| number as u16);
    let found = numbers.into_iter().find(|&number| at(number).take_over(group, number));
    match found {
        Some(number) => CURSOR.store(u32::from(number) + 1, Ordering::Relaxed),
        None => PAUSING.store(PAUSE, Ordering::Relaxed),
    }
    found
}
