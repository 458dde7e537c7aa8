//! Prepaid units: what a charge does when its CPU's cell cannot serve it.
//!
//! ```text
//! charge(group, n)                                    uncharge(group, n)
//!   take n from the running CPU's cell: done            put n into the running CPU's cell: done
//!   the count is full: fold it, take again              the count is full: fold it, put again
//!   fetch n + surplus from the counters,                no cell yet: open one, put again
//!     leave the surplus in the cell: done               the cell is full: keep half of its cap,
//!   fetch exactly n: done                                 return the rest to the counters
//!   drain the subtree that is full, fetch exactly n
//!   refuse, and name the level that is full
//! ```
//!
//! **How much may lie idle.** A cell holds at most its *cap*. A cap is granted by the group's whole
//! path: each level adds it to `prepaid`, the sum of the caps below it, and grants nothing beyond a
//! thirty-second of its headroom. When a walk leaves a level with less headroom than sixteen times its
//! `prepaid`, the subtree is drained before the walk is granted. So at every level
//!
//! > idle stock  <=  prepaid  <=  (max - usage) / 16
//!
//! and a cell never holds more than a sixteenth of what its own group uses, or two batches, or (for
//! a small group) a thirty-second of a batch. Exceptions, all bounded by one cap a cell: a walk inside a
//! signal handler that interrupted a drain cannot drain; and in a ledger that processes share, a
//! process can only drain cells of its own.
//!
//! **Idle stock never causes a refusal.** Before a refusal the full subtree is drained, with new
//! caps held off (`draining`), and exactly `n` is asked for again.

use crate::error::{Reason, Refusal};
use crate::ledger::Ledger;
use crate::lock::{self, Inside};
use crate::memory_stat::Sum;
use crate::page_counter::COUNTER_MAX;
use crate::path::RowPath;
use crate::percpu::word;
use crate::row::{GroupId, Row, flag, state};
use crate::sync::{Ordering, fence, wait_a_turn};
use crate::table::CAPACITY_MAX;
use crate::walk::{self, No};

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
    pub(crate) fn charge_slow(&self, id: GroupId, n: u64, limits: Limits) -> Result<(), Refusal> {
        if self.is_reclaiming(id) {
            return Err(Refusal::reclaiming(id, n));
        }
        if self.take_unlooked(id, n) {
            self.count_flow(id, Sum::Charged, n);
            return Ok(());
        }
        let result = self.charge_otherwise(id, n, limits);
        match &result {
            Ok(()) => self.count_flow(id, Sum::Charged, n),
            Err(refusal) if refusal.reason == Reason::Limit => {
                self.note_sum(id, Sum::Refused, 1);
            }
            Err(_) => {}
        }
        result
    }

    /// (Not inlined: its frame is large, and a ledger that keeps flows seldom needs it.)
    #[inline(never)]
    fn charge_otherwise(&self, id: GroupId, n: u64, limits: Limits) -> Result<(), Refusal> {
        let take = || n <= word::STOCK_MAX && self.columns().take(self.cell_id(id), n);
        if self.fold_if_full(id) && take() {
            return Ok(());
        }
        let inside = lock::pass();
        let Some(path) = self.path(id).filter(|path| self.is_live(path.leaf())) else {
            return Err(Refusal::gone(id, n));
        };
        if n > COUNTER_MAX {
            return Err(self.refusal(&path, id, n, No::Full { level: path.rows().len() - 1 }));
        }
        let column = self.columns().current();
        let surplus = self.open_cell(&path, id, column, n) / 2;
        if surplus > 0
            && let _hand = InHand::new(&path, surplus)
            && let Ok(surplus) = self.fetch(&path, n, surplus, &inside)
        {
            if surplus > 0 && !self.columns().deposit(self.cell_id(id), surplus) {
                // The thread moved to a column whose cell is closed or full.
                self.give_back(&path, surplus);
            }
            self.count_charge(column, path.leaf());
            return Ok(());
        }
        self.fetch_exactly(&path, id, n, limits, &inside)?;
        self.count_charge(column, path.leaf());
        Ok(())
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn uncharge_slow(&self, id: GroupId, n: u64) {
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
        let Some(path) = self.path(id) else {
            // A charge of nothing does not keep its group's row.
            if n > 0 {
                self.count_stray();
            }
            return false;
        };
        let column = self.columns().current();
        if self.open_cell(&path, id, column, n) >= n
            && n <= word::STOCK_MAX
            && self.columns().put(self.cell_id(id), n)
        {
            return true;
        }
        let (above, _hand) = self.skim(column, &path, id, n);
        self.count_uncharge(column, path.leaf());
        let returned = self.give_back(&path, n.saturating_add(above));
        if !returned && above > 0 {
            // More than was charged: nothing of `n`, but what came from the cell.
            self.give_back(&path, above);
        }
        returned
    }

    /// Counts units charged or freed, in a ledger that keeps that.
    pub(crate) fn count_flow(&self, id: GroupId, sum: Sum, n: u64) {
        if self.keeps_flows() && n != 0 {
            self.note_sum(id, sum, n as i64);
        }
    }

    /// Asks the counters for `n` and `surplus`; how much surplus was granted. Between the
    /// reservation and the grant, levels whose idle units have outgrown the smaller headroom are
    /// drained. The cell for which the surplus was meant is closed by that, so it is not granted.
    fn fetch(&self, path: &RowPath<'_>, n: u64, surplus: u64, inside: &Inside) -> Result<u64, No> {
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
        self.announce(path, walk::commit(counters, n + surplus));
        Ok(surplus)
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

    /// Drains the levels whose idle units have outgrown their headroom; whether there were any.
    pub(crate) fn trim(&self, path: &RowPath<'_>, counters: &walk::Path<'_>) -> bool {
        let mut drained = false;
        for (level, counter) in counters.iter().enumerate().rev() {
            if counter.overstocked() {
                self.drain(path.row(level));
                drained = true;
            }
        }
        drained
    }

    /// Asks the counters for exactly `n`, draining what is full first.
    fn fetch_exactly(
        &self,
        path: &RowPath<'_>,
        id: GroupId,
        n: u64,
        limits: Limits,
        inside: &Inside,
    ) -> Result<(), Refusal> {
        let mut held_off = 0u64;
        let mut waited = false;
        let result = loop {
            match self.fetch(path, n, 0, inside) {
                Ok(_) => break Ok(()),
                Err(No::Full { level }) if held_off >> level & 1 == 0 => {
                    held_off |= 1 << level;
                    let draining = &path.counters()[level].track.draining;
                    draining.fetch_add(1, Ordering::SeqCst);
                    // Partner of the fence in `PageCounter::allow`.
                    fence(Ordering::SeqCst);
                    self.drain(path.row(level));
                }
                // What stood in the way is in a hand, or was, and is put away by now.
                Err(No::Full { level })
                    if !waited && path.counters()[level].fits_but_for_hands(n) =>
                {
                    waited = true;
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
            Ok(()) => Ok(()),
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
                self.announce(path, walk::force_commit(counters, n));
                Ok(())
            }
            Err(no) => {
                if let No::Full { level } = no {
                    path.counters()[level].count_refusal();
                    self.announce(path, 1 << level);
                }
                Err(self.refusal(path, id, n, no))
            }
        }
    }

    /// Whether a row takes charges.
    pub(crate) fn is_live(&self, row: u32) -> bool {
        self.row(row).state.load(Ordering::Acquire) == state::LIVE
    }

    pub(crate) fn refusal(
        &self,
        path: &RowPath<'_>,
        charged: GroupId,
        requested: u64,
        no: No,
    ) -> Refusal {
        let (level, reason) = match no {
            No::Full { level } => (level, Reason::Limit),
            // The row may be another group's by now.
            No::Closed { level: 0 } => return Refusal::gone(charged, requested),
            No::Closed { level } => (level, Reason::Gone),
        };
        let index = path.row(level);
        let counter = path.counters()[level];
        Refusal {
            group: GroupId::from_parts(index, self.row(index).generation()),
            charged,
            limit: counter.max(),
            usage: counter.usage(),
            requested,
            reason,
        }
    }

    /// Returns units to the counters; `false` if they are more than there were (then nothing is).
    pub(crate) fn give_back(&self, path: &RowPath<'_>, n: u64) -> bool {
        let (emptied, result) = walk::uncharge(path.counters(), n);
        if result.is_err() {
            self.count_underflow();
        }
        self.tell_waiters(path.rows());
        path.free_emptied(self, emptied);
        result.is_ok()
    }

    /// Makes sure that the group's cell in the column is open and as large as the group's usage and
    /// its ancestors' headroom allow; returns how many more units it may hold, zero if it is closed.
    fn open_cell(&self, path: &RowPath<'_>, id: GroupId, column: u32, n: u64) -> u64 {
        let row = self.row(path.leaf());
        // A cell has one writing process, and a destroyed group needs none.
        if row.owner.load(Ordering::Relaxed) != self.process() || !self.is_live(path.leaf()) {
            return 0;
        }
        let cell = self.columns().cell(column, path.leaf());
        let room = |cap: u64| cap.saturating_sub(word::stock(cell.word.load(Ordering::Relaxed)));
        let open = || word::passes(cell.word.load(Ordering::Acquire), self.cell_id(id));
        let cap = if open() { u64::from(cell.cap.load(Ordering::Relaxed)) } else { 0 };
        let wanted = self.wanted_cap(row, path, n);
        if wanted < cap.saturating_mul(2).max(1) {
            return if open() { room(cap) } else { 0 };
        }
        let Some(_held) = lock::try_lock() else {
            return if open() { room(cap) } else { 0 };
        };
        // Again under the lock: `destroy` retires the row before it takes the lock to close cells.
        // (And the row may have been another group's since the path was followed.)
        // (A group that is not accounted keeps no cell: mode.rs.)
        if row.state.load(Ordering::SeqCst) != state::LIVE
            || !path.is_current(self)
            || row.has(flag::OFF)
        {
            return 0;
        }
        let cap = if open() { u64::from(cell.cap.load(Ordering::Relaxed)) } else { 0 };
        let more = wanted.saturating_sub(cap);
        if more == 0 || !allow(path, more) {
            return if open() { room(cap) } else { 0 };
        }
        row.note_column(column);
        cell.cap.store((cap + more) as u32, Ordering::Relaxed);
        if cap == 0 {
            self.stocked(column).insert(path.leaf());
        }
        if !open() {
            cell.open(word::empty(self.cell_generation(row)));
        }
        room(cap + more)
    }

    /// The cap that a cell should have: two batches, but no more than a sixteenth of what the group
    /// uses (so that a small group's account is not mostly stock) and half of what the tightest
    /// ancestor still allows (so that the next cell finds some too). A power of two, so that it
    /// changes seldom.
    fn wanted_cap(&self, row: &Row, path: &RowPath<'_>, n: u64) -> u64 {
        let smallest = (self.batch() / 32).max(2);
        let usage = row.counter.usage().saturating_add(n);
        let mut wanted = (self.batch() * 2).min((usage / 16).max(smallest));
        for counter in path.counters() {
            if counter.max() < COUNTER_MAX {
                let prepaid = counter.track.prepaid.load(Ordering::Relaxed);
                wanted = wanted.min((counter.headroom() / 32).saturating_sub(prepaid) / 2);
            }
        }
        match wanted.min(word::STOCK_MAX).checked_ilog2() {
            Some(bits) if bits > 0 => 1 << bits,
            _ => 0,
        }
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
    /// or not a ledger that keeps flows.
    fn unlooked(&self, id: GroupId) -> bool {
        (!self.columns().is_fast() || self.keeps_flows()) && id.index() < CAPACITY_MAX as u32
    }

    /// Moves a full count from the word of the running column's cell to the counts beside it. The
    /// commonest slow step (one operation in 127), so it comes before everything else.
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
            counter.track.in_hand.fetch_add(units, Ordering::SeqCst);
        }
        InHand { path, units }
    }
}

impl Drop for InHand<'_> {
    fn drop(&mut self) {
        for counter in self.path.counters() {
            counter.track.in_hand.fetch_sub(self.units, Ordering::SeqCst);
        }
    }
}

/// Asks every level for `units` of cap, or none. The root first, as walks do: a process that is
/// killed in between leaves no ancestor with less than the levels below it.
fn allow(path: &RowPath<'_>, units: u64) -> bool {
    let counters = path.counters();
    for (level, counter) in counters.iter().enumerate().rev() {
        if !counter.allow(units) {
            for above in &counters[level + 1..] {
                above.disallow(units);
            }
            return false;
        }
    }
    true
}
