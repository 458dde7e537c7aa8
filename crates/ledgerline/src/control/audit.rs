//! Following each charge, to name who uncharges wrongly.
//!
//! ```text
//! charge(group, n) at a line          the ledger grants it; then: one more of size n is held in the group
//! uncharge(group, n) at a line        one of size n is held: one less, and the ledger takes it
//!                                     none is: report it, and the ledger takes nothing
//! a guard drops, splits, merges,      as an uncharge and charges, of what guards hold; who made the
//!   or is transferred                   charge stays known
//! ```
//!
//! The cells of an audited ledger bear a generation that no handle has, as where flows are kept
//! (table.rs), so each charge and uncharge comes by the slow path and by here.
//!
//! What is followed is a number for each group, size and line, not an entry for each charge. What is held
//! by a guard and what was charged by hand is kept apart: a guard cannot return twice, so it is never wrong,
//! and nobody else returns what it holds.
//!
//! A size of which nothing is held is kept to tell who returned it, until it was not used between two
//! sweeps; a sweep comes when twice as many sizes (or groups) are known as the last one left. So memory
//! is in proportion to what is held, and to what was used of late.
//!
//! Invariant A1: what is allocated here is freed here. An allocator that charges this very ledger is called
//! from within, and what it charges and uncharges then is not followed ([`Audit::enter`]); so both
//! or neither are. What a caller gets ([`WrongUncharge`]) is allocated before the lock is taken.

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

/// Who charges or uncharges.
#[derive(Clone, Copy, Debug)]
pub(crate) enum By {
    /// A line that sees to the other half itself.
    Hand(Site),
    /// A line that gets a guard for it.
    Maker(Site),
    /// A guard that drops.
    Guard,
}

/// What the program wants done about a wrong uncharge.
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

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Audit {
    followed: Mutex<Followed>,
    /// The thread that holds it; zero if none does.
    holder: AtomicUsize,
    on_wrong: Option<OnWrong>,
}

/// What is followed, held by this thread.
pub(crate) struct Entered<'a> {
    followed: Gated<'a, Followed>,
    holder: &'a AtomicUsize,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        // Relaxed: only this thread looks for its own number.
        self.holder.store(0, Ordering::Relaxed);
    }
}

impl std::ops::Deref for Entered<'_> {
    type Target = Followed;

    fn deref(&self) -> &Followed {
        &self.followed
    }
}

impl std::ops::DerefMut for Entered<'_> {
    fn deref_mut(&mut self) -> &mut Followed {
        &mut self.followed
    }
}

impl Audit {
    pub(crate) fn new(on_wrong: Option<OnWrong>) -> Audit {
        // (A fork must not find the lock held.)
        lock::guard_forks();
        Audit { followed: Mutex::default(), holder: AtomicUsize::new(0), on_wrong }
    }

    /// `None` if this thread is in here already: an allocator that charges this ledger (A1).
    pub(crate) fn enter(&self) -> Option<Entered<'_>> {
        let me = lock::thread();
        if self.holder.load(Ordering::Relaxed) == me {
            return None;
        }
        let followed = lock::gated(&self.followed);
        self.holder.store(me, Ordering::Relaxed);
        Some(Entered { followed, holder: &self.holder })
    }

    /// Follows a charge that was granted. (One of nothing holds nothing.)
    pub(crate) fn charged(&self, ledger: &Ledger, id: GroupId, units: u64, by: By) {
        let (By::Hand(site) | By::Maker(site)) = by else { return };
        let guard = matches!(by, By::Maker(_));
        if units > 0
            && let Some(mut followed) = self.enter()
        {
            followed.add(ledger, id, units, site, guard);
        }
    }

    /// Whether an uncharge returns what a charge took; if it does not, reports it.
    pub(crate) fn allows(&self, ledger: &Ledger, id: GroupId, units: u64, by: By) -> bool {
        if units == 0 {
            return true;
        }
        let Some(mut followed) = self.enter() else { return true };
        let By::Hand(site) = by else {
            // (One that was made in here is not known, and right all the same.)
            let _maker = followed.take(id, units, true);
            return true;
        };
        if followed.take(id, units, false).is_some() {
            if let Some(size) = followed
                .accounts
                .get_mut(&id.raw())
                .and_then(|account| account.sizes.get_mut(&units))
            {
                size.tally(site, false).returned += 1;
            }
            return true;
        }
        let gone = RowPath::of(ledger.table(), id).is_none();
        if !gone
            && ledger.table().row(id.index()).owner.load(Ordering::Relaxed)
                != ledger.table().process()
        {
            return true;
        }
        followed.note(ledger, id, units, site);
        drop(followed);
        if gone {
            ledger.table().count_stray();
        } else {
            ledger.table().header().audited.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(OnWrong(act)) = &self.on_wrong {
            let mut wrong = WrongUncharge::blank(site);
            if let Some(followed) = self.enter() {
                wrong.times = 1;
                match followed.wrong.iter().find(|wrong| wrong.is(id, units, site)) {
                    Some(known) => wrong.copy(known),
                    None => wrong.describe(ledger, followed.account(id), id, units),
                }
            }
            act(&wrong);
        }
        false
    }

    /// A guard was given up: its units are returned by hand.
    #[cold]
    pub(crate) fn gave_up(&self, ledger: &Ledger, id: GroupId, units: u64, site: Site) {
        if self.allows(ledger, id, units, By::Guard) {
            self.charged(ledger, id, units, By::Hand(site));
        }
    }

    /// Whether a guard may be made of units that were charged by hand; if there are none, reports it.
    #[cold]
    pub(crate) fn adopts(&self, ledger: &Ledger, id: GroupId, units: u64, site: Site) -> bool {
        let held = self.allows(ledger, id, units, By::Hand(site));
        if held {
            self.charged(ledger, id, units, By::Maker(site));
        }
        held
    }

    /// A guard became two.
    #[cold]
    pub(crate) fn split(&self, ledger: &Ledger, id: GroupId, left: u64, units: u64) {
        self.exchange(ledger, &[(id, left.saturating_add(units))], &[(id, left), (id, units)]);
    }

    /// A guard took another one in.
    #[cold]
    pub(crate) fn merged(&self, ledger: &Ledger, id: GroupId, units: u64, other: u64) {
        self.exchange(ledger, &[(id, units), (id, other)], &[(id, units.saturating_add(other))]);
    }

    /// A guard went to another group.
    #[cold]
    pub(crate) fn moved(&self, ledger: &Ledger, from: GroupId, to: GroupId, units: u64) {
        self.exchange(ledger, &[(from, units)], &[(to, units)]);
    }

    /// Some charges of guards become others, made by who made the first of them.
    fn exchange(&self, ledger: &Ledger, before: &[(GroupId, u64)], after: &[(GroupId, u64)]) {
        let Some(mut followed) = self.enter() else { return };
        let mut maker = None;
        for &(id, units) in before {
            maker = maker.or(followed.take(id, units, true));
        }
        let Some(maker) = maker else { return };
        for &(id, units) in after.iter().filter(|&&(_, units)| units > 0) {
            followed.add(ledger, id, units, maker, true);
        }
    }

    /// Forgets all: what was followed is of the parent's groups, in a forked child of a ledger that processes
    /// share.
    pub(crate) fn forget(&self) {
        if let Some(mut followed) = self.enter() {
            *followed = Followed::default();
        }
    }
}
