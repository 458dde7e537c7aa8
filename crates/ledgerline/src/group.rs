//! The public door: groups, what they hold, what they may hold.

use crate::charge::Charge;
use crate::error::{Busy, CreateError, DestroyError, Reason, Refusal, Refused};
use crate::ledger::{DEPTH_MAX, Ledger};
use crate::lock;
use crate::memory_stat::Sum;
use crate::page_counter::COUNTER_MAX;
use crate::path::RowPath;
use crate::percpu;
use crate::percpu::word::{self, Cell};
use crate::row::{GroupId, NAME_MAX, Row, flag, state};
use crate::size::Limit;
use crate::stock::Limits;
use crate::sync::Ordering;
use crate::table::{CAPACITY_MAX, Table};
use std::marker::PhantomData;
use std::time::Instant;

/// A group of a ledger: a query, a tenant, a thread, a process. A copyable handle of two words.
///
/// Charging and uncharging take about a nanosecond and are async-signal-safe. A handle of a group
/// that was destroyed is refused, not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group<'l> {
    /// The row's cell in the first column of the ledger. R2: of the row that `id` names.
    cell: *const Cell,
    id: GroupId,
    ledger: PhantomData<&'l Ledger>,
}

/// Two, so that a walk over many handles leaves room in the cache for their cells.
const _: () = assert!(size_of::<Group<'_>>() == 16);

// SAFETY: the pointer is into the ledger's region, which is shared through atomics and sections
// only, and which `'l` keeps mapped (R1).
unsafe impl Send for Group<'_> {}
// SAFETY: as above.
unsafe impl Sync for Group<'_> {}

/// What was found when a group was destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled<'l> {
    /// The group that was destroyed.
    pub group: Group<'l>,
    /// Units still charged to it, or to groups below that were destroyed before it: a leak, or charges
    /// that are still on their way back. They stay counted in the group's ancestors until they are
    /// returned. What can be said of them: [`leak`](Settled::leak).
    pub leftover: u64,
    /// Units that lay prepaid in its cells and went back to the ancestors.
    pub idle: u64,
    /// Its highest usage.
    pub peak: u64,
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
            && id.generation() & self.table().flows == 0;
        let id = if named { id } else { GroupId::NOBODY };
        Group { cell: self.columns().first(id.index()), id, ledger: PhantomData }
    }
}

impl<'l> Group<'l> {
    /// The group's number, which outlives the handle.
    pub fn id(self) -> GroupId {
        self.id
    }

    /// Its ledger.
    pub fn ledger(self) -> &'l Ledger {
        // SAFETY: R2, and `'l` keeps the ledger from being dropped.
        unsafe { Table::of(self.cell, self.id.index()) }.ledger()
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
    /// reclaimed there ([`add_reclaimer`](Self::add_reclaimer)) does not make room.
    #[inline]
    pub fn try_charge(self, units: u64) -> Result<Charge<'l>, Refused> {
        if self.take_prepaid(units) {
            return Ok(Charge::new(self, units));
        }
        self.charge_otherwise(units).map_err(|refusal| self.explain(&refusal))
    }

    /// As [`try_charge`](Self::try_charge), with the refusal in plain numbers.
    pub(crate) fn try_charge_reclaiming(self, units: u64) -> Result<Charge<'l>, Refusal> {
        if self.take_prepaid(units) {
            return Ok(Charge::new(self, units));
        }
        self.charge_otherwise(units)
    }

    #[cold]
    #[inline(never)]
    fn charge_otherwise(self, units: u64) -> Result<Charge<'l>, Refusal> {
        match self.grant(units, Limits::Enforced) {
            Err(refusal) => self.reclaim_and_charge(units, refusal),
            granted => granted,
        }
    }

    /// Asks the ledger, where the running CPU's cell could not serve.
    #[cold]
    pub(crate) fn grant(self, units: u64, limits: Limits) -> Result<Charge<'l>, Refusal> {
        if self.row().has(flag::OFF) && units <= COUNTER_MAX && self.exists() {
            return Ok(Charge::uncounted(self, units));
        }
        self.ledger().charge_slow(self.id, units, limits)?;
        Ok(Charge::new(self, units))
    }

    /// Has the reclaimers of what is full make room, as long as that is of use.
    #[cold]
    fn reclaim_and_charge(self, units: u64, mut refusal: Refusal) -> Result<Charge<'l>, Refusal> {
        let ledger = self.ledger();
        if ledger.table().pressure.can_help() {
            let until = Instant::now() + ledger.table().reclaim_time;
            let mut tries = 0;
            while refusal.reason == Reason::Limit && ledger.reclaim(&refusal, until) {
                tries += 1;
                match self.grant(units, Limits::Enforced) {
                    Ok(charge) => {
                        // Not refused after all, however often the limit was met.
                        ledger.note_sum(self.id(), Sum::Refused, -tries);
                        return Ok(charge);
                    }
                    Err(again) => refusal = again,
                }
            }
            // One charge was refused, not each of its tries.
            ledger.note_sum(self.id(), Sum::Refused, -tries);
        }
        Err(refusal)
    }

    /// Charges `units` even over the limits, for what must not fail; every group that this takes
    /// over its limit counts a `max` event.
    ///
    /// # Errors
    /// Only for a group that was destroyed, and beyond 2^62 units.
    #[inline]
    pub fn charge(self, units: u64) -> Result<Charge<'l>, Refused> {
        if self.take_prepaid(units) {
            return Ok(Charge::new(self, units));
        }
        self.grant(units, Limits::Overrun).map_err(|refusal| self.explain(&refusal))
    }

    /// As [`try_charge`](Self::try_charge) without a guard, for allocators: nothing is allocated,
    /// and the caller sees to the matching [`uncharge_units`](Self::uncharge_units).
    ///
    /// # Errors
    /// As `try_charge`.
    #[inline(always)]
    pub fn try_charge_units(&self, units: u64) -> Result<(), Refusal> {
        if self.take_prepaid(units) {
            Ok(())
        } else {
            self.ledger().charge_slow(self.id, units, Limits::Enforced)
        }
    }

    /// As [`charge`](Self::charge) without a guard.
    ///
    /// # Errors
    /// As `charge`.
    #[inline(always)]
    pub fn charge_units(&self, units: u64) -> Result<(), Refusal> {
        if self.take_prepaid(units) {
            Ok(())
        } else {
            self.ledger().charge_slow(self.id, units, Limits::Overrun)
        }
    }

    /// The fast half of a charge: takes what lies prepaid on the running CPU, or changes nothing and
    /// returns `false` (always in machines without compact CPU ids). Then [`try_charge_units`](Self::try_charge_units) does the whole. For an
    /// allocator that keeps everything else out of the line of its fast path.
    #[inline(always)]
    #[must_use = "without prepaid units nothing was charged"]
    pub fn take_prepaid(&self, units: u64) -> bool {
        // SAFETY: `cell` and `id` are of one row of the ledger (R2).
        units <= word::STOCK_MAX && unsafe { percpu::take_fast(self.cell, self.id.raw(), units) }
    }

    /// The fast half of an uncharge, likewise: `false` when the running CPU's cell has no room.
    #[inline(always)]
    #[must_use = "without room nothing was uncharged"]
    pub fn put_prepaid(&self, units: u64) -> bool {
        // SAFETY: as in `take_prepaid`.
        units <= word::STOCK_MAX && unsafe { percpu::put_fast(self.cell, self.id.raw(), units) }
    }

    /// Returns units that were charged to this group, from any thread. Returning more than was
    /// charged changes nothing and is counted ([`Ledger::mistakes`]) when it shows.
    #[inline(always)]
    pub fn uncharge_units(&self, units: u64) {
        if !self.put_prepaid(units) {
            self.ledger().uncharge_slow(self.id, units);
        }
    }

    pub(crate) fn explain(self, refusal: &Refusal) -> Refused {
        Refused {
            group: self.ledger().group(refusal.group).path(),
            refused_by: refusal.group,
            charged: refusal.charged,
            limit: refusal.limit,
            usage: refusal.usage,
            requested: refusal.requested,
            reason: refusal.reason,
            diagnosis: None,
        }
    }

    /// Creates a group below this one. Names are labels: siblings may share one. O(depth), no heap.
    ///
    /// # Errors
    /// See [`CreateError`].
    pub fn create(self, name: &str) -> Result<Group<'l>, CreateError> {
        let owner = self.row().owner.load(Ordering::Relaxed);
        self.create_owned(name, owner)
    }

    pub(crate) fn create_owned(self, name: &str, owner: u32) -> Result<Group<'l>, CreateError> {
        if name.is_empty()
            || name.len() > NAME_MAX
            || name.bytes().any(|byte| byte == b'/' || byte.is_ascii_control())
        {
            return Err(CreateError::BadName);
        }
        let _pass = lock::pass();
        let row = self.row();
        let depth = row.depth() + 1;
        if depth as usize >= DEPTH_MAX {
            return Err(CreateError::TooDeep);
        }
        if !row.add_child() {
            return Err(CreateError::Gone);
        }
        // Now the row cannot be destroyed; was it destroyed (and perhaps reused) before?
        if !self.exists() {
            row.remove_child();
            return Err(CreateError::Gone);
        }
        match self.ledger().allocate(self.id.index(), depth, owner, name) {
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
        if self.id.index() == 0 {
            return Err(DestroyError::Root);
        }
        let _pass = lock::pass();
        let path = self.ledger().path(self.id).ok_or(DestroyError::Gone)?;
        let row = self.row();
        if row.state.load(Ordering::Acquire) != state::LIVE {
            return Err(DestroyError::Gone);
        }
        if !row.refuse_children() {
            return match row.children() {
                0 => Err(DestroyError::Gone),
                children => Err(DestroyError::HasChildren { children }),
            };
        }
        // Now nobody else destroys the row; was it destroyed (and perhaps reused) before?
        if !self.exists() {
            row.accept_children();
            return Err(DestroyError::Gone);
        }
        // From here on no cell of the row is opened, and no walk starts in it.
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
        let (charges, uncharges) = self.ledger().own_counts(self.id.index());
        let settled = Settled {
            group: self,
            leftover: counter.usage(),
            idle,
            peak: counter.watermark(),
            charges,
            uncharges,
        };
        // Who waits to charge it waits in vain.
        self.ledger().tell_waiters(path.rows());
        if counter.let_go() {
            self.ledger().recycle(self.id.index());
        }
        // Last: until here the parent cannot go, which inherits the counts.
        self.ledger().row(path.row(1)).remove_child();
        Ok(settled)
    }

    /// Sets the hard limit. Idle stock below the group is returned first if it stands in the way.
    ///
    /// # Errors
    /// [`Busy`] when more than that is in use; the limit then stays as it was. (A limit that does
    /// not hold is never visible to chargers, not even for a moment.) A group that was destroyed
    /// has no limit to set: `Busy` with a usage of zero.
    pub fn set_max(self, limit: Limit) -> Result<(), Busy> {
        let _pass = lock::pass();
        if !self.exists() {
            return Err(Busy { usage: 0, limit: limit.raw() });
        }
        let counter = &self.row().counter;
        // Twice: stock may be fetched between the drain and the next try; then it is small, since
        // caps are held off while `draining` is set.
        let try_set = || counter.set_max(limit.raw(), || self.exists());
        let result = try_set().or_else(|_| {
            counter.track.draining.fetch_add(1, Ordering::SeqCst);
            crate::sync::fence(Ordering::SeqCst);
            self.ledger().drain(self.id.index());
            let result = try_set();
            counter.track.draining.fetch_sub(1, Ordering::SeqCst);
            result
        });
        match result {
            // The group was destroyed meanwhile, and this was the last to hold on to its row.
            Ok(true) => self.ledger().recycle(self.id.index()),
            // A lower limit leaves less headroom for what already lies idle.
            Ok(false) if counter.overstocked() => {
                self.ledger().drain(self.id.index());
            }
            _ => {}
        }
        self.ledger().tell_waiters(&[self.id().index()]);
        result.map(|_| ()).map_err(|in_use| Busy { usage: in_use.usage, limit: limit.raw() })
    }

    /// Sets the soft limit above which charges count `high` events.
    pub fn set_high(self, limit: Limit) {
        if self.exists() {
            self.row().counter.limits.high.store(limit.raw(), Ordering::Relaxed);
        }
    }

    /// Sets what is protected from reclaim unless nothing else is left.
    pub fn set_low(self, limit: Limit) {
        if self.exists() {
            self.row().counter.limits.low.store(limit.raw(), Ordering::Relaxed);
        }
    }

    /// Sets what is protected from reclaim always.
    pub fn set_min(self, limit: Limit) {
        if self.exists() {
            self.row().counter.limits.min.store(limit.raw(), Ordering::Relaxed);
        }
    }

    /// The hard limit.
    pub fn max(self) -> Limit {
        Limit::units(self.row().counter.max_as_set())
    }

    /// The soft limit.
    pub fn high(self) -> Limit {
        Limit::units(self.row().counter.limits.high.load(Ordering::Relaxed))
    }

    /// See [`set_low`](Self::set_low).
    pub fn low(self) -> Limit {
        Limit::units(self.row().counter.limits.low.load(Ordering::Relaxed))
    }

    /// See [`set_min`](Self::set_min).
    pub fn min(self) -> Limit {
        Limit::units(self.row().counter.limits.min.load(Ordering::Relaxed))
    }

    /// The highest usage since the group was created or the peak was reset: of granted charges
    /// alone, never of one that was refused. Includes what lay idle at that moment, at most
    /// [`Estimate::bound`](crate::Estimate) of then.
    pub fn peak(self) -> u64 {
        self.row().counter.watermark()
    }

    /// Starts the peak anew at the present usage.
    pub fn reset_peak(self) {
        if self.exists() {
            self.row().counter.reset_watermark();
        }
    }

    /// Charges that a limit of this very group refused or that went over it (`max` events).
    pub fn max_events(self) -> u64 {
        self.row().counter.track.max_events.load(Ordering::Relaxed)
    }

    /// Fetches that ended above this group's high (`high` events).
    pub fn high_events(self) -> u64 {
        self.row().counter.track.high_events.load(Ordering::Relaxed)
    }

    /// Returns the idle stock of the whole subtree to the counters; how much it was. A few
    /// microseconds; for tests and for before a measurement, since charging does it when needed.
    pub fn drain(self) -> u64 {
        let _pass = lock::pass();
        self.ledger().drain(self.id.index())
    }

    /// Whether the group exists (was not destroyed).
    pub fn exists(self) -> bool {
        let row = self.row();
        self.id.index() < self.ledger().capacity()
            && row.state.load(Ordering::Acquire) == state::LIVE
            && row.generation() == self.id.generation()
    }

    /// Its name; `/` for the root.
    pub fn name(self) -> String {
        if self.id.index() == 0 { "/".into() } else { self.row().name() }
    }

    /// Its parent; `None` for the root.
    pub fn parent(self) -> Option<Group<'l>> {
        (self.id.index() != 0).then(|| {
            let index = self.row().parent.load(Ordering::Relaxed).min(self.ledger().capacity() - 1);
            let generation = self.ledger().row(index).generation();
            self.ledger().group(GroupId::from_parts(index, generation))
        })
    }

    /// Its path, like a cgroup's: `/acme/q42`, and `/` for the root.
    pub fn path(self) -> String {
        match RowPath::new(self.ledger(), self.id.index()) {
            Some(path) if path.rows().len() > 1 => {
                let names = path.rows().iter().rev().skip(1);
                names.map(|&row| format!("/{}", self.ledger().row(row).name())).collect()
            }
            _ => "/".into(),
        }
    }

    /// The group's row; of an id that names none, the root's: there is nothing to read, and what
    /// changes a row asks [`exists`](Self::exists) first.
    pub(crate) fn row(self) -> &'l Row {
        let index = self.id.index();
        self.ledger().row(if index < self.ledger().capacity() { index } else { 0 })
    }
}
