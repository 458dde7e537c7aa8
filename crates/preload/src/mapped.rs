//! mmap and its family: memory that a program maps by itself, as Python's arenas, V8's heap and the JVM's are.
//!
//! ```text
//! mmap(length):      charge(my row, length) if it is private and writable; next.mmap; enter the range
//! mprotect(range):   it becomes writable: charge what was not; next.mprotect; note it
//! munmap(range):     next.munmap; take the range out; uncharge what was counted
//! ```
//!
//! What counts is private memory that was writable since its pages were last given back:
//!
//! | a private range                                        | counts |
//! |--------------------------------------------------------|--------|
//! | never was writable (a reservation, a file that is read) | no     |
//! | is writable, whether it was touched or not              | yes    |
//! | was writable, and is not any more                       | yes, until its pages are given back (`madvise`, `munmap`) |
//!
//! The tables of a ledger that the program embeds do not count: they are reserved as a whole and hardly touched, and bear
//! a mark ([`ledgerline::sparse`]). A shared mapping does not count, since nobody could say whose it is; items tell how much there is of it, and of
//! files that are mapped to be read. What the allocator behind this library maps is not seen: its blocks are
//! charged one by one. Nor is what a program maps by a system call of its own.
//!
//! A forked child has its parent's mappings and none of them in its account: they were charged to its parent, which
//! still has them.

mod moved;

use crate::alloc;
use crate::behind;
use crate::charges;
use crate::objects;
use crate::process::{self, STATE};
use crate::ranges::{Kind, Range, Ranges};
use crate::thread::Busy;
use ledgerline::sparse;
use ledgerline_interpose::{errno, set_errno};
use ledgerline_protocol::Item;
pub(crate) use moved::mremap;
use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering;

const PAGE: usize = 4096;

/// The slot to charge for a call; `None` if it is passed on unseen.
fn accounted(caller: usize) -> Option<u32> {
    if !behind::is_started() || objects::is_beneath(caller) || Busy::is_entered() {
        return None;
    }
    let before = errno();
    let slot = alloc::owner(caller);
    set_errno(before);
    (slot != 0).then_some(slot)
}

/// Does something with the table; `None` in a signal handler that interrupted this thread while it did. What the system
/// call within says of an error is the program's to see.
fn with<T>(act: impl FnOnce(&mut Ranges<'_>) -> T) -> Option<T> {
    let _busy = Busy::enter()?;
    let before = errno();
    let mut ranges = STATE.mappings.hold(forget);
    set_errno(before);
    let done = act(&mut ranges);
    let after = errno();
    drop(ranges);
    set_errno(after);
    Some(done)
}

/// A sum over what lies between two addresses.
fn sum(start: usize, end: usize, of: impl Fn(Range) -> usize) -> usize {
    with(|ranges| ranges.pieces(start, end).map(of).sum()).unwrap_or(0)
}

/// How much of what a slot is charged for lies in a place that is about to be another's.
fn in_place(slot: u32, start: usize, end: usize) -> usize {
    sum(start, end, |range| if range.slot == slot { range.counted() } else { 0 })
}

/// What is no more, where its slot's charge is taken over for what comes in its place: up to `over`, which falls by that.
fn taken_over(slot: u32, over: &mut usize) -> impl FnMut(Range) {
    move |range| {
        let kept = if range.slot == slot { range.counted().min(*over) } else { 0 };
        *over -= kept;
        note(range.slot, range.kind, -(range.bytes() as i64));
        uncharge(range.slot, range.counted() - kept);
    }
}

/// The pages that a call names, as the kernel rounds them.
fn pages(address: *mut c_void, length: usize) -> Option<(usize, usize)> {
    let start = address as usize & !(PAGE - 1);
    let end = (address as usize).checked_add(length)?.checked_next_multiple_of(PAGE)?;
    (start < end).then_some((start, end))
}

/// What a new mapping is.
fn kind(protection: c_int, flags: c_int, offset: i64) -> Kind {
    if flags & libc::MAP_ANONYMOUS != 0 && offset == sparse::MARK {
        Kind::Sparse
    // The last two bits of the type: shared, or shared with its flags checked.
    } else if flags & libc::MAP_TYPE != libc::MAP_PRIVATE {
        Kind::Shared
    } else if protection & libc::PROT_WRITE != 0 {
        Kind::Writable
    } else if flags & libc::MAP_ANONYMOUS == 0 {
        Kind::File
    } else {
        Kind::Reserved
    }
}

/// Notes in the items of an owner what it has of a kind.
fn note(slot: u32, kind: Kind, bytes: i64) {
    let of = match kind {
        Kind::Reserved | Kind::Sparse => return,
        Kind::Writable | Kind::Held | Kind::Dropped => Item::Private,
        Kind::Shared => Item::Shared,
        Kind::File => Item::File,
    };
    process::note(slot, of, bytes);
}

/// What is entered from now on.
fn entered(range: Range) {
    note(range.slot, range.kind, range.bytes() as i64);
}

/// What is no more.
fn gone(range: Range) {
    note(range.slot, range.kind, -(range.bytes() as i64));
    uncharge(range.slot, range.counted());
}

/// What becomes of a piece whose pages are given back: what is writable may be written again.
fn given_back(range: Range) -> Option<Range> {
    match range.kind {
        Kind::Writable => Some(Range { kind: Kind::Dropped, ..range }),
        Kind::Held => {
            gone(range);
            Some(Range { kind: Kind::Reserved, ..range })
        }
        _ => None,
    }
}

/// What the table has no room for. Nobody would take it out again, so it does not stay charged.
fn forget(range: Range) {
    gone(range);
    process::note(range.slot, Item::Forgotten, range.bytes() as i64);
}

/// Charges a slot for what becomes writable; `false`, with `errno`, if a limit says no.
fn charge(slot: u32, bytes: usize) -> bool {
    let before = errno();
    if bytes > 0 {
        if !charges::mapping(slot, bytes) {
            set_errno(libc::ENOMEM);
            return false;
        }
        // A mapping is no block, and is given back by pieces: it counts as none that is held.
        if let Some(group) = process::group(slot) {
            group.uncharge_units(0);
        }
    }
    set_errno(before);
    true
}

/// Undoes a charge, or a part of it.
fn uncharge(slot: u32, bytes: usize) {
    if bytes > 0
        && let Some(group) = process::group(slot)
    {
        let before = errno();
        // (As above. Nothing is always granted to a group that exists, and these do.)
        let _ = group.charge_units(0);
        group.uncharge_units(bytes as u64);
        set_errno(before);
    }
}

/// # Safety
/// As C's `mmap`.
pub(crate) unsafe extern "C" fn mmap(
    address: *mut c_void,
    length: usize,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: i64,
    caller: usize,
) -> *mut c_void {
    // SAFETY: handed on.
    let next = || unsafe { behind::mmap(address, length, protection, flags, file, offset) };
    let Some((slot, bytes)) = accounted(caller).zip(length.checked_next_multiple_of(PAGE)) else {
        return next();
    };
    let kind = kind(protection, flags, offset);
    let counted = if kind.is_counted() { bytes } else { 0 };
    let fixed = flags & libc::MAP_FIXED != 0;
    // What lies in the place goes. Its charge is not asked for twice.
    let place = (address as usize, (address as usize).saturating_add(bytes));
    let over = if fixed { in_place(slot, place.0, place.1).min(counted) } else { 0 };
    if !charge(slot, counted - over) {
        return libc::MAP_FAILED;
    }
    let enter = |ranges: &mut Ranges<'_>, at: *mut c_void| {
        let start = at as usize;
        let range = Range { start, end: start + bytes, slot, kind };
        let mut left = over;
        ranges.insert(range, taken_over(slot, &mut left));
        entered(range);
        // Another thread may have been at it in between.
        charges::correct_mapping(slot, counted - left, counted);
    };
    // Of a place that is taken the table must not forget what another thread enters there meanwhile.
    let mapped = if fixed {
        with(|ranges| {
            let at = next();
            (at != libc::MAP_FAILED).then(|| enter(ranges, at));
            at
        })
        .unwrap_or_else(next)
    } else {
        let at = next();
        (at != libc::MAP_FAILED).then(|| with(|ranges| enter(ranges, at)));
        at
    };
    if mapped == libc::MAP_FAILED {
        uncharge(slot, counted - over);
    }
    mapped
}

/// # Safety
/// As C's `munmap`.
pub(crate) unsafe extern "C" fn munmap(
    address: *mut c_void,
    length: usize,
    caller: usize,
) -> c_int {
    // SAFETY: handed on.
    let next = || unsafe { behind::munmap(address, length) };
    let Some((_, (start, end))) = accounted(caller).zip(pages(address, length)) else {
        return next();
    };
    // The table is held meanwhile: what another thread maps there next is entered afterwards.
    let unmapped = with(|ranges| {
        let result = next();
        if result == 0 {
            ranges.cut(start, end, gone);
        }
        result
    });
    unmapped.unwrap_or_else(next)
}

/// # Safety
/// As C's `mprotect`.
pub(crate) unsafe extern "C" fn mprotect(
    address: *mut c_void,
    length: usize,
    protection: c_int,
    caller: usize,
) -> c_int {
    protect(address, length, protection, caller, || {
        // SAFETY: handed on.
        unsafe { behind::mprotect(address, length, protection) }
    })
}

/// # Safety
/// As glibc's `pkey_mprotect`.
pub(crate) unsafe extern "C" fn pkey_mprotect(
    address: *mut c_void,
    length: usize,
    protection: c_int,
    key: c_int,
    caller: usize,
) -> c_int {
    protect(address, length, protection, caller, || {
        // SAFETY: handed on.
        unsafe { behind::pkey_mprotect(address, length, protection, key) }
    })
}

fn protect(
    address: *mut c_void,
    length: usize,
    protection: c_int,
    caller: usize,
    next: impl Fn() -> c_int,
) -> c_int {
    let Some((slot, (start, end))) = accounted(caller).zip(pages(address, length)) else {
        return next();
    };
    let writable = protection & libc::PROT_WRITE != 0;
    let new = |range: Range| match range.kind {
        Kind::Reserved | Kind::File => range.bytes(),
        _ => 0,
    };
    let more = if writable { sum(start, end, new) } else { 0 };
    if !charge(slot, more) {
        return -1;
    }
    let result = with(|ranges| {
        let result = next();
        if result != 0 {
            uncharge(slot, more);
            return result;
        }
        let mut became = 0;
        ranges.change(start, end, |range| {
            let other = match (range.kind, writable) {
                (Kind::Reserved | Kind::File, true) => {
                    became += range.bytes();
                    Range { slot, kind: Kind::Writable, ..range }
                }
                (Kind::Held | Kind::Dropped, true) => Range { kind: Kind::Writable, ..range },
                (Kind::Writable, false) => Range { kind: Kind::Held, ..range },
                (Kind::Dropped, false) => {
                    gone(range);
                    return Some(Range { kind: Kind::Reserved, ..range });
                }
                _ => return None,
            };
            note(range.slot, range.kind, -(range.bytes() as i64));
            entered(other);
            Some(other)
        });
        // Another thread may have been at it in between.
        charges::correct_mapping(slot, more, became);
        result
    });
    result.unwrap_or_else(next)
}

/// # Safety
/// As C's `madvise`.
pub(crate) unsafe extern "C" fn madvise(
    address: *mut c_void,
    length: usize,
    advice: c_int,
    caller: usize,
) -> c_int {
    // SAFETY: handed on.
    let next = || unsafe { behind::madvise(address, length, advice) };
    let gives_back = matches!(advice, libc::MADV_DONTNEED | libc::MADV_FREE | libc::MADV_REMOVE);
    if !gives_back {
        return next();
    }
    let Some((_, (start, end))) = accounted(caller).zip(pages(address, length)) else {
        return next();
    };
    let advised = with(|ranges| {
        let result = next();
        if result == 0 {
            ranges.give_back(start, end, given_back);
        }
        result
    });
    advised.unwrap_or_else(next)
}

/// # Safety
/// As C's `sbrk`.
pub(crate) unsafe extern "C" fn sbrk(increment: isize, caller: usize) -> *mut c_void {
    // SAFETY: handed on.
    let next = || unsafe { behind::sbrk(increment) };
    moved_break(increment, caller, next, |at| at != libc::MAP_FAILED).unwrap_or(libc::MAP_FAILED)
}

/// # Safety
/// As C's `brk`.
pub(crate) unsafe extern "C" fn brk(end: *mut c_void, caller: usize) -> c_int {
    // SAFETY: asks where the break is.
    let now = unsafe { behind::sbrk(0) } as isize;
    // SAFETY: handed on.
    let next = || unsafe { behind::brk(end) };
    moved_break(end as isize - now, caller, next, |result| result == 0).unwrap_or(-1)
}

/// Moves the program's break; `None`, with `errno`, if a limit says no. What the program took there it may give
/// back, and no more: the rest is the allocator's.
fn moved_break<T: Copy>(
    by: isize,
    caller: usize,
    next: impl Fn() -> T,
    is_done: impl Fn(T) -> bool,
) -> Option<T> {
    let Some(_) = accounted(caller).filter(|_| by != 0) else { return Some(next()) };
    // Whoever gives it back need not be the thread that took it.
    let slot = process::OWN;
    let more = usize::try_from(by).unwrap_or(0);
    if !charge(slot, more) {
        return None;
    }
    let result = next();
    let before = errno();
    if !is_done(result) {
        uncharge(slot, more);
    } else if more > 0 {
        STATE.program_break.fetch_add(more, Ordering::Relaxed);
        process::note(slot, Item::Private, by as i64);
    } else {
        let mut less = 0;
        let taken = |held: usize| {
            less = held.min(by.unsigned_abs());
            Some(held - less)
        };
        // (It always succeeds.)
        let _ = STATE.program_break.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken);
        uncharge(slot, less);
        process::note(slot, Item::Private, -(less as i64));
    }
    set_errno(before);
    Some(result)
}
