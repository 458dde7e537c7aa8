//! Slots: the numbers by which the allocator's blocks name their owners. A group gets one at its first block.
//!
//! `SLOTS` has an entry for each number: the group's handle, packed and in parts. A free looks up its group there. An
//! allocation checks there that the slot cached by its thread is still the group's. The parts save the fast paths
//! from unpacking.
//!
//! **The reverse mapping**, from a group to its number, is a shadow of the ledgers' cells (`NUMBERS`): the entry of
//! the group's cell holds the number. It is right if the slot holds that very group.
//!
//! **A number is used again** when its group is over: destroyed, and its row free or another's. No block bears the
//! number then, for three reasons:
//!
//! * A block bears the number of the group that it is charged to, with one unit at least.
//! * A row is not freed while a unit is charged there.
//! * A charge that succeeds proves that the group was not over since the thread found the number in its slot. A
//!   handle of a group that is over is never charged, since its generation is not the row's.
//!
//! A group in the row of one that is over takes over its number at once. When no fresh number is left, all slots are
//! searched for one whose group is over.
//!
//! **Fork.** Groups of a ledger that processes share have numbers from the upper end, in pages that the kernel wipes
//! in a forked child. So inherited blocks have no owner in the child, and freeing them touches no account of the
//! parent. The child never gives those numbers again, since inherited blocks bear them: a slot that is zero is fresh
//! or dead. Groups of a ledger in the process's own memory have numbers from the lower end: the child has its own
//! copy of the ledger, of the blocks and of their owners.
//!
//! All of it is lock-free. A fork, or the death of a thread, in the middle of a step loses at most one number.

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

/// Zero stands for no owner.
const COUNT: u32 = 1 << 16;
const PAGE: usize = 4096;
const IN_PAGE: u32 = (PAGE / size_of::<Slot>()) as u32;
/// After a search of all slots without success, this many requests for a number are refused at once.
const PAUSE: u32 = 256;

/// A slot's `group` while a thread changes the slot.
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

/// The parent of the group in each slot; zero for a root. Allocations of a task that outlives its group are charged
/// there. Half a MiB of zeros; only touched pages cost memory.
static PARENTS: [AtomicU64; COUNT as usize] = [const { AtomicU64::new(0) }; COUNT as usize];

impl Slot {
    /// Returns whether the slot is the group's.
    #[inline(always)]
    pub(crate) fn holds(&self, group: Packed) -> bool {
        // Acquire, partner of the Release in `fill`: the parts are then the group's, too.
        self.group.load(Ordering::Acquire) == group.raw()
    }

    /// Returns the group; `None` in the slot of an inherited block.
    #[inline(always)]
    pub(crate) fn group(&self) -> Option<Group<'static>> {
        // The slot is not busy: a block bears its number.
        Packed::from_raw(self.group.load(Ordering::Relaxed)).map(Group::unpack)
    }

    /// Returns the group's cell and generation bits. The caller either holds a block that bears the number, or checks
    /// *afterwards* by [`holds`](Self::holds) that they are its group's. The cell is null in the slot of an inherited
    /// block.
    #[inline(always)]
    pub(crate) fn parts(&self) -> (*const Cell, u64) {
        // Acquire, partners of the Releases in `fill`: a thread that sees a part of the next group afterwards sees
        // the slot busy, or that group's.
        (self.cell.load(Ordering::Acquire), self.generation_bits.load(Ordering::Acquire))
    }

    #[inline(always)]
    pub(crate) fn number(&self) -> u16 {
        self.number.load(Ordering::Relaxed) as u16
    }

    /// Gives the slot to a group. This thread made the slot busy, or has it fresh.
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

    /// Takes the slot over for a group if its previous group is over.
    fn take_over(&self, group: Packed, number: u16) -> bool {
        let held = self.group.load(Ordering::Acquire);
        let over = held != BUSY && Packed::from_raw(held).is_some_and(is_over);
        // AcqRel: only one of two threads gets it, and it sees everything up to the end of the last owner.
        let taken = over
            && self.group.compare_exchange(held, BUSY, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if taken {
            self.fill(group, number);
        }
        taken
    }
}

/// Returns the slot of a number that a block bears.
#[inline(always)]
pub(crate) fn at(number: u16) -> &'static Slot {
    &SLOTS.0[number as usize]
}

/// The number of the group in each row, by the address of the row's cell.
static NUMBERS: Shadow<AtomicU16, 4> = Shadow::new();
/// The lowest fresh number, and in the upper half the lowest number in use from the upper end.
static FRESH: AtomicU64 = AtomicU64::new((COUNT as u64) << 32 | 1);
/// Pages that a fork wipes.
static WIPED: [AtomicBool; (COUNT / IN_PAGE) as usize] =
    [const { AtomicBool::new(false) }; (COUNT / IN_PAGE) as usize];
static PAUSING: AtomicU32 = AtomicU32::new(0);

/// The reason why a group has no slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Without {
    /// The group was destroyed.
    Gone,
    /// Another process charges it, or there is no memory for the number.
    Foreign,
    /// All numbers are taken by groups that are not over.
    Full,
}

/// Returns the slot of a group, and assigns one if it has none. Makes system calls only for the first group in a GiB
/// of cells, and for the first in a page of numbers of shared ledgers.
pub(crate) fn of(group: Group<'static>) -> Result<&'static Slot, Without> {
    known(group).map_or_else(|| give(group), Ok)
}

/// Returns the slot of a group that has one.
pub(crate) fn known(group: Group<'static>) -> Option<&'static Slot> {
    let number = NUMBERS.entry(cell(group)).map_or(0, |entry| entry.load(Ordering::Relaxed));
    (number != 0 && at(number).holds(group.pack())).then(|| at(number))
}

/// Returns the parent of a group. The row has it while the group holds units. If the row is free by now, the slot has
/// it, as long as no other group has its number. `None` if it never had a slot, and for a root.
pub(crate) fn parent_of(group: Group<'static>) -> Option<Group<'static>> {
    parent(group).or_else(|| remembered(group))
}

fn remembered(group: Group<'static>) -> Option<Group<'static>> {
    let slot = known(group)?;
    // Acquire, partner of the Release in `fill`: if this is the next group's parent, `holds` sees the slot busy or
    // that group's.
    let parent = PARENTS[usize::from(slot.number())].load(Ordering::Acquire);
    slot.holds(group.pack()).then(|| Packed::from_raw(parent).map(Group::unpack))?
}

/// Returns the parent of a group that exists or holds units: such a row keeps its ancestors' rows.
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
    // The root gets a number first, so that a group without one has an ancestor with one. The root has none if it is
    // another process's or no number is left.
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
    // The number of the row's last group. If another row has the number since, that row's group decides.
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
    // Two threads may each have assigned a number to one group. Both numbers are valid.
    entry.store(number, Ordering::Relaxed);
    Ok(number)
}

/// Like [`Shadow::make`], but makes no entry where system calls are forbidden.
pub(crate) fn make<const BITS: u32>(
    shadow: &Shadow<AtomicU16, BITS>,
    address: usize,
) -> Option<&'static AtomicU16> {
    if are_calls_forbidden() { shadow.entry(address) } else { shadow.make(address) }
}

/// Returns whether a group has no charge and can no longer be charged.
fn is_over(packed: Packed) -> bool {
    let group = Group::<'static>::unpack(packed);
    follow::read_held(group.table(), group.id(), |_| ()).is_none()
}

/// Takes a number that no group ever had; `None` if there is none left.
fn fresh(shared: bool) -> Result<Option<u16>, Without> {
    let take = |word: u64| {
        let (low, high) = (word as u32, (word >> 32) as u32);
        // Each page of slots is either wiped on fork or not.
        let first_wiped = if high == COUNT { COUNT / IN_PAGE } else { high / IN_PAGE };
        if shared {
            ((high - 1) / IN_PAGE > (low - 1) / IN_PAGE).then(|| word - (1 << 32))
        } else {
            (low < COUNT && low / IN_PAGE < first_wiped).then(|| word + 1)
        }
    };
    // Relaxed: no other data depends on the numbers.
    let Ok(word) = FRESH.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) else {
        return Ok(None);
    };
    if !shared {
        return Ok(Some(word as u16));
    }
    let number = (word >> 32) as u32 - 1;
    if wipe(number / IN_PAGE) { Ok(Some(number as u16)) } else { Err(Without::Foreign) }
}

/// Makes the kernel wipe a page of slots in forked children.
fn wipe(page: u32) -> bool {
    let wiped = &WIPED[page as usize];
    // Acquire, partner of the Release below: a thread that sees the flag knows that the kernel agreed.
    if wiped.load(Ordering::Acquire) {
        return true;
    }
    if are_calls_forbidden() {
        return false;
    }
    let start = &raw const SLOTS.0[(page * IN_PAGE) as usize];
    // SAFETY: the advice is about one page of a table of ours, which begins at a page. With larger pages the kernel
    // refuses a part of one; such machines have no critical sections, either.
    let done = unsafe {
        os::page_size() == PAGE && memory::advise(start as *mut u8, PAGE, Advice::WipedInChildren)
    };
    if done {
        wiped.store(true, Ordering::Release);
    }
    done
}

/// Finds a number of the same kind whose group is over, and takes it for another group.
fn look_through(shared: bool, group: Packed) -> Option<u16> {
    /// The number after the one that the last search found.
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
