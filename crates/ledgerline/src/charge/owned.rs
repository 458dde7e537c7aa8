//! Owned handles, which have no lifetime, and a guard that destroys its group.
//!
//! A [`Group`] borrows its ledger. That costs nothing, and keeps a handle from outliving the memory that it
//! points into. A server's tasks and connections need `'static`: an [`OwnedGroup`] shares the ledger by an
//! [`Arc`], and an [`OwnedCharge`] keeps it alive for as long as the charge is held.
//!
//! Invariant O1: a value with the lifetime `'static` in one of these types is used, lent and dropped while
//! the `Arc` beside it lives. It is lent for no longer than a borrow of that type.

use crate::charge::guard::Charge;
use crate::control::events::Watch;
use crate::control::reclaimers::Reclaimer;
use crate::control::token::CancelToken;
use crate::control::victim::Victim;
use crate::error::{CreateError, DestroyError, Refused};
use crate::group::Group;
use crate::ledger::Ledger;
use crate::report::settled::Settled;
use std::fmt;
use std::io;
use std::ops::Deref;
use std::sync::Arc;

/// A group together with a share of its ledger: `'static`, for tasks, connections and caches. Clones are
/// handles of the same group.
///
/// Charging through it costs one more pair of atomic additions than through a [`Group`], for the share that
/// each [`OwnedCharge`] has. [`group`](Self::group) lends the plain handle to inner loops.
///
/// ```
/// use ledgerline::Ledger;
/// use std::sync::Arc;
///
/// let ledger = Arc::new(Ledger::new()?);
/// let tenant = ledger.owned_root().create("acme")?;
/// let worker = std::thread::spawn(move || {
///     let _buffer = tenant.try_charge(1 << 20)?;
///     Ok::<u64, ledgerline::Refused>(tenant.group().precise())
/// });
/// assert_eq!(worker.join().unwrap()?, 1 << 20);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct OwnedGroup {
    /// Valid while `ledger` is shared; lent for no longer than that (O1).
    group: Group<'static>,
    ledger: Arc<Ledger>,
}

/// A charge that keeps its ledger alive. [`OwnedGroup::try_charge`] makes it; its units are returned when
/// it drops.
#[must_use = "a charge that is dropped at once is returned at once"]
pub struct OwnedCharge {
    /// Dropped first: it is returned to a ledger that is still there (O1).
    charge: Charge<'static>,
    ledger: Arc<Ledger>,
}

impl Ledger {
    /// Returns the root as a handle that shares the ledger.
    pub fn owned_root(self: &Arc<Self>) -> OwnedGroup {
        self.root().to_owned_in(self).expect("the root is this ledger's")
    }
}

impl Group<'_> {
    /// Returns the group as a handle that shares its ledger; `None` if `ledger` is another one.
    pub fn to_owned_in(self, ledger: &Arc<Ledger>) -> Option<OwnedGroup> {
        if !ledger.is(self.ledger()) {
            return None;
        }
        // SAFETY: the lifetime stands for how long the ledger's memory is mapped, and the `Arc` beside it keeps it
        // mapped as long as the handle lives (O1). Both `group` and `Drop` lend it for no longer than a borrow of it.
        // Guarded by the compile-fail examples of the tests below.
        let group = unsafe { std::mem::transmute::<Group<'_>, Group<'static>>(self) };
        Some(OwnedGroup { group, ledger: ledger.clone() })
    }
}

impl OwnedGroup {
    /// Lends the plain handle.
    ///
    /// ```compile_fail,E0505
    /// # use std::sync::Arc;
    /// let ledger = Arc::new(ledgerline::Ledger::new().unwrap());
    /// let owned = ledger.owned_root();
    /// let group = owned.group();
    /// drop(owned); // the handle may have been the last to keep the ledger
    /// group.precise();
    /// ```
    #[inline]
    pub fn group(&self) -> Group<'_> {
        self.group
    }

    /// Returns its ledger.
    pub fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    /// Like [`Group::create`].
    ///
    /// # Errors
    /// The same errors.
    pub fn create(&self, name: &str) -> Result<OwnedGroup, CreateError> {
        let group = self.group.create(name)?;
        Ok(OwnedGroup { group, ledger: self.ledger.clone() })
    }

    /// Like [`Group::try_charge`].
    ///
    /// # Errors
    /// The same errors.
    #[inline]
    #[track_caller]
    pub fn try_charge(&self, units: u64) -> Result<OwnedCharge, Refused> {
        Ok(self.keep(self.group.try_charge(units)?))
    }

    /// Like [`Group::attempt`].
    ///
    /// # Errors
    /// The same errors.
    #[inline]
    #[track_caller]
    pub fn attempt(&self, units: u64) -> Result<OwnedCharge, Refused> {
        Ok(self.keep(self.group.attempt(units)?))
    }

    /// Like [`Group::charge`].
    ///
    /// # Errors
    /// The same errors.
    #[inline]
    #[track_caller]
    pub fn charge(&self, units: u64) -> Result<OwnedCharge, Refused> {
        Ok(self.keep(self.group.charge(units)?))
    }

    fn keep(&self, charge: Charge<'static>) -> OwnedCharge {
        OwnedCharge { charge, ledger: self.ledger.clone() }
    }

    /// Like [`Group::add_reclaimer`].
    pub fn add_reclaimer(
        &self,
        priority: i32,
        reclaim: impl Fn(u64) -> u64 + Send + Sync + 'static,
    ) -> Kept<Reclaimer<'static>> {
        Kept { it: self.group.add_reclaimer(priority, reclaim), ledger: self.ledger.clone() }
    }

    /// Like [`Group::add_victim`].
    pub fn add_victim(&self, token: &CancelToken) -> Kept<Victim<'static>> {
        Kept { it: self.group.add_victim(token), ledger: self.ledger.clone() }
    }

    /// Like [`Group::watch`].
    ///
    /// # Errors
    /// The same errors.
    pub fn watch(&self) -> io::Result<Kept<Watch<'static>>> {
        Ok(Kept { it: self.group.watch()?, ledger: self.ledger.clone() })
    }
}

/// A registration that keeps its ledger alive: a [`Reclaimer`], a [`Victim`] or a [`Watch`] of an
/// [`OwnedGroup`].
#[derive(Debug)]
#[must_use = "a registration that is dropped at once is taken back at once"]
pub struct Kept<T> {
    /// Dropped first: it is taken out of a ledger that still exists (O1). It lends only borrows of this value: none
    /// of the three gives out its group or its ledger.
    it: T,
    #[allow(dead_code, reason = "keeps the memory mapped")]
    ledger: Arc<Ledger>,
}

impl<T> Deref for Kept<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.it
    }
}

impl fmt::Debug for OwnedGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.group.fmt(f)
    }
}

impl OwnedCharge {
    /// Keeps a charge together with a share of its ledger. Use it for charges that [`Group::request`]
    /// granted.
    ///
    /// # Errors
    /// Returns the charge if it belongs to another ledger.
    pub fn new<'c>(charge: Charge<'c>, ledger: &Arc<Ledger>) -> Result<OwnedCharge, Charge<'c>> {
        if !ledger.is(charge.group().ledger()) {
            return Err(charge);
        }
        // SAFETY: as in `Group::to_owned_in` (O1).
        let charge = unsafe { std::mem::transmute::<Charge<'c>, Charge<'static>>(charge) };
        Ok(OwnedCharge { charge, ledger: ledger.clone() })
    }

    /// Lends the charge itself.
    pub fn charge(&self) -> &Charge<'_> {
        &self.charge
    }

    /// Returns the number of units.
    pub fn units(&self) -> u64 {
        self.charge.units()
    }

    /// Returns the group that holds the units.
    pub fn group(&self) -> OwnedGroup {
        OwnedGroup { group: self.charge.group(), ledger: self.ledger.clone() }
    }

    /// Like [`Charge::split`].
    pub fn split(&mut self, units: u64) -> Option<OwnedCharge> {
        let charge = self.charge.split(units)?;
        Some(OwnedCharge { charge, ledger: self.ledger.clone() })
    }
}

impl fmt::Debug for OwnedCharge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.charge.fmt(f)
    }
}

/// A handle of a group: a [`Group`] or an [`OwnedGroup`].
pub trait AsGroup {
    /// Returns the group.
    fn as_group(&self) -> Group<'_>;
}

impl AsGroup for Group<'_> {
    fn as_group(&self) -> Group<'_> {
        *self
    }
}

impl AsGroup for OwnedGroup {
    fn as_group(&self) -> Group<'_> {
        self.group()
    }
}

/// A group that is destroyed when this guard drops, with all groups below it, like by [`Group::destroy_tree`]. Units
/// that are still charged then stay charged to its ancestors until they are returned ([`Ledger::leaks`] lists them).
///
/// ```
/// # let ledger = ledgerline::Ledger::new()?;
/// let tenant = ledger.root().create("acme")?;
/// {
///     let query = tenant.create("q42")?.destroy_on_drop();
///     let _buffer = query.try_charge(1 << 20)?;
/// }
/// assert_eq!(tenant.children().count(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "a group whose guard is dropped at once is destroyed at once"]
pub struct DestroyOnDrop<G: AsGroup> {
    /// `None` once it was taken out.
    group: Option<G>,
}

impl<'l> Group<'l> {
    /// Makes a guard of the handle. Other handles of the group work as before, and are refused once it is gone.
    pub fn destroy_on_drop(self) -> DestroyOnDrop<Group<'l>> {
        DestroyOnDrop { group: Some(self) }
    }
}

impl OwnedGroup {
    /// Like [`Group::destroy_on_drop`].
    pub fn destroy_on_drop(self) -> DestroyOnDrop<OwnedGroup> {
        DestroyOnDrop { group: Some(self) }
    }
}

impl<G: AsGroup> DestroyOnDrop<G> {
    /// Disarms the guard and returns the group.
    pub fn keep(mut self) -> G {
        self.group.take().expect("taken out once, by value")
    }
}

impl<'l> DestroyOnDrop<Group<'l>> {
    /// Destroys the group now, and returns a report for each group.
    ///
    /// # Errors
    /// Those of [`Group::destroy_tree`]; the group then has no guard any more.
    pub fn destroy(self) -> Result<Vec<Settled<'l>>, DestroyError> {
        self.keep().destroy_tree()
    }
}

impl<G: AsGroup> Deref for DestroyOnDrop<G> {
    type Target = G;

    fn deref(&self) -> &G {
        self.group.as_ref().expect("taken out by value alone")
    }
}

impl<G: AsGroup> Drop for DestroyOnDrop<G> {
    fn drop(&mut self) {
        if let Some(group) = self.group.take() {
            // The group may be gone already, or busy in a signal handler. A drop cannot report that.
            let _settled = group.as_group().destroy_tree();
        }
    }
}
