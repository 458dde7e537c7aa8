//! The fast half of charging by numbers: for an interface whose callers may use a ledger that is gone.
//!
//! A [`Group`](crate::Group) borrows its ledger, so no handle outlives the memory that it points into. A caller in C
//! has numbers, and may charge one while another thread frees the ledger. A count of the callers inside would cost
//! more than the charge. So the number is compared *inside* the critical section that charges, and a thread that
//! takes the ledger away makes every CPU restart its section (`percpu/lent.rs`).

use crate::ledger::Ledger;
use crate::percpu::{self, Lent, put_lent, take_lent, word};
use crate::sync::{AtomicU64, AtomicUsize, Ordering};
use crate::table::handle::CAPACITY_MAX;
#[cfg(doc)]
use crate::table::id::GroupId;
use std::num::NonZeroU64;

/// A place in which one ledger at a time is lent under a number, for the lifetime of the program. It has two words. A
/// charge by number finds the ledger here, or finds that it is gone.
///
/// ```
/// use ledgerline::{Lease, Ledger};
/// use std::num::NonZeroU64;
///
/// static PLACE: Lease = Lease::new();
/// let ledger = Ledger::new()?;
/// let group = ledger.root().create("g")?;
/// group.try_charge_units(4096)?;
/// let id = group.id().to_bits();
/// let number = NonZeroU64::new(7).unwrap();
/// // SAFETY: the ledger is dropped after it was taken back, and no other thread lends here.
/// if unsafe { PLACE.lend(&ledger, number) } {
///     assert!(PLACE.take(7, id, 64) && PLACE.put(7, id, 64));
///     assert!(PLACE.take_back());
/// }
/// assert!(!PLACE.take(7, id, 64));
/// drop(ledger);
/// assert!(!PLACE.take(7, id, 64));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Lease {
    lent: Lent,
}

impl Default for Lease {
    fn default() -> Self {
        Lease::new()
    }
}

impl Lease {
    /// Creates a place in which nothing is lent.
    pub const fn new() -> Lease {
        Lease { lent: Lent { number: AtomicU64::new(0), cells: AtomicUsize::new(0) } }
    }

    /// Lends a ledger's prepaid units under a number. Returns `false`, and lends nothing, if the fast half does not
    /// work: in a ledger that keeps flows or is audited, and on machines without restartable sequences and compact
    /// CPU ids.
    ///
    /// From then on the ledger's address space stays reserved when the ledger is dropped, for the next ledger of that
    /// size. Its memory is freed.
    ///
    /// # Safety
    /// [`take_back`](Self::take_back) must return `true` before the ledger is dropped, and before another is lent
    /// here. Only one thread at a time lends and takes back here. This value is never dropped while another thread
    /// may use it.
    pub unsafe fn lend(&self, ledger: &Ledger, number: NonZeroU64) -> bool {
        let table = ledger.table();
        // A number may name any row, so each row must have a place in the columns (R5).
        if !table.columns.is_fast() || table.detour != 0 || !table.region().is_whole() {
            return false;
        }
        table.region().keep_address();
        self.lent.cells.store(table.columns.first(0).addr(), Ordering::Relaxed);
        // Release, partner of the loads in the sections (x86 keeps their order): a thread that sees the number sees
        // the address.
        self.lent.number.store(number.get(), Ordering::Release);
        true
    }

    /// Ends the lending. After this returned `true`, no thread charges by the number. Returns `false` only if a
    /// sandbox forbids the remote fence: then the ledger must never be dropped. Costs a few microseconds if anything
    /// was lent.
    #[must_use = "without the fence the ledger must not be dropped"]
    pub fn take_back(&self) -> bool {
        // The fence orders this store on all CPUs before the caller's next actions.
        self.lent.number.swap(0, Ordering::SeqCst) == 0 || percpu::fence()
    }

    /// Returns the number that is lent; `None` if nothing is.
    #[inline(always)]
    pub fn number(&self) -> Option<NonZeroU64> {
        NonZeroU64::new(self.lent.number.load(Ordering::Acquire))
    }

    /// Like [`Group::take_prepaid`](crate::Group::take_prepaid), for a group of the ledger that is lent under
    /// `number`. Changes nothing and returns `false` if that number is not lent. The group is given by its id's
    /// [bits](GroupId::to_bits); bits that no group has are refused, too. Costs one to three nanoseconds;
    /// async-signal-safe.
    #[inline(always)]
    #[must_use = "without prepaid units nothing was charged"]
    pub fn take(&self, number: u64, id: u64, units: u64) -> bool {
        let fits = units <= word::STOCK_MAX && number != 0 && names_a_cell(id);
        // SAFETY: `lend`'s caller vouches for the address while the number is there, and R5: the id names a place in
        // the columns. The number zero is excluded above.
        fits && unsafe { take_lent(&self.lent, number, id, units) }
    }

    /// Like [`Group::put_prepaid`](crate::Group::put_prepaid), and otherwise like [`take`](Self::take).
    #[inline(always)]
    #[must_use = "without room nothing was uncharged"]
    pub fn put(&self, number: u64, id: u64, units: u64) -> bool {
        let fits = units <= word::STOCK_MAX && number != 0 && names_a_cell(id);
        // SAFETY: as in `take`.
        fits && unsafe { put_lent(&self.lent, number, id, units) }
    }
}

/// Returns whether these bits can be the id of a group with a cell: the row is one that a ledger can have, and the
/// generation one that a group can have.
#[inline(always)]
fn names_a_cell(id: u64) -> bool {
    const NEITHER: u64 = (1 << 48) - CAPACITY_MAX as u64;
    id & NEITHER == 0 && id >= 1 << 48
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GroupId, Ledger, Mistakes};

    const SEVEN: NonZeroU64 = NonZeroU64::new(7).unwrap();

    #[test]
    fn only_the_number_that_is_lent_charges_and_only_a_group_that_there_is() {
        let place = Lease::new();
        let ledger = Ledger::builder().capacity(8).anonymous().unwrap();
        let group = ledger.root().create("g").unwrap();
        assert!(!place.take(0, group.id().to_bits(), 1) && !place.take(7, group.id().to_bits(), 1));
        // SAFETY: it is taken back below, before the ledger goes.
        if !unsafe { place.lend(&ledger, SEVEN) } {
            return;
        }
        assert_eq!(place.number(), Some(SEVEN));
        assert!(!place.take(7, group.id().to_bits(), 1), "nothing is prepaid yet");
        let mut charged = 0;
        // If this thread was moved to another CPU in between, nothing is prepaid there.
        let prepays = |charged: &mut u64| {
            group.try_charge_units(100).unwrap();
            *charged += 100;
            assert!(*charged < 100_000, "nothing that was prepaid is taken");
        };
        while !place.take(7, group.id().to_bits(), 10) {
            prepays(&mut charged);
        }
        while !place.put(7, group.id().to_bits(), 4) {
            prepays(&mut charged);
        }
        let held = charged + 6;
        assert_eq!(group.precise(), held);
        for id in [0, 1, u64::MAX, 1 << 20, 1 << 32, group.id().to_bits() | 1 << 40] {
            for units in [0, 1, 1 << 31, u64::MAX] {
                assert!(!place.take(7, id, units) && !place.put(7, id, units), "{id:#x}");
            }
        }
        let last = GroupId::from_parts(CAPACITY_MAX as u32 - 1, 1).to_bits();
        assert!(!place.take(7, last, 0), "a row beyond the capacity serves nobody");
        for number in [0, 6, 8, u64::MAX] {
            assert!(
                !place.take(number, group.id().to_bits(), 1)
                    && !place.put(number, group.id().to_bits(), 1)
            );
        }
        assert!(place.take_back() && place.number().is_none());
        assert!(!place.take(7, group.id().to_bits(), 1) && !place.put(7, group.id().to_bits(), 1));
        assert_eq!((group.precise(), ledger.mistakes()), (held, Mistakes::default()));
        drop(ledger);
        assert!(!place.take(7, last, 1));
    }

    #[test]
    fn ledgers_whose_every_charge_is_looked_at_are_not_lent() {
        let place = Lease::new();
        for ledger in [
            Ledger::builder().capacity(8).flows(true).anonymous().unwrap(),
            Ledger::builder().capacity(8).audit(true).anonymous().unwrap(),
        ] {
            // SAFETY: it is taken back below, before the ledger goes.
            assert!(!unsafe { place.lend(&ledger, SEVEN) });
            assert!(place.take_back());
        }
    }

    /// Two threads charge by number while ledgers come and go, at the same addresses again and again. A store by a
    /// section after the fence would be a fault, or a charge in the next ledger.
    #[test]
    fn a_ledger_is_taken_away_while_others_charge_it_by_number() {
        let place = Lease::new();
        let id = GroupId::from_parts(1, 1).to_bits();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut served = 0u64;
                    while !done.load(Ordering::Relaxed) {
                        for number in 1..3 {
                            if place.take(number, id, 3) {
                                served += u64::from(place.put(number, id, 3));
                            }
                        }
                    }
                    std::hint::black_box(served)
                });
            }
            for turn in 0..300u64 {
                let ledger = Ledger::builder().capacity(8).anonymous().unwrap();
                let group = ledger.root().create("g").unwrap();
                assert_eq!(group.id().to_bits(), id);
                group.try_charge_units(1000).unwrap();
                let number = NonZeroU64::new(1 + turn % 2).unwrap();
                // SAFETY: taken back before the ledger goes; this thread alone lends here.
                let lent = unsafe { place.lend(&ledger, number) };
                if turn % 3 == 0 {
                    std::thread::yield_now();
                }
                assert!(place.take_back());
                if lent {
                    // A thread that took three units and was too late to put them back keeps them.
                    let held = group.precise();
                    assert!(held >= 1000 && (held - 1000).is_multiple_of(3), "{held}");
                    std::thread::yield_now();
                    assert_eq!(group.precise(), held, "charged after it was taken back");
                }
            }
            done.store(true, Ordering::Relaxed);
        });
    }
}
