//! A charge, or its return, in the column that the calling thread owns: finds the thread's seat (`seats.rs`), and changes
//! the cell in a window (`owned.rs`).
//!
//! ```text
//! update(first, id, delta):
//!   seat = the one at the hash of my thread pointer
//!   seat.who is not my thread pointer:               fail
//!   seat.offset is beyond the ledger's columns:      fail     threads own none of them
//!   seat.owner.update(first + seat.offset, id, delta)
//! ```
//!
//! On x86-64 the windows are assembly, in functions that keep all registers but five (`windows/x86_64.rs`). So a caller
//! saves and restores nothing, which took as long as the rest. Elsewhere the compiler makes them of `Owner::update`.
//! (`../README.md` has what else was tried.)

#[cfg(owned_windows)]
mod x86_64;

#[cfg(owned_windows)]
use super::seats;

#[cfg(owned_windows)]
pub(crate) use x86_64::{put, put_packed, take};

#[cfg(all(test, owned_windows))]
pub(crate) use x86_64::registers_kept;

#[cfg(not(owned_windows))]
pub(crate) use compiled::{put, put_packed, take};

/// What a window says when its sum stands.
const STANDS: u64 = 1;

/// What a window told: [`STANDS`]; 0 if nothing was changed; otherwise the sum that it stored, and the window is open, since
/// some taker asks for a cell.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told(u64);

impl Told {
    #[inline(always)]
    pub(crate) fn stands(self) -> bool {
        self.0 == STANDS
    }

    /// For a window of the calling thread that did not stand, with what it was to add: ends it if it is open. Says whether
    /// the sum stands after all.
    #[cfg(owned_windows)]
    #[cold]
    #[inline(never)]
    pub(crate) fn settle(self, delta: u64) -> bool {
        // (The seat is still this thread's: it ended nothing meanwhile.)
        self.0 != 0 && seats::own().is_some_and(|seat| seat.owner.settle_here(self.0, delta))
    }

    /// For a window that did not stand: it has ended.
    #[cfg(not(owned_windows))]
    pub(crate) fn settle(self, _delta: u64) -> bool {
        false
    }
}

#[cfg(not(owned_windows))]
mod compiled {
    use super::{STANDS, Told};
    use crate::percpu::seats;
    use crate::percpu::word::{self, Cell};
    use std::sync::atomic::Ordering;

    /// Takes `units <= STOCK_MAX` from the stock in the column that the calling thread owns; `false`, and nothing is
    /// changed, if it owns none (yet), in a signal handler that interrupted a window, and in other modes.
    ///
    /// # Safety
    /// `first` is a row's cell in the first column of a ledger, and `id` that of the group that is charged. `END` bytes
    /// before the next lower multiple of `ALIGNMENT` it says where the ledger's owned columns end, from its first.
    #[cold]
    #[inline(never)]
    pub(crate) unsafe fn take<const ALIGNMENT: usize, const END: usize>(
        first: *const Cell,
        id: u64,
        units: u64,
    ) -> bool {
        // SAFETY: as the caller says.
        unsafe { update::<ALIGNMENT, END>(first, id, word::CHARGE.wrapping_sub(units), false) }
    }

    /// Puts `units <= STOCK_MAX` into the stock in the column that the calling thread owns; see [`take`].
    ///
    /// # Safety
    /// As [`take`].
    #[cold]
    #[inline(never)]
    pub(crate) unsafe fn put<const ALIGNMENT: usize, const END: usize>(
        first: *const Cell,
        id: u64,
        units: u64,
    ) -> bool {
        // SAFETY: as the caller says.
        unsafe { update::<ALIGNMENT, END>(first, id, word::UNCHARGE + units, true) }
    }

    /// As [`put`], of a guard: `packed` is the address of the cell and the id in one word, and `units` may be any number
    /// (then it fails).
    ///
    /// # Safety
    /// As [`take`].
    #[cold]
    #[inline(never)]
    pub(crate) unsafe fn put_packed<const ALIGNMENT: usize, const END: usize>(
        packed: u64,
        units: u64,
    ) -> Told {
        let id = word::empty(word::generation(packed));
        let first = std::ptr::with_exposed_provenance((packed ^ id) as usize);
        let stands = units <= word::STOCK_MAX
            // SAFETY: as the caller says.
            && unsafe { update::<ALIGNMENT, END>(first, id, word::UNCHARGE + units, true) };
        Told(if stands { STANDS } else { 0 })
    }

    /// # Safety
    /// As [`take`].
    #[inline(always)]
    unsafe fn update<const ALIGNMENT: usize, const END: usize>(
        first: *const Cell,
        id: u64,
        delta: u64,
        put: bool,
    ) -> bool {
        let Some(seat) = seats::own() else { return false };
        // SAFETY: it is said there.
        let end = unsafe {
            *first.map_addr(|address| address & !(ALIGNMENT - 1)).byte_sub(END).cast::<usize>()
        };
        // (0 where threads own no columns, which is below every offset.)
        let offset = seat.offset.load(Ordering::Relaxed);
        offset < end
            // SAFETY: the row has a cell there: the offset is that of a column that threads may own.
            && seat.owner.update(unsafe { &*first.byte_add(offset) }, id, delta, put)
    }
}
