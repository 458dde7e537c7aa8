//! A shared charge: several groups hold it, and one of them pays for it.
//!
//! ```text
//! a holder is dropped                                 a holder joins
//!   choose the payer                                    choose the payer
//!
//! choose the payer: one of the holders is the payer: done
//!   take the charge out of the common state (then no other thread chooses)
//!   there is no holder: return the units
//!   move them to the oldest holder whose group has room; if none has, to the oldest that takes them
//!     over its limits
//!   put the charge back; if the new payer was dropped meanwhile: again
//! ```
//!
//! The lock guards the list of holders and is held for a few instructions. Units are moved and returned
//! without it, since that wakes waiters and may ask reclaimers.

use crate::charge::guard::Charge;
use crate::group::Group;
use crate::stock::AtLimit;
use crate::whose;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A holder of a shared charge, for example of a buffer that several queries use. The buffer is counted once, for the
/// holder that pays. The others hold it free of charge.
///
/// When the payer is dropped, the units move to the oldest other holder whose group has room for them. If none has,
/// the oldest takes them over its limits, which counts a `max` event there, since the memory is in use anyway. The
/// last holder returns them. A holder whose group was destroyed can no longer become the payer. If that holds for
/// all, the units stay with the last payer.
///
/// Joining and dropping take a lock for a few instructions and allocate in a list, so they are not async-signal-safe.
/// A limit that refuses the units counts a `max` event, as with any [transfer](Charge::transfer).
///
/// ```
/// # let ledger = ledgerline::Ledger::new()?;
/// let [a, b] = [ledger.root().create("a")?, ledger.root().create("b")?];
/// let mine = a.try_charge(1000)?.share();
/// let yours = mine.join(b);
/// assert_eq!((a.precise(), b.precise(), ledger.root().precise()), (1000, 0, 1000));
///
/// drop(mine);
/// assert_eq!((a.precise(), b.precise(), ledger.root().precise()), (0, 1000, 1000));
/// drop(yours);
/// assert_eq!(ledger.root().precise(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "a holder that is dropped at once does not hold"]
pub struct SharedCharge<'l> {
    common: Arc<Common<'l>>,
    me: Holder<'l>,
}

/// A holder. Numbers are unique, and older holders have lower ones.
#[derive(Clone, Copy, Debug)]
struct Holder<'l> {
    group: Group<'l>,
    number: u64,
}

#[derive(Debug)]
struct Common<'l> {
    units: u64,
    state: Mutex<State<'l>>,
}

#[derive(Debug)]
struct State<'l> {
    /// `None` while a thread chooses the payer.
    charge: Option<Charge<'l>>,
    /// The holder whose group is charged.
    payer: Holder<'l>,
    /// The holders, the oldest first.
    holders: Vec<Holder<'l>>,
    next: u64,
}

impl<'l> Charge<'l> {
    /// Converts this into a charge that others can [`join`](SharedCharge::join). The units stay where they are.
    pub fn share(self) -> SharedCharge<'l> {
        let me = Holder { group: self.group(), number: 0 };
        let units = self.units();
        // The list is not accounted.
        whose::nobody(|| {
            let state = State { charge: Some(self), payer: me, holders: vec![me], next: 1 };
            SharedCharge { common: Arc::new(Common { units, state: Mutex::new(state) }), me }
        })
    }
}

impl<'l> SharedCharge<'l> {
    /// Adds a holder, whose group pays only if the holders before it are dropped. A group of another ledger is then
    /// charged in that ledger, and this ledger is no longer charged. The group need not have room now, so this does
    /// not fail, not even for a destroyed group.
    pub fn join(&self, group: Group<'l>) -> SharedCharge<'l> {
        let mut state = self.common.lock();
        let me = Holder { group, number: state.next };
        state.next += 1;
        whose::nobody(|| state.holders.push(me));
        drop(state);
        whose::nobody(|| self.common.choose_payer());
        SharedCharge { common: self.common.clone(), me }
    }

    /// Returns the group of this holder.
    pub fn group(&self) -> Group<'l> {
        self.me.group
    }

    /// Returns the group that the units are charged to. During a move, that is the group that they come from.
    pub fn owner(&self) -> Group<'l> {
        self.common.lock().payer.group
    }

    /// Returns the number of units.
    pub fn units(&self) -> u64 {
        self.common.units
    }

    /// Returns the number of holders, this one included.
    pub fn holders(&self) -> usize {
        self.common.lock().holders.len()
    }
}

impl Drop for SharedCharge<'_> {
    fn drop(&mut self) {
        let mut state = self.common.lock();
        state.holders.retain(|holder| holder.number != self.me.number);
        drop(state);
        whose::nobody(|| self.common.choose_payer());
    }
}

impl<'l> Common<'l> {
    fn lock(&self) -> MutexGuard<'_, State<'l>> {
        // Every use leaves the state consistent, even if it panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Chooses a payer among the holders, or returns the units if there is no holder. If another thread is choosing,
    /// this leaves the choice to it: that thread looks again at its end.
    fn choose_payer(&self) {
        loop {
            let mut state = self.lock();
            if state.holders.iter().any(|holder| holder.number == state.payer.number) {
                return;
            }
            let Some(charge) = state.charge.take() else { return };
            let (holders, next) = (state.holders.clone(), state.next);
            drop(state);
            if holders.is_empty() {
                // No holder is left from which another could join. The units are returned here, without the lock.
                return;
            }
            let (charge, payer) = hand_over(charge, &holders);
            let mut state = self.lock();
            state.charge = Some(charge);
            match payer {
                Some(payer) => state.payer = payer,
                // No holder can pay. If a holder joined or the last one was dropped meanwhile, that thread left the
                // choice to this one.
                None if state.next == next && !state.holders.is_empty() => return,
                None => {}
            }
        }
    }
}

/// Moves a charge to the oldest holder whose group has room for it, else to the oldest that takes it over its limits;
/// `None` if all groups were destroyed.
fn hand_over<'l>(
    mut charge: Charge<'l>,
    holders: &[Holder<'l>],
) -> (Charge<'l>, Option<Holder<'l>>) {
    for at in [AtLimit::Refuse, AtLimit::Overrun] {
        for &holder in holders {
            if holder.group == charge.group() && holder.group.exists() {
                return (charge, Some(holder));
            }
            match charge.transfer_within(holder.group, at) {
                Ok(moved) => return (moved, Some(holder)),
                Err((same, _refused)) => charge = same,
            }
        }
    }
    (charge, None)
}
