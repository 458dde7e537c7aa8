//! The fast half of charging one group, as a handle that can be kept as two numbers.

use crate::group::Group;
use crate::ledger::Ledger;
use crate::percpu;
use crate::percpu::word::{self, Cell};
use std::marker::PhantomData;

/// The generation of the first group in a row. Its sections have it as a constant.
const FIRST: u16 = 1;

/// A handle of a group's prepaid units, for an allocator in which every instruction counts.
/// [`take`](Self::take) and [`put`](Self::put) are [`Group::take_prepaid`] and [`Group::put_prepaid`], and
/// the handle may be kept as numbers in a table or a thread-local variable ([`into_raw`](Self::into_raw)).
///
/// A handle of a destroyed group is refused, not followed. For the first group of its row, fifteen bits of the
/// generation are compared: the 32 769th group of that row would be taken for it.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let ledger = ledgerline::Ledger::new()?;
/// let thread = ledger.root().create("worker")?;
/// if let Some(prepaid) = thread.prepaid() {
///     if !prepaid.take(64) {
///         thread.try_charge_units(64)?;
///     }
///     if !prepaid.put(64) {
///         thread.uncharge_units(64);
///     }
/// }
/// assert_eq!(thread.precise(), 0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prepaid<'l> {
    /// R2: the cell of a row of a ledger, in its first column.
    cell: *const Cell,
    /// The generation. A constant if the handle came from numbers, so that nothing is compared.
    generation: u16,
    /// The offset of a thread's registration; not zero.
    area: isize,
    ledger: PhantomData<&'l Ledger>,
}

impl<'l> Group<'l> {
    /// Makes a [`Prepaid`] handle. Returns `None` if the fast half does not work: in a ledger that keeps flows or is
    /// audited, and on machines without restartable sequences and compact CPU ids.
    pub fn prepaid(&self) -> Option<Prepaid<'l>> {
        let (id, columns) = (self.id(), self.ledger().table().columns);
        (columns.is_fast() && self.ledger().table().detour == 0).then(|| Prepaid {
            cell: columns.first(id.index()),
            generation: id.generation(),
            area: columns.registration().compact_area(),
            ledger: PhantomData,
        })
    }
}

impl Prepaid<'_> {
    /// Returns the handle as two numbers if its group is the first in its row, as every group is until one is
    /// destroyed; `None` for others. The first number is the group's: an address, divisible by 16, never zero. The
    /// second is the same for all groups and threads, and never zero.
    pub fn into_raw(self) -> Option<(usize, isize)> {
        (self.generation == FIRST).then_some((self.cell as usize, self.area))
    }

    /// Makes the handle again from its two numbers.
    ///
    /// # Safety
    /// The numbers came from [`into_raw`](Self::into_raw) in this process or, by `fork`, an ancestor,
    /// and the ledger is open while the handle is used.
    #[inline(always)]
    pub unsafe fn from_raw(group: usize, area: isize) -> Self {
        Prepaid { cell: group as *const Cell, generation: FIRST, area, ledger: PhantomData }
    }

    /// Charges `units` from the running CPU's prepaid units. Returns `false` and changes nothing if they do not
    /// suffice; the caller then calls [`Group::try_charge_units`] for the whole charge. Costs one to three
    /// nanoseconds; async-signal-safe.
    #[inline(always)]
    #[must_use = "without prepaid units nothing was charged"]
    pub fn take(self, units: u64) -> bool {
        if units > word::STOCK_MAX {
            return too_many();
        }
        // SAFETY: `cell` is a row's in the first column (R2); the area is the process's. Guarded by
        // the tests below and `percpu/inject.rs`.
        unsafe {
            match self.generation {
                FIRST => percpu::take_first(self.area, self.cell, units),
                other => percpu::take_fast(self.cell, word::empty(other), units),
            }
        }
    }

    /// Uncharges `units` into the running CPU's cell. Returns `false` and changes nothing if it has no room; the
    /// caller then calls [`Group::uncharge_units`] for all of them. Its cost and signal safety are those of
    /// [`take`](Self::take).
    #[inline(always)]
    #[must_use = "without room nothing was uncharged"]
    pub fn put(self, units: u64) -> bool {
        if units > word::STOCK_MAX {
            return too_many();
        }
        // SAFETY: as in `take`.
        unsafe {
            match self.generation {
                FIRST => percpu::put_first(self.area, self.cell, units),
                other => percpu::put_fast(self.cell, word::empty(other), units),
            }
        }
    }
}

/// Handles more units than a cell can hold. A separate function, so that the common path goes straight on: each jump
/// on it takes a third of a nanosecond.
#[cold]
fn too_many() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pins this thread to its CPU, since the test reads that CPU's cell.
    fn pin() {
        // SAFETY: the set is this function's.
        unsafe {
            let mut set = std::mem::zeroed::<libc::cpu_set_t>();
            libc::CPU_SET(libc::sched_getcpu().unsigned_abs() as usize, &mut set);
            assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &raw const set), 0);
        }
    }

    /// Charges 100 units at a time until a charge leaves a surplus in the cell, and returns the sum. A charge leaves
    /// none while a thread of another test has the stock lock.
    fn charge(group: Group<'_>, prepaid: Prepaid) -> u64 {
        let mut charged = 0;
        loop {
            group.try_charge_units(100).unwrap();
            charged += 100;
            if prepaid.take(10) {
                assert!(prepaid.put(10));
                return charged;
            }
        }
    }

    #[test]
    fn a_handle_charges_its_group_and_no_later_one_of_its_row() {
        pin();
        let ledger = Ledger::new().unwrap();
        let group = ledger.root().create("first").unwrap();
        let Some(prepaid) = group.prepaid() else { return };
        let (cell, area) = prepaid.into_raw().expect("the first in its row");
        // SAFETY: the numbers are this handle's.
        assert_eq!(prepaid, unsafe { Prepaid::from_raw(cell, area) });
        assert!(!prepaid.take(1), "nothing is prepaid yet");
        let charged = charge(group, prepaid);
        assert!(prepaid.take(10) && prepaid.put(10) && prepaid.take(10));
        assert!(
            !prepaid.take(word::STOCK_MAX) && !prepaid.take(u64::MAX) && !prepaid.put(u64::MAX)
        );
        assert_eq!(group.precise(), charged + 10);
        group.uncharge_units(charged + 10);
        let row = group.id().index();
        group.destroy().unwrap();
        assert!(!prepaid.take(1) && !prepaid.put(1));
        let later = ledger.root().create("second").unwrap();
        assert_eq!(later.id().index(), row, "the row is used again");
        let next = later.prepaid().expect("a row that is used again has one as well");
        assert_eq!(next.into_raw(), None, "numbers stand for the first group of a row alone");
        let mut charged = charge(later, next);
        assert!(!prepaid.take(1) && !prepaid.put(1));
        assert_eq!(later.precise(), charged);
        // The kernel may give a thread that slept another compact id on the same CPU, and so another column.
        while !next.take(10) {
            charged += charge(later, next);
        }
        assert!(next.put(5));
        assert_eq!(later.precise(), charged + 5);
        later.uncharge_units(charged + 5);
        later.destroy().unwrap();
        assert!(!next.take(1) && !next.put(1));
        assert_eq!(ledger.mistakes(), crate::Mistakes::default());
    }
}
