//! The allocator behind this library.

use crate::recorder::say::say;
use ledgerline_interpose::{Allocator, find};
use std::ffi::CStr;

/// The next allocator's functions.
pub(crate) static NEXT: Allocator = Allocator::unknown();

/// Returns whether the next allocator is known; looks it up on the first call.
#[inline(always)]
pub(crate) fn ready() -> bool {
    NEXT.look_up(|_| lacks("the next allocator lacks a function of malloc's family"))
}

/// Looks up a function in the libraries behind this one. The process cannot go on without it.
pub(crate) fn look_up(name: &CStr, lacking: &str) -> usize {
    match find(name) {
        0 => lacks(lacking),
        address => address,
    }
}

fn lacks(lacking: &str) -> ! {
    say(lacking);
    // SAFETY: ends the process.
    unsafe { libc::abort() }
}
