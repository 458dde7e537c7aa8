//! mremap: a stretch moves, grows or shrinks.
//!
//! ```text
//! old:  | piece | piece | piece |........|      pieces of several kinds may be one mapping of the kernel's
//! new:  | piece | piece | piece | growth |      the growth is as writable as the piece before it
//!
//! it shrinks:     everything behind the new end is unmapped in place, whatever its kind
//! it moves:       its pieces move unchanged, with their charges
//! MREMAP_DONTUNMAP: the pages go, and the old stretch stays without them
//! ```

use super::{PAGE, accounted};
use super::{charge, entered, given_back, gone, in_place, pages, taken_over, uncharge, with};
use crate::behind;
use crate::charges;
use crate::filter;
use crate::ranges::{Kind, Range, Ranges};
use ledgerline_interpose::{errno, set_errno};
use std::ffi::{c_int, c_void};

/// # Safety
/// As for C's `mremap`.
pub(crate) unsafe extern "C" fn mremap(
    address: *mut c_void,
    old: usize,
    new: usize,
    flags: c_int,
    to: *mut c_void,
    caller: usize,
) -> *mut c_void {
    // SAFETY: the caller's contract, passed on.
    let next = || unsafe { behind::mremap(address, old, new, flags, to) };
    let whole = accounted(caller).zip(pages(address, old)).zip(new.checked_next_multiple_of(PAGE));
    let Some(((_, (start, end)), bytes)) = whole else { return next() };
    let along = end.min(start.saturating_add(bytes));
    let stays = flags & libc::MREMAP_DONTUNMAP != 0;
    let (mut last, mut counted) = (None, 0);
    with(|ranges| {
        for piece in ranges.pieces(start, along) {
            counted += piece.counted();
            last = Some(piece);
        }
    });
    // No piece is known, or all of the stretch is unmapped.
    let Some(last) = last else { return next() };
    let slot = last.slot;
    let growth = bytes - (along - start);
    let kind = grown(last.kind);
    let asked = if kind.is_counted() { growth } else { 0 } + if stays { counted } else { 0 };
    let over = match flags & libc::MREMAP_FIXED {
        0 => 0,
        _ => in_place(slot, to as usize, (to as usize).saturating_add(bytes)).min(asked),
    };
    if !charge(slot, asked - over) {
        return libc::MAP_FAILED;
    }
    let moved = with(|ranges| {
        let at = next();
        if at == libc::MAP_FAILED {
            if flags & libc::MREMAP_FIXED != 0 {
                forget_unmapped(ranges, to as usize, (to as usize).saturating_add(bytes));
            }
            return at;
        }
        let there = at as usize;
        let mut left = over;
        if there != start {
            ranges.cut(there, there + bytes, taken_over(slot, &mut left));
        }
        if !stays {
            ranges.cut(along, end, gone);
        }
        let mut became = 0;
        if there != start {
            became += go_along(ranges, (start, along), there, stays.then_some(slot));
        }
        if growth > 0 {
            let range = Range { start: there + (along - start), end: there + bytes, slot, kind };
            ranges.insert(range, gone);
            entered(range);
            became += range.counted();
        }
        // Another thread may have changed the place in between.
        charges::correct_mapping(slot, asked - left, became);
        at
    });
    let moved = moved.unwrap_or_else(next);
    if moved == libc::MAP_FAILED {
        uncharge(slot, asked - over);
    }
    moved
}

/// Takes out the pieces that a failed call has unmapped. Kernels before 6.17 empty the destination before they check
/// whether the stretch is one mapping.
#[cold]
fn forget_unmapped(ranges: &mut Ranges<'_>, start: usize, end: usize) {
    // Unchecked pieces stay charged: the filter might kill the program for this library's call.
    if filter::is_on() {
        return;
    }
    let before = errno();
    let mut from = start;
    while let Some(piece) = ranges.first(from, end) {
        from = piece.end;
        let mut resident = 0;
        // SAFETY: the kernel reports whether one page is mapped, and writes a byte.
        let is_mapped =
            unsafe { libc::mincore(piece.start as *mut c_void, PAGE, &raw mut resident) } == 0;
        if !is_mapped && errno() == libc::ENOMEM {
            ranges.cut(piece.start, piece.end, gone);
        }
    }
    set_errno(before);
}

/// Returns the kind of the growth behind a piece: as writable as that piece, and never written.
fn grown(behind: Kind) -> Kind {
    match behind {
        Kind::Writable | Kind::Dropped => Kind::Writable,
        Kind::Held | Kind::Reserved => Kind::Reserved,
        other => other,
    }
}

/// Enters the pieces of an old stretch at its new place. If the old stretch `stays`, the new pieces are that slot's,
/// and the old ones have no pages any more. Returns the bytes of new pieces that count.
fn go_along(
    ranges: &mut Ranges<'_>,
    (start, end): (usize, usize),
    there: usize,
    stays: Option<u32>,
) -> usize {
    let (mut from, mut counted) = (start, 0);
    while let Some(piece) = ranges.first(from, end) {
        from = piece.end;
        let moved = Range {
            start: there + (piece.start - start),
            end: there + (piece.end - start),
            ..piece
        };
        match stays {
            // Neither its charge nor its items change.
            None => {
                ranges.cut(piece.start, piece.end, |_| {});
                ranges.insert(moved, |_| {});
            }
            Some(slot) => {
                let new = Range { slot, ..moved };
                ranges.insert(new, |_| {});
                entered(new);
                counted += new.counted();
            }
        }
    }
    if stays.is_some() {
        ranges.change(start, end, given_back);
    }
    counted
}
