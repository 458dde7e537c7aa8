//! mmap and its family: memory that a program maps by itself, like Python's arenas, V8's heap and the JVM's.
//!
//! ```text
//! mmap(length):      charge(my row, length) if it is private and writable; next.mmap; enter the range
//! mprotect(range):   it becomes writable: charge the uncounted part; next.mprotect; note it
//! munmap(range):     next.munmap; take the range out; uncharge the counted part
//! ```
//!
//! Private memory counts if it was writable since its pages were last given back:
//!
//! | a private range                                        | counts |
//! |--------------------------------------------------------|--------|
//! | never was writable (a reservation, a file that is read) | no |
//! | is writable, whether it was touched or not             | yes |
//! | was writable, and is not any more                      | yes, until its pages are given back (`madvise`, `munmap`) |
//!
//! The tables of a ledger that the program embeds do not count: they are reserved as a whole and hardly touched, and
//! bear a mark ([`ledgerline::sparse`]). A shared mapping does not count, since it has no single owner. Items record
//! the amount of shared mappings and of files that are mapped for reading. Mappings of the allocator behind this
//! library are not seen: its blocks are charged one by one. Mappings that a program makes by its own system calls are
//! not seen either.
//!
//! A forked child has its parent's mappings, but none of them in its account: they were charged to its parent, which
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

/// Returns the slot to charge for a call; `None` if the call is passed on unseen.
fn accounted(caller: usize) -> Option<u32> {
    if !behind::is_started() || objects::is_beneath(caller) || Busy::is_entered() {
        return None;
    }
    let before = errno();
    let slot = alloc::owner(caller);
    set_errno(before);
    (slot != 0).then_some(slot)
}

/// Acts on the table; `None` in a signal handler that interrupted this thread during such an action. Keeps the `errno`
/// of the system call within.
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

/// Returns a sum over the pieces between two addresses.
fn sum(start: usize, end: usize, of: impl Fn(Range) -> usize) -> usize {
    with(|ranges| ranges.pieces(start, end).map(of).sum()).unwrap_or(0)
}

/// Returns how much of a slot's charge lies in a place that is about to be replaced.
fn in_place(slot: u32, start: usize, end: usize) -> usize {
    sum(start, end, |range| if range.slot == slot { range.counted() } else { 0 })
}

/// Takes ranges out whose charge the slot reuses for their replacement: up to `over`, which falls by that.
fn taken_over(slot: u32, over: &mut usize) -> impl FnMut(Range) {
    move |range| {
        let kept = if range.slot == slot { range.counted().min(*over) } else { 0 };
        *over -= kept;
        note(range.slot, range.kind, -(range.bytes() as i64));
        uncharge(range.slot, range.counted() - kept);
    }
}

/// Returns the pages that a call names, rounded like the kernel does.
fn pages(address: *mut c_void, length: usize) -> Option<(usize, usize)> {
    let start = address as usize & !(PAGE - 1);
    let end = (address as usize).checked_add(length)?.checked_next_multiple_of(PAGE)?;
    (start < end).then_some((start, end))
}

/// Returns the kind of a new mapping.
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

/// Adds to the owner's item for a kind.
fn note(slot: u32, kind: Kind, bytes: i64) {
    let of = match kind {
        Kind::Reserved | Kind::Sparse => return,
        Kind::Writable | Kind::Held | Kind::Dropped => Item::Private,
        Kind::Shared => Item::Shared,
        Kind::File => Item::File,
    };
    process::note(slot, of, bytes);
}

/// Counts a range that was entered.
fn entered(range: Range) {
    note(range.slot, range.kind, range.bytes() as i64);
}

/// Uncounts a range that was removed.
fn gone(range: Range) {
    note(range.slot, range.kind, -(range.bytes() as i64));
    uncharge(range.slot, range.counted());
}

/// Returns the new state of a piece whose pages are given back. A writable piece may be written again.
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

/// Forgets a range that the table has no room for. It could never be taken out again, so it does not stay charged.
fn forget(range: Range) {
    gone(range);
    process::note(range.slot, Item::Forgotten, range.bytes() as i64);
}

/// Charges a slot for memory that becomes writable; `false`, with `errno`, if a limit refuses.
fn charge(slot: u32, bytes: usize) -> bool {
    let before = errno();
    if bytes > 0 {
        if !charges::mapping(slot, bytes) {
            set_errno(libc::ENOMEM);
            return false;
        }
        // A mapping is no block and is returned in pieces, so it does not count as a held charge.
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
        // As above. A charge of zero is always granted to an existing group, and these exist.
        let _ = group.charge_units(0);
        group.uncharge_units(bytes as u64);
        set_errno(before);
    }
}

/// # Safety
/// As for C's `mmap`.
pub(crate) unsafe extern "C" fn mmap(
    address: *mut c_void,
    length: usize,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: i64,
    caller: usize,
) -> *mut c_void {
    // SAFETY: the caller's contract, passed on.
    let next = || unsafe { behind::mmap(address, length, protection, flags, file, offset) };
    let Some((slot, bytes)) = accounted(caller).zip(length.checked_next_multiple_of(PAGE)) else {
        return next();
    };
    let kind = kind(protection, flags, offset);
    let counted = if kind.is_counted() { bytes } else { 0 };
    let fixed = flags & libc::MAP_FIXED != 0;
    // The old content of the place goes. Its charge is reused.
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
        // Another thread may have changed the place in between.
        charges::correct_mapping(slot, counted - left, counted);
    };
    // If the place is taken, the table must keep entries that another thread makes there meanwhile.
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
/// As for C's `munmap`.
pub(crate) unsafe extern "C" fn munmap(
    address: *mut c_void,
    length: usize,
    caller: usize,
) -> c_int {
    // SAFETY: the caller's contract, passed on.
    let next = || unsafe { behind::munmap(address, length) };
    let Some((_, (start, end))) = accounted(caller).zip(pages(address, length)) else {
        return next();
    };
    // The table is held meanwhile: another thread's next mapping there is entered afterwards.
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
/// As for C's `mprotect`.
pub(crate) unsafe extern "C" fn mprotect(
    address: *mut c_void,
    length: usize,
    protection: c_int,
    caller: usize,
) -> c_int {
    protect(address, length, protection, caller, || {
        // SAFETY: the caller's contract, passed on.
        unsafe { behind::mprotect(address, length, protection) }
    })
}

/// # Safety
/// As for glibc's `pkey_mprotect`.
pub(crate) unsafe extern "C" fn pkey_mprotect(
    address: *mut c_void,
    length: usize,
    protection: c_int,
    key: c_int,
    caller: usize,
) -> c_int {
    protect(address, length, protection, caller, || {
        // SAFETY: the caller's contract, passed on.
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
        // Another thread may have changed the place in between.
        charges::correct_mapping(slot, more, became);
        result
    });
    result.unwrap_or_else(next)
}

/// # Safety
/// As for C's `madvise`.
pub(crate) unsafe extern "C" fn madvise(
    address: *mut c_void,
    length: usize,
    advice: c_int,
    caller: usize,
) -> c_int {
    // SAFETY: the caller's contract, passed on.
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
/// As for C's `sbrk`.
pub(crate) unsafe extern "C" fn sbrk(increment: isize, caller: usize) -> *mut c_void {
    // SAFETY: the caller's contract, passed on.
    let next = || unsafe { behind::sbrk(increment) };
    moved_break(increment, caller, next, |at| at != libc::MAP_FAILED).unwrap_or(libc::MAP_FAILED)
}

/// # Safety
/// As for C's `brk`.
pub(crate) unsafe extern "C" fn brk(end: *mut c_void, caller: usize) -> c_int {
    // SAFETY: a query for the break.
    let now = unsafe { behind::sbrk(0) } as isize;
    // SAFETY: the caller's contract, passed on.
    let next = || unsafe { behind::brk(end) };
    moved_break(end as isize - now, caller, next, |result| result == 0).unwrap_or(-1)
}

/// Moves the program's break; `None`, with `errno`, if a limit refuses. The program's returns count only up to the
/// amount that it took itself: the rest is the allocator's.
fn moved_break<T: Copy>(
    by: isize,
    caller: usize,
    next: impl Fn() -> T,
    is_done: impl Fn(T) -> bool,
) -> Option<T> {
    let Some(_) = accounted(caller).filter(|_| by != 0) else { return Some(next()) };
    // Another thread may return it.
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
        // This update always succeeds.
        let _ = STATE.program_break.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken);
        uncharge(slot, less);
        process::note(slot, Item::Private, -(less as i64));
    }
    set_errno(before);
    Some(result)
}
