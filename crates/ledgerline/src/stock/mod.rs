//! Prepaid units: what a charge does when its CPU's cell cannot serve it.
//!
//! ```text
//! charge(group, n)                                    uncharge(group, n)
//!   take n from the running CPU's cell: done            put n into the running CPU's cell: done
//!   the count is full: fold it, take again              the count is full: fold it, put again
//!   fetch n + surplus from the counters,                no cell yet: open one, put again
//!     leave the surplus in the cell: done               the cell is full: keep half of its cap,
//!   fetch exactly n: done                                 return the rest to the counters
//!   drain the lowest subtree that is full, fetch exactly n
//!   refuse, and name the lowest level that is full
//! ```
//!
//! **How much may lie idle.** A cell holds at most its *cap*, and each level knows the sum of the caps below
//! it, `prepaid` (`caps.rs`). Before a walk is granted, a level whose `prepaid` is too much for what is left
//! below its limit is drained; after one that returned units, a level whose `prepaid` is too much for what is
//! in use. So at every level
//!
//! > idle stock  <=  prepaid  <=  truth / 4 + slack,  and  (max - usage) / 16
//!
//! where the slack is 64 batches or 16 Mi units. A cell never holds more than a sixteenth of what its own
//! group uses, or two batches, or (for a small group) a thirty-second of a batch. Exceptions, all bounded by
//! one cap a cell: a walk inside a signal handler that interrupted a drain cannot drain; and in a ledger that
//! processes share, a process can only drain cells of its own.
//!
//! **A small group's stock is small.** A new group's first fetch takes a quarter more than was asked for, the
//! next ones as much as the group holds, until that is a cell's room (or half of it, once the group does not
//! grow any more).
//!
//! **Idle stock never causes a refusal.** Before a refusal the full subtree is drained, with new
//! caps held off (`draining`), and exactly `n` is asked for again.

pub(crate) mod caps;
pub(crate) mod drain;
pub(crate) mod peak;
pub(crate) mod refusal;
pub(crate) mod transfer;

use crate::control::audit::By;
use crate::control::events::Levels;
use crate::counter::COUNTER_MAX;
use crate::counter::walk::{self, No};
use crate::error::Refusal;
use crate::gate::lock::{self, Inside};
use crate::ledger::Ledger;
use crate::percpu::word;
use crate::report::memory_stat::Sum;
use crate::sync::{Ordering, fence, wait_a_turn};
use crate::table::handle::CAPACITY_MAX;
use crate::table::path::RowPath;
use crate::table::row::{GroupId, state};

/// Whether a charge must succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limits {
    /// A limit that does not allow it refuses it.
    Enforced,
    /// It goes over the limit if need be.
    Overrun,
}

impl Ledger {
    #[cold]
    #[inline(never)]
    pub(crate) fn charge_slow(
        &self,
        id: GroupId,
        n: u64,
        limits: Limits,
        by: By,
    ) -> Result<(), Refusal> {
        if self.fold_and_take(id, n) {
            return Ok(());
        }
        match self.try_slow(id, n, limits, by) {
            Ok(_) => Ok(()),
            Err(refusal) => {
                self.count_refusal(&refusal);
                Err(refusal)
            }
        }
    }

    /// One try, for who may make another: its refusal is not counted yet
    /// ([`count_refusal`](Self::count_refusal)). Says at which levels its walk met a high.
    #[inline(never)]
    pub(crate) fn try_slow(
        &self,
        id: GroupId,
        n: u64,
        limits: Limits,
        by: By,
    ) -> Result<Levels, Refusal> {
        let served = self.take_unlooked(id, n);
        let met = if served { 0 } else { self.charge_otherwise(id, n, limits)? };
        self.count_flow(id, Sum::Charged, n);
        if let Some(audit) = self.audit() {
            audit.charged(self, id, n, by);
        }
        Ok(met)
    }

    /// (Not inlined: its frame is large, and a ledger that keeps flows seldom needs it.)
    #[inline(never)]
    fn charge_otherwise(&self, id: GroupId, n: u64, limits: Limits) -> Result<Levels, Refusal> {
        let take = || n <= word::STOCK_MAX && self.columns().take(self.cell_id(id), n);
        if self.fold_if_full(id) && take() {
            return Ok(0);
        }
        let inside = lock::pass();
        let mut path = RowPath::blank(self);
        if !self.find_path(id, &mut path) || !self.is_live(path.leaf()) {
            return Err(Refusal::gone(id, n));
        }
        if n > COUNTER_MAX {
            return Err(self.refusal(&path, id, n, No::Full { level: 0 }));
        }
        let column = self.columns().current();
        let surplus = surplus(&path, n, self.open_cell(&path, id, column, n));
        if surplus > 0
            && let _hand = InHand::new(&path, surplus)
            && let Ok((surplus, met)) = self.fetch(&path, n, surplus, &inside)
        {
            if surplus > 0 && !self.columns().deposit(self.cell_id(id), surplus) {
                // The thread moved to a column whose cell is closed or full.
                self.give_back(&path, surplus);
            }
            self.count_charge(column, path.leaf());
            return Ok(met);
        }
        let met = self.fetch_exactly(&path, id, n, limits, &inside)?;
        self.count_charge(column, path.leaf());
        Ok(met)
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn uncharge_slow(&self, id: GroupId, n: u64, by: By) {
        if self.fold_and_put(id, n) {
            return;
        }
        if let Some(audit) = self.audit()
            && !audit.allows(self, id, n, by)
        {
            return;
        }
        // Before the units go, which keep the row.
        self.count_flow(id, Sum::Freed, n);
        if self.put_unlooked(id, n) {
            return;
        }
        if !self.uncharge_otherwise(id, n) {
            self.count_flow(id, Sum::Freed, n.wrapping_neg());
        }
    }

    /// `false` if there was nothing to return.
    #[inline(never)]
    fn uncharge_otherwise(&self, id: GroupId, n: u64) -> bool {
        let put = || n <= word::STOCK_MAX && self.columns().put(self.cell_id(id), n);
        if self.fold_if_full(id) && put() {
            return true;
        }
        let _pass = lock::pass();
        let mut path = RowPath::blank(self);
        if !self.find_path(id, &mut path) {
            // A charge of nothing does not keep its group's row.
            if n > 0 {
                self.count_stray();
            }
            return false;
        }
        let column = self.columns().current();
        if self.open_cell(&path, id, column, n) >= n
            && n <= word::STOCK_MAX
            && self.columns().put(self.cell_id(id), n)
        {
            return true;
        }
        let (above, hand) = self.skim(column, &path, id, n);
        self.count_uncharge(column, path.leaf());
        let returned = self.return_units(&path, n.saturating_add(above));
        if !returned && above > 0 {
            // More than was charged: nothing of `n`, but what came from the cell.
            self.return_units(&path, above);
        }
        // First the hand: it writes the very lines that the look reads.
        drop(hand);
        self.trim_for_usage(&path, path.counters());
        returned
    }

    /// Counts units charged or freed, in a ledger that keeps that.
    pub(crate) fn count_flow(&self, id: GroupId, sum: Sum, n: u64) {
        if self.keeps_flows() && n != 0 {
            self.note_sum(id, sum, n as i64);
        }
    }

    /// Asks the counters for `n` and `surplus`; how much surplus was granted, and the levels that
    /// met a limit. Between the reservation and the grant, levels whose idle units have outgrown the
    /// smaller headroom are drained. The cell for which the surplus was meant is closed by that, so
    /// it is not granted.
    fn fetch(
        &self,
        path: &RowPath<'_>,
        n: u64,
        surplus: u64,
        inside: &Inside,
    ) -> Result<(u64, Levels), No> {
        let counters = path.counters();
        walk::try_reserve(counters, n + surplus, inside.patience()).map_err(|refusal| {
            path.free_emptied(self, refusal.emptied);
            refusal.no
        })?;
        self.still_current(path, counters, n + surplus)?;
        let drained = self.trim(path, counters);
        let surplus = if drained && surplus > 0 {
            path.free_emptied(self, walk::cancel(counters, 0, surplus));
            0
        } else {
            surplus
        };
        let met = walk::commit(counters, n + surplus);
        self.announce(path, met);
        self.note_peak(path, counters);
        Ok((surplus, met))
    }

    /// Takes a reservation back if the row was destroyed, and perhaps taken by another group,
    /// between the look at the path and the reservation (which now keeps it from that).
    pub(crate) fn still_current(
        &self,
        path: &RowPath<'_>,
        reserved: &walk::Path<'_>,
        n: u64,
    ) -> Result<(), No> {
        if path.is_current(self) {
            return Ok(());
        }
        path.free_emptied(self, walk::cancel(reserved, 0, n));
        Err(No::Closed { level: 0 })
    }

    /// Asks the counters for exactly `n`. A level whose fullness is idle stock is drained before it
    /// is called full: the lowest first, and one above it when that has room.
    fn fetch_exactly(
        &self,
        path: &RowPath<'_>,
        id: GroupId,
        n: u64,
        limits: Limits,
        inside: &Inside,
    ) -> Result<Levels, Refusal> {
        let (mut held_off, mut waited) = (0u64, 0u64);
        let result = loop {
            match self.fetch(path, n, 0, inside) {
                Ok((_, met)) => break Ok(met),
                Err(No::Full { level }) if held_off >> level & 1 == 0 => {
                    held_off |= 1 << level;
                    let draining = &path.counters()[level].track.draining;
                    draining.fetch_add(1, Ordering::SeqCst);
                    // Partner of the fence in `PageCounter::allow`.
                    fence(Ordering::SeqCst);
                    self.drain_held_off(path.row(level));
                }
                // What stood in the way is in a hand, or was, and is put away by now.
                Err(No::Full { level })
                    if waited >> level & 1 == 0 && path.counters()[level].fits_but_for_hands(n) =>
                {
                    waited |= 1 << level;
                    let mut turn = 0;
                    while turn < inside.patience() && path.counters()[level].waits_for_hands(n) {
                        wait_a_turn(turn);
                        turn += 1;
                    }
                }
                Err(no) => break Err(no),
            }
        };
        for (level, counter) in path.counters().iter().enumerate() {
            if held_off >> level & 1 != 0 {
                counter.track.draining.fetch_sub(1, Ordering::SeqCst);
            }
        }
        match result {
            Ok(met) => Ok(met),
            Err(No::Full { .. }) if limits == Limits::Overrun => {
                let counters = path.counters();
                walk::force_reserve(counters, n, inside.patience())
                    .map_err(|refusal| {
                        path.free_emptied(self, refusal.emptied);
                        refusal.no
                    })
                    .and_then(|()| self.still_current(path, counters, n))
                    .map_err(|no| self.refusal(path, id, n, no))?;
                self.trim(path, counters);
                let met = walk::force_commit(counters, n);
                self.announce(path, met);
                Ok(met)
            }
            Err(no) => Err(self.refusal(path, id, n, no)),
        }
    }

    /// Whether a row takes charges.
    pub(crate) fn is_live(&self, row: u32) -> bool {
        self.row(row).state.load(Ordering::Acquire) == state::LIVE
    }

    /// Returns units to the counters, and drains the levels that have too much idle for what is left;
    /// `false` if they are more than there were (then nothing is).
    pub(crate) fn give_back(&self, path: &RowPath<'_>, n: u64) -> bool {
        let returned = self.return_units(path, n);
        self.trim_for_usage(path, path.counters());
        returned
    }

    /// Returns units, and no more than that.
    pub(crate) fn return_units(&self, path: &RowPath<'_>, n: u64) -> bool {
        let (emptied, result) = walk::uncharge(path.counters(), n);
        if result.is_err() {
            self.count_underflow();
        }
        self.tell_waiters(path.rows());
        path.free_emptied(self, emptied);
        result.is_ok()
    }

    /// Takes what is above half of the cap from the cell that an uncharge of `n` found full; the
    /// caller returns that too.
    fn skim<'p>(
        &self,
        column: u32,
        path: &'p RowPath<'_>,
        id: GroupId,
        n: u64,
    ) -> (u64, Option<InHand<'p>>) {
        let row = path.leaf();
        let cell = self.columns().cell(column, row);
        let word = cell.word.load(Ordering::Acquire);
        if !word::passes(word, self.cell_id(id)) {
            return (0, None);
        }
        let keep = u64::from(cell.cap.load(Ordering::Relaxed)) / 2;
        let above = word::stock(word).saturating_sub(keep);
        // A large `n` by itself does not make the stock too large.
        if above == 0 || n > keep.max(1) * 2 {
            return (0, None);
        }
        let hand = InHand::new(path, above);
        if self.columns().swap(column, row, word, word - above) {
            (above, Some(hand))
        } else {
            (0, None)
        }
    }

    /// Takes from the running column's cell, where the fast path has not looked.
    #[inline]
    fn take_unlooked(&self, id: GroupId, n: u64) -> bool {
        self.unlooked(id) && n <= word::STOCK_MAX && self.columns().take(self.cell_id(id), n)
    }

    /// Puts into it, likewise.
    #[inline]
    fn put_unlooked(&self, id: GroupId, n: u64) -> bool {
        self.unlooked(id) && n <= word::STOCK_MAX && self.columns().put(self.cell_id(id), n)
    }

    /// Whether the cell is still to be looked at, because the fast path does not serve this machine,
    /// or not a ledger that keeps flows or is audited.
    fn unlooked(&self, id: GroupId) -> bool {
        (!self.columns().is_fast() || self.table().detour != 0) && id.index() < CAPACITY_MAX as u32
    }

    /// The commonest slow step by far (one operation in 127): a full count is all that kept the cell from
    /// serving. It comes before everything else and looks at nothing else: in a walk over many groups each
    /// line of the ledger's own that it touches is a miss.
    #[inline]
    pub(crate) fn fold_and_take(&self, id: GroupId, n: u64) -> bool {
        self.table().detour == 0
            && self.fold_if_full(id)
            && n <= word::STOCK_MAX
            && self.columns().take(self.cell_id(id), n)
    }

    /// The same of an uncharge.
    #[inline]
    fn fold_and_put(&self, id: GroupId, n: u64) -> bool {
        self.table().detour == 0
            && self.fold_if_full(id)
            && n <= word::STOCK_MAX
            && self.columns().put(self.cell_id(id), n)
    }

    /// Moves a full count from the word of the running column's cell to the counts beside it.
    fn fold_if_full(&self, id: GroupId) -> bool {
        if id.index() >= self.capacity() {
            return false;
        }
        let column = self.columns().current();
        let word = self.columns().cell(column, id.index()).word.load(Ordering::Relaxed);
        let folded = word::counts_full(word)
            && word::passes(word, self.cell_id(id))
            && self.columns().swap(column, id.index(), word, word::without_counts(word));
        if folded {
            self.add_counts(column, id.index(), word);
        }
        folded
    }

    /// Adds the counts in a word to those beside the cell.
    pub(crate) fn add_counts(&self, column: u32, row: u32, word: u64) {
        let counts = self.counts(column, row);
        counts.charges.fetch_add(word::charges(word), Ordering::Relaxed);
        counts.uncharges.fetch_add(word::uncharges(word), Ordering::Relaxed);
        self.note_changed(column, row);
    }

    pub(crate) fn count_charge(&self, column: u32, row: u32) {
        self.row(row).note_column(column);
        self.counts(column, row).charges.fetch_add(1, Ordering::Relaxed);
        self.note_changed(column, row);
    }

    pub(crate) fn count_uncharge(&self, column: u32, row: u32) {
        self.row(row).note_column(column);
        self.counts(column, row).uncharges.fetch_add(1, Ordering::Relaxed);
        self.note_changed(column, row);
    }
}

/// How much more than `n` to fetch for a cell that has room for so much: half of that, so that both charges
/// and uncharges find some, and all but `n` of it for a group that uses more than ever. Of a small group no
/// more than it holds, and of a new one a quarter of `n`.
fn surplus(path: &RowPath<'_>, n: u64, room: u64) -> u64 {
    let counter = path.counters()[0];
    let usage = counter.usage();
    let grows = usage.saturating_add(n) > counter.watermark();
    let fill = if grows { room.saturating_sub(n).max(room / 2) } else { room / 2 };
    fill.min(usage.saturating_add(n / 4))
}

/// Idle units on their way between the counters and a cell, noted at every level: who is about to
/// be refused there waits for them to be put away (I2), and a reader counts them as idle (I4).
struct InHand<'p> {
    path: &'p RowPath<'p>,
    units: u64,
}

impl<'p> InHand<'p> {
    fn new(path: &'p RowPath<'_>, units: u64) -> Self {
        // The root first and last, as walks do: an ancestor has noted what those below it have.
        for counter in path.counters().iter().rev() {
            counter.track.in_hand.add(units);
        }
        InHand { path, units }
    }
}

impl Drop for InHand<'_> {
    fn drop(&mut self) {
        for counter in self.path.counters() {
            counter.track.in_hand.take(self.units);
        }
    }
}
