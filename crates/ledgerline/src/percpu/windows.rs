//! Charges and uncharges in the column that the calling thread owns: finds the thread's slot (`thread_slots.rs`), and changes
//! the cell in a window (`owned.rs`).
//!
//! ```text
//! update(first, id, delta):
//!   thread slot = the one at the hash of my thread pointer
//!   thread slot.who is not my thread pointer:               fail
//!   thread slot.offset is beyond the ledger's columns:      fail     threads own none of them
//!   thread slot.owner.update(first + thread slot.offset, id, delta)
//! ```
//!
//! On x86-64 the windows are assembly, in functions that keep all registers but five (`windows/x86_64.rs`). So a caller
//! saves and restores no registers, which took as long as the rest. Elsewhere they are compiled from `Owner::update`.
//! `../README.md` describes what else was tried.

#[cfg(owned_windows)]
mod x86_64;

#[cfg(owned_windows)]
use super::thread_slots;

#[cfg(owned_windows)]
pub(crate) use x86_64::{put, put_packed, take};

#[cfg(all(test, owned_windows))]
pub(crate) use x86_64::registers_kept;

#[cfg(not(owned_windows))]
pub(crate) use compiled::{put, put_packed, take};

/// The result of a window whose sum stands.
const STANDS: u64 = 1;

/// The result of a window: [`STANDS`], or 0 if nothing was changed. Otherwise it is the stored sum, and the window is
/// still open, since some stealer asks for a cell.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told(u64);

impl Told {
    #[inline(always)]
    pub(crate) fn stands(self) -> bool {
        self.0 == STANDS
    }

    /// Settles a window of the calling thread whose sum did not stand at once: ends the window if it is open. `delta`
    /// is the amount that it added. Returns whether the sum stands after all.
    #[cfg(owned_windows)]
    #[cold]
    #[inline(never)]
    pub(crate) fn settle(self, delta: u64) -> bool {
        // The thread slot still belongs to this thread, which has not ended meanwhile.
        self.0 != 0
            && thread_slots::own()
                .is_some_and(|thread_slot| thread_slot.owner.settle_here(self.0, delta))
    }

    /// Returns `false`: a window whose sum did not stand has ended.
    #[cfg(not(owned_windows))]
    pub(crate) fn settle(self, _delta: u64) -> bool {
        false
    }
}

#[cfg(not(owned_windows))]
mod compiled {
    use super::{STANDS, Told};
    use crate::percpu::thread_slots;
    use crate::percpu::word::{self, Cell};
    use std::sync::atomic::Ordering;

    /// Takes `units <= STOCK_MAX` from the stock in the column that the calling thread owns. Changes nothing and
    /// returns `false` if the thread owns none yet, in a signal handler that interrupted a window, and in other modes.
    ///
    /// # Safety
    /// `first` is a row's cell in the first column of a ledger, and `id` is that of the charged group. `END` bytes
    /// before the next lower multiple of `ALIGNMENT` lies the end of the ledger's owned columns, from its first column.
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

    /// Puts `units <= STOCK_MAX` into the stock in the column that the calling thread owns. See [`take`].
    ///
    /// # Safety
    /// As for [`take`].
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

    /// Like [`put`], but for a guard: `packed` is the address of the cell and the id in one word. `units` may be any
    /// number; it fails if that is too large.
    ///
    /// # Safety
    /// As for [`take`].
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
    /// As for [`take`].
    #[inline(always)]
    unsafe fn update<const ALIGNMENT: usize, const END: usize>(
        first: *const Cell,
        id: u64,
        delta: u64,
        put: bool,
    ) -> bool {
        let Some(thread_slot) = thread_slots::own() else { return false };
        // SAFETY: the end lies there, by the caller.
        let end = unsafe {
            *first.map_addr(|address| address & !(ALIGNMENT - 1)).byte_sub(END).cast::<usize>()
        };
        // The end is 0 if threads own no columns, which is below every offset.
        let offset = thread_slot.offset.load(Ordering::Relaxed);
        offset < end
            // SAFETY: the row has a cell there, since the offset is that of a column that threads may own.
            && thread_slot.owner.update(unsafe { &*first.byte_add(offset) }, id, delta, put)
    }
}
