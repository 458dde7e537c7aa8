//! Slots: the numbers by which blocks name their owners. A group gets one at its first block.
//!
//! `SLOTS` has a word for each number: the group's packed handle. A free finds its group there, and an allocation sees
//! there whether the number that its thread remembers is still the group's.
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
//! All of it is lock-free, so a fork finds no step half done that matters: at worst a fresh number is lost.

use crate::group::Group;
use crate::shadow::Shadow;
use crate::table::attached;
use crate::table::follow;
use crate::table::handle::Packed;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// Zero is nobody's.
const COUNT: u32 = 1 << 16;
const PAGE: usize = 4096;
const IN_PAGE: u32 = (PAGE / size_of::<AtomicU64>()) as u32;
/// After a look through all slots in vain, so many requests for a number are refused at once.
const PAUSE: u32 = 256;

#[repr(C, align(4096))]
struct Table([AtomicU64; COUNT as usize]);

static SLOTS: Table = Table([const { AtomicU64::new(0) }; COUNT as usize]);
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
pub(super) enum Without {
    /// It was destroyed.
    Gone,
    /// Another process charges it, or there is no memory for the number.
    Foreign,
    /// All numbers are taken by groups that are not over.
    Full,
}

/// Whether a slot is the group's.
#[inline(always)]
pub(super) fn holds(slot: u32, group: Packed) -> bool {
    // Relaxed, here and in `group`: whoever has a block, or charged the group, has the word from whoever wrote it.
    SLOTS.0[slot as u16 as usize].load(Ordering::Relaxed) == group.raw()
}

/// The group of a slot that a block bears; `None` for one that was inherited.
#[inline(always)]
pub(super) fn group(slot: u16) -> Option<Packed> {
    Packed::from_raw(SLOTS.0[slot as usize].load(Ordering::Relaxed))
}

/// The slot of a group, which gets one if it has none. Makes no system call but for the first group in a GiB of cells,
/// and for the first in a page of numbers of shared ledgers.
pub(super) fn of(group: Group<'static>) -> Result<u16, Without> {
    let cell = group.pack().unpack().cell.addr().get();
    let number = NUMBERS.entry(cell).map_or(0, |entry| entry.load(Ordering::Relaxed));
    if number != 0 && holds(u32::from(number), group.pack()) {
        return Ok(number);
    }
    give(group, cell)
}

#[cold]
fn give(group: Group<'static>, cell: usize) -> Result<u16, Without> {
    let (table, packed) = (group.table(), group.pack());
    if !group.exists() {
        return Err(Without::Gone);
    }
    let shared = table.is_shared();
    if shared && !(attached::is_here() && table.is_mine(group.id().index())) {
        return Err(Without::Foreign);
    }
    let entry = make(&NUMBERS, cell).ok_or(Without::Foreign)?;
    let last = entry.load(Ordering::Relaxed);
    let take_over = |number: u16| {
        let slot = &SLOTS.0[number as usize];
        let held = slot.load(Ordering::Relaxed);
        let over = Packed::from_raw(held).is_some_and(is_over);
        // AcqRel: of two threads one gets it, and sees all that the last owner's end was.
        let relaxed = Ordering::Relaxed;
        over && slot.compare_exchange(held, packed.raw(), Ordering::AcqRel, relaxed).is_ok()
    };
    // The number of the row's last group. (If it became another row's since, that row's group decides.)
    if last != 0 && is_of_row(last, cell) && (take_over(last) || holds(u32::from(last), packed)) {
        return Ok(last);
    }
    let number = match fresh(shared)? {
        Some(number) => {
            SLOTS.0[number as usize].store(packed.raw(), Ordering::Release);
            number
        }
        None => look_through(shared, take_over).ok_or(Without::Full)?,
    };
    // (Two threads may have got a number each for one group. Either names it.)
    entry.store(number, Ordering::Relaxed);
    Ok(number)
}

/// As [`Shadow::make`], where system calls are allowed.
pub(super) fn make<const BITS: u32>(
    shadow: &Shadow<AtomicU16, BITS>,
    address: usize,
) -> Option<&'static AtomicU16> {
    if crate::sync::are_calls_forbidden() { shadow.entry(address) } else { shadow.make(address) }
}

fn is_of_row(number: u16, cell: usize) -> bool {
    group(number).is_some_and(|held| held.unpack().cell.addr().get() == cell)
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
    if crate::sync::are_calls_forbidden() {
        return false;
    }
    let start = &raw const SLOTS.0[(page * IN_PAGE) as usize];
    // SAFETY: the advice is about one page of a table of ours, which begins at a page. (Where pages are larger, the
    // kernel refuses a part of one. There are no sections there, either.)
    let done = unsafe {
        libc::sysconf(libc::_SC_PAGESIZE) == PAGE as libc::c_long
            && libc::madvise(start as *mut _, PAGE, libc::MADV_WIPEONFORK) == 0
    };
    if done {
        wiped.store(true, Ordering::Release);
    }
    done
}

/// A number whose group is over, among those of the kind.
fn look_through(shared: bool, take_over: impl Fn(u16) -> bool) -> Option<u16> {
    /// Where the last look ended.
    static CURSOR: AtomicU32 = AtomicU32::new(0);
    let pause = |left: u32| left.checked_sub(1);
    if PAUSING.fetch_update(Ordering::Relaxed, Ordering::Relaxed, pause).is_ok() {
        return None;
    }
    let word = FRESH.load(Ordering::Relaxed);
    let (first, end) = if shared { ((word >> 32) as u32, COUNT) } else { (1, word as u32) };
    let start = CURSOR.load(Ordering::Relaxed).clamp(first, end);
    let found = (start..end).chain(first..start).find(|&number| take_over(number as u16));
    match found {
        Some(number) => CURSOR.store(number + 1, Ordering::Relaxed),
        None => PAUSING.store(PAUSE, Ordering::Relaxed),
    }
    found.map(|number| number as u16)
}
