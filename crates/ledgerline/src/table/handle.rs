//! A handle: the address of a group's cell, and the generation that distinguishes the row's successive groups. A group
//! keeps them in two words, a charge in one.
//!
//! ```text
//! Group    cell: address of the row's cell, first column      generation bits: generation << 48
//!
//! Packed    63          48 47                                          0
//!          +--------------+---------------------------------------------+
//!          |  generation  |  address of the row's cell, first column    |
//!          +--------------+---------------------------------------------+
//! ```
//!
//! A [`Group`](crate::Group) keeps both apart, ready for the section that charges: a loop over many groups does nothing
//! else with a handle. A [`Charge`](crate::Charge) packs them into one word beside its units, so that it has two words and
//! travels in registers. With a guard of three words, the compiler writes it in halves and reads it as one, which a
//! processor's store buffer does not forward; that alone took longer than the charge.
//!
//! The first column begins at a multiple of [`ALIGNMENT`], and its cells fill exactly that many bytes. So the address also
//! yields the row's number and the place of the ledger's table (`table/mod.rs`).
//!
//! Invariant R2: the address is that of a cell in a ledger's first column, of any row below `CAPACITY_MAX`. A column has
//! room for all of these, whatever the ledger's capacity.

use super::id::GroupId;
use crate::os;
use crate::percpu::word::{self, Cell};
use std::num::NonZeroU64;
use std::ptr::NonNull;

/// The most rows, and the default capacity: a cell's place in its column is fixed (`percpu/columns.rs`).
pub(crate) const CAPACITY_MAX: usize = if os::LARGE_TABLES { 1 << 20 } else { 1 << 14 };
/// The alignment of the first column, which is also the size of all its cells.
pub(crate) const ALIGNMENT: usize = CAPACITY_MAX * size_of::<Cell>();

/// The generation's position, as in the charge word.
const GENERATION_SHIFT: u32 = 48;
const ADDRESS: u64 = (1 << GENERATION_SHIFT) - 1;

/// See the module's documentation.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Handle {
    /// The row's cell in the first column (R2).
    pub(crate) cell: NonNull<Cell>,
    /// The generation alone, at its position in a charge word. A section compares this.
    pub(crate) generation_bits: u64,
}

/// A [`Handle`] in one word.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Packed(NonZeroU64);

impl Handle {
    /// Returns a handle; `cell` is one of a first column (R2).
    ///
    /// # Panics
    /// If the address has more than 48 bits. Linux returns such addresses only to programs that ask for them.
    pub(crate) fn new(cell: *const Cell, generation: u16) -> Handle {
        let address = cell.expose_provenance() as u64;
        assert!(address <= ADDRESS, "an address of more than 48 bits: {address:#x}");
        let cell = NonNull::new(cell.cast_mut()).expect("no cell lies at address zero");
        Handle { cell, generation_bits: word::empty(generation) }
    }

    #[inline(always)]
    pub(crate) fn pack(self) -> Packed {
        // The two share no bit (`new`), and the address is not zero.
        let address = self.cell.as_ptr().expose_provenance() as u64;
        // SAFETY: the address of a cell is not zero.
        Packed(unsafe { NonZeroU64::new_unchecked(address | self.generation_bits) })
    }

    /// Returns the group's number.
    #[inline]
    pub(crate) fn id(self) -> GroupId {
        let row = (self.cell.addr().get() & (ALIGNMENT - 1)) / size_of::<Cell>();
        GroupId::from_parts(row as u32, word::generation(self.generation_bits))
    }

    /// Returns the start of the first column.
    #[inline(always)]
    pub(crate) fn column(self) -> *const Cell {
        self.cell.as_ptr().map_addr(|address| address & !(ALIGNMENT - 1))
    }
}

impl Packed {
    /// Returns the word, which is never zero.
    #[inline(always)]
    pub(crate) fn raw(self) -> u64 {
        self.0.get()
    }

    /// Returns the handle of a word that [`raw`](Self::raw) returned, or `None` for zero.
    #[inline(always)]
    pub(crate) fn from_raw(raw: u64) -> Option<Packed> {
        NonZeroU64::new(raw).map(Packed)
    }

    #[inline(always)]
    pub(crate) fn unpack(self) -> Handle {
        let address = (self.0.get() & ADDRESS) as usize;
        // SAFETY: it was packed from a nonzero address that has no bits beyond these.
        let cell =
            unsafe { NonNull::new_unchecked(std::ptr::with_exposed_provenance_mut(address)) };
        Handle { cell, generation_bits: self.0.get() & !ADDRESS }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(crate::cases::few(file!(), 256))]

        #[test]
        fn a_handle_tells_what_it_was_made_of(
            row in 0..CAPACITY_MAX,
            stretch in 1usize..(usize::MAX / ALIGNMENT).min(1 << 24),
            generation: u16,
        ) {
            let column = std::ptr::without_provenance::<Cell>(stretch * ALIGNMENT);
            let cell = column.wrapping_add(row);
            let handle = Handle::new(cell, generation);
            prop_assert_eq!(handle.cell.as_ptr().cast_const(), cell);
            prop_assert_eq!(handle.column(), column);
            prop_assert_eq!(handle.id(), GroupId::from_parts(row as u32, generation));
            prop_assert_eq!(handle.generation_bits, u64::from(generation) << 48);
            prop_assert!(handle.pack().unpack() == handle);
        }
    }
}
