//! The public door: groups, what they hold, what they may hold.

use crate::charge::Charge;
use crate::control::audit::By;
use crate::counter::{COUNTER_MAX, Limits as RowLimits};
use crate::error::{CreateError, DestroyError, Refusal, Refused, RefusedCharge};
use crate::gate::lock;
use crate::ledger::{DEPTH_MAX, Ledger};
use crate::percpu;
use crate::percpu::word;
use crate::report::read::Estimate;
use crate::size::Limit;
use crate::stock::Limits;
use crate::sync::{AtomicU64, Ordering};
use crate::table::Table;
use crate::table::handle::{CAPACITY_MAX, Handle, Packed};
use crate::table::name;
use crate::table::path::RowPath;
use crate::table::row::{GroupId, Row, flag, state};
use std::marker::PhantomData;
use std::panic::Location;

/// A group of a ledger: a query, a tenant, a thread, a process. A copyable handle of two words.
///
/// Charging and uncharging are async-signal-safe. A guard that is charged and dropped takes as long as its
/// units alone, 4.5 ns for both halves on a virtual Xeon of 2026, at any depth and on any number of threads
/// (`ledgerline bench charge`, cases `guard_depth1` to `guard_depth8`).
///
/// A handle of a group that was destroyed is refused, not followed, whoever has its row by now: charges are
/// refused, setters change nothing, and what is read is nothing: no units and no events, no limits
/// ([`Limit::MAX`] of max and high, [`Limit::ZERO`] of low and min), no parent, the path and the name
/// `(destroyed)`. That holds as well while its row is kept for charges that were not returned
/// ([`Ledger::leaks`] tells of those), and for a destruction in the middle of a reading. A group whose process
/// ended is still read as it was.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Group<'l> {
    /// R2: of a row of the ledger, which `'l` keeps mapped (R1).
    handle: Handle,
    ledger: PhantomData<&'l Ledger>,
}

/// Two, so that a walk over many handles leaves room in the cache for their cells.
const _: () = assert!(size_of::<Option<Group<'_>>>() == 16);

// SAFETY: the pointer is into the ledger's region, which is shared through atomics and sections
// only, and which `'l` keeps mapped (R1).
unsafe impl Send for Group<'_> {}
// SAFETY: as above.
unsafe impl Sync for Group<'_> {}

/// What was found when a group was destroyed.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settled<'l> {
    /// The group that was destroyed; its number is what is left of it.
    pub group: Group<'l>,
    /// Units still charged to it, or to groups below that were destroyed before it: a leak, or charges
    /// that are still on their way back. They stay counted in the group's ancestors until they are
    /// returned. What can be said of them: [`leak`](Settled::leak).
    pub leftover: u64,
    /// Units that lay prepaid in its cells and went back to the ancestors.
    pub idle: u64,
    /// Its highest usage: see [`Group::peak`].
    pub peak: Estimate,
    /// Charges and uncharges that it saw in its life.
    pub charges: u64,
    /// See `charges`.
    pub uncharges: u64,
}

impl Ledger {
    /// The root, which every charge reaches.
    pub fn root(&self) -> Group<'_> {
        self.group(GroupId::ROOT)
    }

    /// A handle for an id that was kept elsewhere (an allocation's tag, a file). Whether there is
    /// such a group shows when the handle is used.
    #[inline]
    pub fn group(&self, id: GroupId) -> Group<'_> {
        // R2: an id that reaches the cells names a place in the columns, whose size is fixed; a
        // place without a row serves no generation.
        let named = id.index() < CAPACITY_MAX as u32
            && id.generation() != 0
            && id.generation() & self.table().detour == 0;
        let id = if named { id } else { GroupId::NOBODY };
        let handle = Handle::new(self.columns().first(id.index()), id.generation());
        Group { handle, ledger: PhantomData }
    }
}

impl<'l> Group<'l> {
    /// In one word, for a charge.
    #[inline(always)]
    pub(crate) fn pack(self) -> Packed {
        self.handle.pack()
    }

    /// The group that a charge was packed with; `'l` is the charge's.
    #[inline(always)]
    pub(crate) fn unpack(packed: Packed) -> Group<'l> {
        Group { handle: packed.unpack(), ledger: PhantomData }
    }

    /// The group's number, which outlives the handle.
    #[inline]
    pub fn id(self) -> GroupId {
        self.handle.id()
    }

    /// Its ledger.
    pub fn ledger(self) -> &'l Ledger {
        // SAFETY: R2, and `'l` keeps the ledger from being dropped.
        unsafe { Table::of(self.handle) }.ledger()
    }

    /// Charges `units`, or refuses and says who did. The charge is returned when the guard drops. A charge
    /// of nothing is granted whatever the limits say, as long as there is the group.
    ///
    /// ```
    /// # let ledger = ledgerline::Ledger::new()?;
    /// let query = ledger.root().create("q1")?;
    /// query.set_max("64K".parse()?)?;
    /// let buffer = query.try_charge(48 << 10)?;
    /// let error = query.try_charge(32 << 10).unwrap_err();
    /// assert_eq!(error.to_string(), "/q1 is full: 32.0K requested, 48.0K of max 64.0K in use");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Refused`] when a group's limit, its own or an ancestor's, does not allow it, and what can be
    /// reclaimed there ([`add_reclaimer`](Self::add_reclaimer)) does not make room. Of several that are
    /// full, it names the lowest, and nobody outside of that one is asked to give anything back. More
    /// than some limit on the way allows at all is refused without anybody being asked.
    #[inline(always)]
    #[track_caller]
    pub fn try_charge(self, units: u64) -> Result<Charge<'l>, Refused> {
        if self.take_prepaid(units) {
            return Ok(Charge::new(self, units));
        }
        let flag = self.try_charge_slow(units, Location::caller())?;
        Ok(Charge::with_flag(self, units, flag))
    }

    /// The flag of the charge. (It returns no guard: a caller that makes the same one whichever way it came
    /// need not ask the guard, when it drops, for the group that it knows.)
    #[cold]
    #[inline(never)]
    fn try_charge_slow(self, units: u64, site: &'static Location<'static>) -> Result<u64, Refused> {
        if self.ledger().fold_and_take(self.id(), units) {
            return Ok(0);
        }
        let charge =
            self.charge_otherwise(units, site).map_err(|refusal| self.explain(&refusal))?;
        Ok(charge.into_flag())
    }

    /// As [`try_charge`](Self::try_charge), with the refusal in plain numbers, and not counted: for who
    /// may try again.
    pub(crate) fn try_charge_reclaiming(
        self,
        units: u64,
        site: &'static Location<'static>,
    ) -> Result<Charge<'l>, Refusal> {
        if self.take_prepaid(units) {
            return Ok(Charge::new(self, units));
        }
        self.charge_with_help(units, site)
    }

    #[cold]
    #[inline(never)]
    fn charge_otherwise(
        self,
        units: u64,
        site: &'static Location<'static>,
    ) -> Result<Charge<'l>, Refusal> {
        let result = self.charge_with_help(units, site);
        if let Err(refusal) = &result {
            self.ledger().count_refusal(refusal);
        }
        result
    }

    /// Charges what the running CPU's cell could not serve, with the help of reclaimers where a limit
    /// stands in the way, and has them asked where it ends above a high. A refusal is not counted.
    fn charge_with_help(
        self,
        units: u64,
        site: &'static Location<'static>,
    ) -> Result<Charge<'l>, Refusal> {
        if self.is_off(units) {
            return Ok(Charge::uncounted(self, units));
        }
        let ledger = self.ledger();
        let (id, by) = (self.id(), By::Maker(site));
        let met = match ledger.try_slow(id, units, Limits::Enforced, by) {
            Ok(met) => met,
            Err(refusal) => ledger.reclaim_and_charge(id, units, refusal, by)?,
        };
        let charge = Charge::new(self, units);
        if met != 0 {
            ledger.reclaim_high(id, met);
        }
        Ok(charge)
    }

    /// Whether a charge is not to be counted.
    fn is_off(self, units: u64) -> bool {
        self.row().has(flag::OFF) && units <= COUNTER_MAX && self.exists()
    }

    /// Asks the ledger, where the running CPU's cell could not serve.
    #[cold]
    pub(crate) fn grant(
        self,
        units: u64,
        limits: Limits,
        site: &'static Location<'static>,
    ) -> Result<Charge<'l>, Refusal> {
        if self.is_off(units) {
            return Ok(Charge::uncounted(self, units));
        }
        self.ledger().charge_slow(self.id(), units, limits, By::Maker(site))?;
        Ok(Charge::new(self, units))
    }

    /// Charges `units` even over the limits, for what must not fail; every group that this takes
    /// over its limit counts a `max` event.
    ///
    /// # Errors
    /// Only for a group that was destroyed, and beyond 2^62 units.
    #[inline(always)]
    #[track_caller]
    pub fn charge(self, units: u64) -> Result<Charge<'l>, Refused> {
        if self.take_prepaid(units) {
            return Ok(Charge::new(self, units));
        }
        self.charge_slow(units, Location::caller())
    }

    #[cold]
    #[inline(never)]
    fn charge_slow(
        self,
        units: u64,
        site: &'static Location<'static>,
    ) -> Result<Charge<'l>, Refused> {
        self.grant(units, Limits::Overrun, site).map_err(|refusal| self.explain(&refusal))
    }

    /// As [`try_charge`](Self::try_charge) without a guard, for allocators: it asks no reclaimer, waits for
    /// nobody and allocates nothing, and the caller sees to the matching
    /// [`uncharge_units`](Self::uncharge_units).
    ///
    /// # Errors
    /// [`Refusal`] when a group's limit, its own or an ancestor's, does not allow it.
    #[inline(always)]
    #[track_caller]
    pub fn try_charge_units(&self, units: u64) -> Result<(), Refusal> {
        if self.take_prepaid(units) {
            Ok(())
        } else {
            self.charge_units_slow(units, Limits::Enforced, Location::caller())
        }
    }

    /// As [`charge`](Self::charge) without a guard; asks nobody and allocates nothing, as
    /// [`try_charge_units`](Self::try_charge_units).
    ///
    /// # Errors
    /// As `charge`.
    #[inline(always)]
    #[track_caller]
    pub fn charge_units(&self, units: u64) -> Result<(), Refusal> {
        if self.take_prepaid(units) {
            Ok(())
        } else {
            self.charge_units_slow(units, Limits::Overrun, Location::caller())
        }
    }

    #[cold]
    #[inline(never)]
    fn charge_units_slow(
        self,
        units: u64,
        limits: Limits,
        site: &'static Location<'static>,
    ) -> Result<(), Refusal> {
        self.ledger().charge_slow(self.id(), units, limits, By::Hand(site))
    }

    /// The fast half of a charge: takes what lies prepaid on the running CPU, or changes nothing and
    /// returns `false` (always in machines without compact CPU ids). Then
    /// [`try_charge_units`](Self::try_charge_units) does the whole. For an allocator that keeps everything
    /// else out of the line of its fast path.
    #[inline(always)]
    #[must_use = "without prepaid units nothing was charged"]
    pub fn take_prepaid(&self, units: u64) -> bool {
        // SAFETY: the cell is of a row of the ledger's first column (R2; guarded by `tests/oracle.rs`).
        units <= word::STOCK_MAX
            && unsafe { percpu::take_fast(self.handle.cell.as_ptr(), self.handle.mark, units) }
    }

    /// The fast half of an uncharge, likewise: `false` when the running CPU's cell has no room.
    #[inline(always)]
    #[must_use = "without room nothing was uncharged"]
    pub fn put_prepaid(&self, units: u64) -> bool {
        // SAFETY: as in `take_prepaid`.
        units <= word::STOCK_MAX
            && unsafe { percpu::put_fast(self.handle.cell.as_ptr(), self.handle.mark, units) }
    }

    /// Returns units that were charged to this group by [`try_charge_units`](Self::try_charge_units) or
    /// [`charge_units`](Self::charge_units), from any thread.
    ///
    /// The ledger counts units and does not know whose they are. So returning some twice shows only where
    /// it takes the group's counter below zero, or where the group is gone: that changes nothing and is
    /// counted ([`Ledger::mistakes`]). While the group, or one below it, holds units of others or has some
    /// idle, it takes those, and the group may then use as much more than its limit says. To find such a
    /// mistake, build the ledger with [`LedgerBuilder::audit`](crate::LedgerBuilder::audit).
    #[inline(always)]
    #[track_caller]
    pub fn uncharge_units(&self, units: u64) {
        if !self.put_prepaid(units) {
            self.uncharge_units_slow(units, Location::caller());
        }
    }

    #[cold]
    #[inline(never)]
    fn uncharge_units_slow(self, units: u64, site: &'static Location<'static>) {
        self.ledger().uncharge_slow(self.id(), units, By::Hand(site));
    }

    pub(crate) fn explain(self, refusal: &Refusal) -> Refused {
        Refused::new(RefusedCharge {
            group: self.ledger().group(refusal.group).path(),
            refused_by: refusal.group,
            charged: refusal.charged,
            limit: refusal.limit,
            usage: refusal.usage,
            requested: refusal.requested,
            reason: refusal.reason,
            diagnosis: None,
        })
    }

    /// Creates a group below this one. Names are labels: siblings may share one. They have 1 to [`NAME_MAX`](crate::NAME_MAX) bytes
    /// and hold nothing that steers a terminal ([`name::allows`]). O(depth), no heap.
    ///
    /// # Errors
    /// See [`CreateError`].
    pub fn create(self, name: &str) -> Result<Group<'l>, CreateError> {
        let owner = self.read(|row| row.owner.load(Ordering::Relaxed)).ok_or(CreateError::Gone)?;
        self.create_owned(name, owner)
    }

    pub(crate) fn create_owned(self, name: &str, owner: u32) -> Result<Group<'l>, CreateError> {
        name::check(name).map_err(CreateError::BadName)?;
        let _pass = lock::pass();
        let row = self.row();
        let depth = row.depth() + 1;
        if depth as usize >= DEPTH_MAX {
            return Err(CreateError::TooDeep);
        }
        if !row.add_child(self.id().generation()) {
            return Err(CreateError::Gone);
        }
        // Now the row cannot be destroyed; was it destroyed (and perhaps reused) before?
        if !self.exists() {
            row.remove_child();
            return Err(CreateError::Gone);
        }
        match self.ledger().allocate(self.id().index(), depth, owner, name) {
            Some(id) => {
                self.ledger().row(id.index()).adopt_mode(row);
                Ok(self.ledger().group(id))
            }
            None => {
                row.remove_child();
                Err(CreateError::Full { capacity: self.ledger().capacity() })
            }
        }
    }

    /// Destroys the group. Idle stock goes back to its ancestors; what is still charged is reported
    /// and stays counted in the ancestors until it is returned: the row is kept for so long, so
    /// that a late uncharge finds its owner. O(depth), plus one remote fence if the group was
    /// charged on another CPU.
    ///
    /// # Errors
    /// See [`DestroyError`]; the group then goes on as before.
    pub fn destroy(self) -> Result<Settled<'l>, DestroyError> {
        if self.id().index() == 0 {
            return Err(DestroyError::Root);
        }
        let pass = lock::pass();
        let mut path = RowPath::blank(self.ledger());
        if !self.ledger().find_path(self.id(), &mut path) {
            return Err(DestroyError::Gone);
        }
        let row = self.row();
        if row.state.load(Ordering::Acquire) != state::LIVE {
            return Err(DestroyError::Gone);
        }
        if !row.refuse_children(self.id().generation()) {
            return match row.children() {
                0 => Err(DestroyError::Gone),
                // Another's.
                _ if !self.exists() => Err(DestroyError::Gone),
                children => Err(DestroyError::HasChildren { children }),
            };
        }
        // Now nobody else destroys the row; was it destroyed (and perhaps reused) before?
        if !self.exists() {
            row.accept_children();
            return Err(DestroyError::Gone);
        }
        // From here on no cell of the row is opened, and no walk starts in it. SeqCst, partner of the
        // fence in `Open::announce`: who comes to wait sees this, or is seen below.
        row.state.store(state::RETIRED, Ordering::SeqCst);
        let counter = &row.counter;
        counter.close();
        let Some(idle) = self.ledger().close_cells(&path) else {
            counter.open();
            row.state.store(state::LIVE, Ordering::Release);
            row.accept_children();
            return Err(DestroyError::Busy);
        };
        self.ledger().close_statistics(&path);
        let (charges, uncharges) = self.ledger().own_counts(self.id().index());
        let settled = Settled {
            group: self,
            leftover: counter.usage(),
            idle,
            peak: Estimate::between(counter.peak()),
            charges,
            uncharges,
        };
        let waited_for = self.ledger().has_waiters_after_store();
        if counter.let_go() {
            self.ledger().recycle(self.id().index());
        }
        // Last: until here the parent cannot go, which inherits the counts.
        self.ledger().row(path.row(1)).remove_child();
        // Who waits to charge it waits in vain. (What lay idle rang when it went back.) Outside of the gate:
        // wakers are somebody else's code.
        drop(pass);
        if waited_for {
            self.ledger().tell_of_end(self.id());
        }
        Ok(settled)
    }

    /// Sets the soft limit above which charges count `high` events. A
    /// [`try_charge`](Self::try_charge) or [`request`](Self::request) that asks the counters and ends
    /// above it, by more than what may lie idle ([`Estimate::bound`](crate::Estimate)), has the reclaimers
    /// below asked for the excess ([`add_reclaimer`](Self::add_reclaimer)); one that gave nothing is left
    /// alone for [`LedgerBuilder::reclaim_time`](crate::LedgerBuilder::reclaim_time). Nobody is refused
    /// for it.
    pub fn set_high(self, limit: Limit) {
        self.change(|row| row.counter.limits.high.store(limit.raw(), Ordering::Relaxed));
    }

    /// Sets what is protected from reclaim unless nothing else is left.
    pub fn set_low(self, limit: Limit) {
        self.change(|row| row.counter.limits.low.store(limit.raw(), Ordering::Relaxed));
    }

    /// Sets what is protected from reclaim always.
    pub fn set_min(self, limit: Limit) {
        self.change(|row| row.counter.limits.min.store(limit.raw(), Ordering::Relaxed));
    }

    /// The hard limit.
    pub fn max(self) -> Limit {
        self.read(|row| Limit::units(row.counter.max_as_set())).unwrap_or(Limit::MAX)
    }

    /// The soft limit.
    pub fn high(self) -> Limit {
        self.limit(|limits| &limits.high).unwrap_or(Limit::MAX)
    }

    /// See [`set_low`](Self::set_low).
    pub fn low(self) -> Limit {
        self.limit(|limits| &limits.low).unwrap_or(Limit::ZERO)
    }

    /// See [`set_min`](Self::set_min).
    pub fn min(self) -> Limit {
        self.limit(|limits| &limits.min).unwrap_or(Limit::ZERO)
    }

    fn limit(self, which: fn(&RowLimits) -> &AtomicU64) -> Option<Limit> {
        self.read(|row| Limit::units(which(&row.counter.limits).load(Ordering::Relaxed)))
    }

    /// The highest usage since the group was created or the peak was reset: of granted charges alone,
    /// never of one that was refused. It was at least `value - bound`, and at most `value`, which
    /// includes what lay idle then.
    ///
    /// The bound is what could lie idle when the group was granted that much, at most
    /// [`Estimate::bound`] of then, and a thirty-second; more where other threads disturbed the looks of
    /// those who were granted it. The cells of a group on up to four CPUs are looked at, so that of a
    /// small one the bound is small. A few loads, and a store if the group holds more now than was known.
    pub fn peak(self) -> Estimate {
        self.read(|row| Estimate::between(row.counter.peak())).unwrap_or_default()
    }

    /// Starts the peak anew at the present usage.
    pub fn reset_peak(self) {
        self.change(|row| row.counter.reset_watermark());
    }

    /// Charges that a limit of this very group refused or that went over it (`max` events).
    pub fn max_events(self) -> u64 {
        self.read(|row| row.counter.track.max_events.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Fetches that ended above this group's high (`high` events).
    pub fn high_events(self) -> u64 {
        self.read(|row| row.counter.track.high_events.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Returns the idle stock of the whole subtree to the counters; how much it was. A few
    /// microseconds; for tests and for before a measurement, since charging does it when needed. (Where the
    /// group is destroyed in the middle, the next group of its row may be drained as well.)
    pub fn drain(self) -> u64 {
        let _pass = lock::pass();
        self.read(|_| self.ledger().drain(self.id().index())).unwrap_or(0)
    }

    /// The group's row; of an id that names none, the root's: there is nothing to read, and what
    /// changes a row asks [`exists`](Self::exists) first.
    pub(crate) fn row(self) -> &'l Row {
        let index = self.id().index();
        self.ledger().row(if index < self.ledger().capacity() { index } else { 0 })
    }
}
