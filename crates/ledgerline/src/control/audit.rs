//! The audit follows each charge, to name the line that uncharges wrongly.
//!
//! ```text
//! charge(group, n) at a line          the ledger grants it; then the group holds one more charge of size n
//! uncharge(group, n) at a line        the group holds one of size n: one less, and the ledger takes it
//!                                     it holds none: report it, and the ledger takes nothing
//! a guard drops, splits, merges,      as an uncharge and charges, among the charges of guards; the line
//!   or is transferred                   that made the charge stays known
//! ```
//!
//! The cells of an audited ledger have a generation that no handle has, like those of a ledger that keeps flows
//! (`table/mod.rs`). So each charge and uncharge takes the slow path, which calls the audit.
//!
//! The audit keeps a number for each group, size and line, not an entry for each charge. It keeps charges of guards
//! apart from those without. A guard cannot return twice, so it is never wrong, and no other code returns its units.
//!
//! The audit remembers a size without outstanding charges, together with the lines that returned it, until the size
//! is unused between two sweeps. A sweep comes when twice as many sizes (or groups) are known as the last sweep left.
//! So the memory is in proportion to what is outstanding and what was used of late.
//!
//! Invariant A1: the audit frees everything that it allocates. An allocator that charges this very ledger is called
//! from within the audit, and its charges and uncharges then are not followed ([`Audit::enter`]). So for such a block
//! either both the charge and the uncharge are followed, or neither. The values returned to a caller
//! ([`WrongUncharge`]) are allocated before the lock is taken.

mod account;
mod followed;
pub(crate) mod report;
pub(crate) mod wrong;

use crate::gate::lock::{self, Gated};
use crate::ledger::Ledger;
use crate::sync::Ordering;
use crate::table::id::GroupId;
use crate::table::path::RowPath;
use followed::Followed;
use std::fmt;
use std::panic::Location;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};
use wrong::WrongUncharge;

/// A line of the program.
pub(crate) type Site = &'static Location<'static>;

/// The origin of a charge or an uncharge.
#[derive(Clone, Copy, Debug)]
pub(crate) enum By {
    /// A line without a guard, which returns the units itself.
    Hand(Site),
    /// A line that gets a guard for the charge.
    Maker(Site),
    /// A guard that drops.
    Guard,
}

/// The program's function for wrong uncharges.
#[derive(Clone)]
pub(crate) struct OnWrong(Arc<dyn Fn(&WrongUncharge) + Send + Sync>);

impl OnWrong {
    pub(crate) fn new(act: impl Fn(&WrongUncharge) + Send + Sync + 'static) -> OnWrong {
        OnWrong(Arc::new(act))
    }
}

impl fmt::Debug for OnWrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnWrong")
    }
}

/// The audit of a ledger. See the module's documentation.
#[derive(Debug)]
pub(crate) struct Audit {
    followed: Mutex<Followed>,
    /// The thread that holds the lock; zero if none does.
    holder: AtomicUsize,
    on_wrong: Option<OnWrong>,
}

/// The followed charges, locked by this thread.
pub(crate) struct Entered<'a> {
    pub(crate) followed: Gated<'a, Followed>,
    holder: &'a AtomicUsize,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        // Relaxed: only this thread compares with its own number.
        self.holder.store(0, Ordering::Relaxed);
    }
}

impl Audit {
    pub(crate) fn new(on_wrong: Option<OnWrong>) -> Audit {
        // A fork must not find the lock held.
        lock::guard_forks();
        Audit { followed: Mutex::default(), holder: AtomicUsize::new(0), on_wrong }
    }

    /// Locks the audit. Returns `None` if this thread holds the lock already, as in an allocator that charges this
    /// ledger (A1).
    pub(crate) fn enter(&self) -> Option<Entered<'_>> {
        let me = lock::thread();
        if self.holder.load(Ordering::Relaxed) == me {
            return None;
        }
        let followed = lock::gated(&self.followed);
        self.holder.store(me, Ordering::Relaxed);
        Some(Entered { followed, holder: &self.holder })
    }

    /// Follows a charge that was granted. A charge of zero units holds nothing.
    pub(crate) fn charged(&self, ledger: &Ledger, id: GroupId, units: u64, by: By) {
        let (By::Hand(site) | By::Maker(site)) = by else { return };
        let guard = matches!(by, By::Maker(_));
        if units > 0
            && let Some(mut entered) = self.enter()
        {
            entered.followed.add(ledger, id, units, site, guard);
        }
    }

    /// Returns whether an uncharge returns the units of a charge; reports it otherwise.
    pub(crate) fn allows(&self, ledger: &Ledger, id: GroupId, units: u64, by: By) -> bool {
        if units == 0 {
            return true;
        }
        let Some(mut entered) = self.enter() else { return true };
        let followed = &mut *entered.followed;
        let By::Hand(site) = by else {
            // A guard that was made inside the audit is not known, and is valid nevertheless.
            let _maker = followed.take(id, units, true);
            return true;
        };
        let account = followed.accounts.get_mut(&id.raw());
        if let Some((_maker, size)) = account.and_then(|account| account.take(units, false)) {
            size.tally(site, false).returned += 1;
            return true;
        }
        let gone = RowPath::of(ledger.table(), id).is_none();
        if !gone && !ledger.table().is_mine(id.index()) {
            return true;
        }
        followed.note(ledger, id, units, site);
        drop(entered);
        if gone {
            ledger.table().count_stray();
        } else {
            ledger.table().header().audited.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(OnWrong(act)) = &self.on_wrong {
            let mut wrong = WrongUncharge::blank(site);
            if let Some(Entered { followed, .. }) = &self.enter() {
                wrong.times = 1;
                match followed.wrong.iter().find(|wrong| wrong.is(id, units, site)) {
                    Some(known) => wrong = wrong.copy(known),
                    None => wrong.describe(ledger, followed.accounts.get(&id.raw()), id, units),
                }
            }
            act(&wrong);
        }
        false
    }

    /// Notes that a charge will be returned in another way: a guard was given up, or is made of units that were
    /// charged without one. Returns `false` and reports it if there is no such charge.
    #[cold]
    pub(crate) fn turn(&self, ledger: &Ledger, id: GroupId, units: u64, was: By, is: By) -> bool {
        let held = self.allows(ledger, id, units, was);
        if held {
            self.charged(ledger, id, units, is);
        }
        held
    }

    /// Notes that some charges became others, which keep the line of the first: a guard was split, merged with
    /// another one, or transferred to another group, or a charge without a guard was transferred.
    #[cold]
    pub(crate) fn exchange(
        &self,
        ledger: &Ledger,
        before: &[(GroupId, u64)],
        after: &[(GroupId, u64)],
        guard: bool,
    ) {
        let Some(mut entered) = self.enter() else { return };
        let followed = &mut *entered.followed;
        let mut maker = None;
        for &(id, units) in before {
            maker = maker.or(followed.take(id, units, guard));
        }
        let Some(maker) = maker else { return };
        for &(id, units) in after.iter().filter(|&&(_, units)| units > 0) {
            followed.add(ledger, id, units, maker, guard);
        }
    }

    /// Forgets all charges, in a forked child of a ledger that processes share: they belong to the parent's groups.
    pub(crate) fn forget(&self) {
        if let Some(mut entered) = self.enter() {
            *entered.followed = Followed::default();
        }
    }
}
