//! What `memory.stat` says of a group: sums beside the stock, for the group and for its subtree.
//!
//! ```text
//! add(group, item, n)                                 collect, with the stock lock
//!   the running CPU's cell has the group's tag:         clear the tag of every cell that changed
//!     add n to the item's sum there: done               fence: no section that saw a tag still runs
//!   otherwise, with the stock lock: note that           each of them: move its sums to the totals of
//!     the cell changed, set its tag, add again            the row, and of the subtree of every ancestor
//!   the lock is taken: add to the totals instead
//! ```
//!
//! So a cell holds what was added since it was last collected, and a reader's cost is what changed
//! since the last reading, times the depth: an idle group costs nothing, however many CPUs ran it.
//! The blocks (charges and uncharges) are counted in the charge words anyway, and the events in the
//! rows; the totals remember how many were collected (`COUNTED`), and a reader drains the subtree,
//! which folds the words.
//!
//! Invariant S1: a sum is written by sections of its tag's group alone while the tag is set, and by
//! the holder of the stock lock, after the fence, while it is not. Whoever sets a tag holds the lock
//! too. Invariant S2: a row whose cell has a tag, or whose counts changed, is in the column's set of
//! changed rows.
//!
//! Where sections do not work (the fallback), and for rows of other processes, additions go to the
//! totals at once: two atomic additions a level.

use crate::control::events::Events;
use crate::gate::lock::{self, Held};
use crate::group::Group;
use crate::ledger::Ledger;
use crate::sync::Ordering;
use crate::table::items::StatItem;
use crate::table::path::RowPath;
use crate::table::row::{GroupId, state};

/// Sums of a cell; the user's come behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Sum {
    Charged,
    Freed,
    Refused,
    Reclaimed,
    /// Times, and microseconds, that charges were slowed down (throttle.rs).
    Throttled,
    ThrottledTime,
    /// Events (events.rs) that the rows do not count themselves.
    Low,
    Oom,
    OomKill,
    OomGroupKill,
}

/// Sums that every ledger has.
pub(crate) const FIXED: usize = 10;
/// Tries at a reading that no other process's collection disturbs.
const TRIES: usize = 1000;
/// In the totals, before the sums: what the rows count elsewhere, as far as it was collected. Charges
/// and uncharges (the blocks), `max` and `high` events.
const COUNTED: usize = 4;
/// The first of them, which a row that is freed hands on with the counts in its columns.
const BLOCKS: usize = 2;

/// Words of a row's cell: the tag and the sums.
pub(crate) const fn cell_words(items: usize) -> usize {
    1 + FIXED + items
}

/// Words of a row's totals: the row's own, and its subtree's.
pub(crate) const fn total_words(items: usize) -> usize {
    2 * (COUNTED + FIXED + items)
}

/// One line of a group's [`MemoryStat`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StatLine {
    /// The item's name, as `memory.stat` prints it.
    pub name: String,
    /// What this very group counted.
    pub own: i64,
    /// What the group, its descendants and its destroyed descendants counted.
    pub subtree: i64,
}

/// What a group and its subtree counted: made by [`Group::stat`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryStat {
    /// The fixed items first, then the ledger's own in the order of their declaration.
    pub lines: Vec<StatLine>,
}

impl MemoryStat {
    /// The line of an item.
    pub fn get(&self, name: &str) -> Option<&StatLine> {
        self.lines.iter().find(|line| line.name == name)
    }
}

impl std::fmt::Display for MemoryStat {
    /// The lines of cgroup v2's `memory.stat`: a name and what the subtree counted.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.lines.iter().try_for_each(|line| writeln!(f, "{} {}", line.name, line.subtree))
    }
}

impl Group<'_> {
    /// Adds `n` to one of the ledger's own items ([`Ledger::item`]).
    ///
    /// About a nanosecond; async-signal-safe. An item that the ledger does not have and a group that does not
    /// exist change nothing and are counted ([`Ledger::mistakes`]). In the fallback an addition that races with
    /// the group's end may count for the row's next group.
    ///
    /// ```
    /// # use ledgerline::Ledger;
    /// let ledger = Ledger::builder().items(&["rows_read", "spills"]).anonymous()?;
    /// let tenant = ledger.root().create("acme")?;
    /// let query = tenant.create("q1")?;
    /// let rows_read = ledger.item("rows_read").expect("declared above");
    /// query.add_stat(rows_read, 1000);
    /// let stat = tenant.stat();
    /// let rows = stat.get("rows_read").unwrap();
    /// assert_eq!((rows.own, rows.subtree), (0, 1000));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn add_stat(&self, item: StatItem, n: i64) {
        let ledger = self.ledger();
        if item.index() >= ledger.table().plan.items {
            return ledger.count_stray();
        }
        ledger.add_sum(self.id(), FIXED + item.index(), n);
    }

    /// Notes that `units` of this group were reclaimed (given back by a cache under pressure).
    pub fn add_reclaimed(&self, units: u64) {
        let units = i64::try_from(units).unwrap_or(i64::MAX);
        self.ledger().add_sum(self.id(), Sum::Reclaimed as usize, units);
    }

    /// The statistics of this group and of its subtree, as `memory.stat` prints them:
    ///
    /// * `charged`, `freed`: units, in a ledger that [keeps flows](crate::LedgerBuilder::flows);
    /// * `blocks_live`, `blocks_total`: charges that were not returned yet, and all (what is split counts as
    ///   two from then on, what is merged as one; units without a guard count each time they are returned);
    /// * `refused`: charges of the group that were refused, by whomever;
    /// * `reclaimed`: units, see [`add_reclaimed`](Self::add_reclaimed);
    /// * `throttled`, `throttled_usec`: charges above high that were slowed down, and by how much;
    /// * the ledger's own items.
    ///
    /// Exact when writers are still; otherwise each number was true at some moment of the call. What a destroyed group
    /// counted stays in its ancestors' subtrees (and in its parent's own blocks); its own lines are zeros. Costs
    /// what changed since the last call, times the depth; it drains the subtree, so that each cell that is in use
    /// pays one slow charge (about 0.1 µs) afterwards. Not async-signal-safe.
    pub fn stat(self) -> MemoryStat {
        let ledger = self.ledger();
        let items = ledger.table().plan.items;
        let words = total_words(items) / 2;
        let totals = ledger.counted_by(self);
        let line = |name: &str, value: &dyn Fn(&[i64]) -> i64| StatLine {
            name: name.to_owned(),
            own: value(&totals[..words]),
            subtree: value(&totals[words..]),
        };
        let sum = |sum: Sum| move |totals: &[i64]| totals[COUNTED + sum as usize];
        let mut lines = Vec::with_capacity(8 + items);
        if ledger.keeps_flows() {
            lines.push(line("charged", &sum(Sum::Charged)));
            lines.push(line("freed", &sum(Sum::Freed)));
        }
        lines.push(line("blocks_live", &|totals| totals[0].wrapping_sub(totals[1])));
        lines.push(line("blocks_total", &|totals| totals[0]));
        lines.push(line("refused", &sum(Sum::Refused)));
        lines.push(line("reclaimed", &sum(Sum::Reclaimed)));
        lines.push(line("throttled", &sum(Sum::Throttled)));
        lines.push(line("throttled_usec", &sum(Sum::ThrottledTime)));
        for (item, name) in ledger.item_names().iter().enumerate() {
            lines.push(line(name, &|totals| totals[COUNTED + FIXED + item]));
        }
        MemoryStat { lines }
    }
}

impl Ledger {
    /// What a group counted, then its subtree: nothing, if it is gone.
    fn counted_by(&self, group: Group<'_>) -> Vec<i64> {
        let totals = || vec![0; total_words(self.table().plan.items)];
        let collected = group.read(|_| self.collected_totals(group.id().index(), totals()));
        collected.unwrap_or_else(totals)
    }

    /// Collects what changed, and reads the totals of a row.
    fn collected_totals(&self, index: u32, mut totals: Vec<i64>) -> Vec<i64> {
        let _pass = lock::pass();
        self.drain(index);
        let held = lock::lock();
        if let Some(held) = &held {
            self.collect(held);
        }
        // Another process may be collecting; one that was killed in the middle does so for ever.
        for _ in 0..TRIES {
            let before = self.table().collections();
            self.read_totals(index, &mut totals);
            if before.is_some() && self.table().collections() == before {
                break;
            }
        }
        totals
    }

    /// The events of a group, and of its subtree.
    pub(crate) fn counted_events(&self, group: Group<'_>) -> [Events; 2] {
        let totals = self.counted_by(group);
        let (own, subtree) = totals.split_at(totals.len() / 2);
        [own, subtree].map(|totals| {
            let sum = |sum: Sum| totals[COUNTED + sum as usize] as u64;
            Events {
                low: sum(Sum::Low),
                high: totals[BLOCKS + 1] as u64,
                max: totals[BLOCKS] as u64,
                oom: sum(Sum::Oom),
                oom_kill: sum(Sum::OomKill),
                oom_group_kill: sum(Sum::OomGroupKill),
            }
        })
    }

    /// What one row counts elsewhere by now.
    fn counted(&self, row: u32) -> [u64; COUNTED] {
        let (charges, uncharges) = self.own_counts(row);
        let track = &self.row(row).counter.track;
        let [max, high] =
            [&track.max_events, &track.high_events].map(|events| events.load(Ordering::Relaxed));
        [charges, uncharges, max, high]
    }

    /// Whether the units charged and freed are counted, too.
    pub(crate) fn keeps_flows(&self) -> bool {
        self.table().flows
    }

    /// Adds for a caller. A group that does not exist is the caller's mistake.
    #[inline]
    pub(crate) fn add_sum(&self, id: GroupId, sum: usize, n: i64) {
        let slowly = || self.group(id).exists() && self.add_sum_slow(id, sum, n);
        if !self.add_sum_fast(id, sum, n) && !slowly() {
            self.count_stray();
        }
    }

    /// Adds what the ledger notes by itself. Of a group that is gone by now nothing is noted: whoever
    /// charges it is told.
    #[inline]
    pub(crate) fn note_sum(&self, id: GroupId, sum: Sum, n: i64) {
        if !self.add_sum_fast(id, sum as usize, n) {
            let _known = self.add_sum_slow(id, sum as usize, n);
        }
    }

    /// Adds where the running CPU's cell serves the group already.
    #[inline]
    pub(crate) fn add_sum_fast(&self, id: GroupId, sum: usize, n: i64) -> bool {
        id.index() < self.capacity()
            && self.table().statistics.add(id.index(), id.raw(), 1 + sum, n)
    }

    /// `false` if there is no such group.
    #[cold]
    #[inline(never)]
    fn add_sum_slow(&self, id: GroupId, sum: usize, n: i64) -> bool {
        let _pass = lock::pass();
        let Some(path) = self.path(id).filter(|path| path.is_current(self)) else {
            return false;
        };
        let cells = &self.table().statistics;
        let row = self.row(path.leaf());
        if cells.is_used() && row.owner.load(Ordering::Relaxed) == self.process() {
            // Twice: the thread may move to a column that is closed as well.
            for _ in 0..2 {
                let Some(held) = lock::try_lock() else { break };
                if !self.open_sums(&held, &path, id) {
                    break;
                }
                drop(held);
                if cells.add(id.index(), id.raw(), 1 + sum, n) {
                    return true;
                }
            }
        }
        self.add_totals(&path, COUNTED + sum, n as u64);
        true
    }

    /// Sets the tag of the group's cell in the running column; `false` if the group is on its way
    /// out.
    fn open_sums(&self, _held: &Held, path: &RowPath<'_>, id: GroupId) -> bool {
        let row = self.row(path.leaf());
        if row.state.load(Ordering::SeqCst) != state::LIVE || !path.is_current(self) {
            return false;
        }
        let column = self.columns().current();
        row.note_statistics(column);
        self.changed(column).insert(path.leaf());
        // Release, partner of the section's load (x86 keeps the order): the sums are as the last
        // collection left them.
        self.table().statistics.word(column, path.leaf(), 0).store(id.raw(), Ordering::Release);
        true
    }

    /// Adds to the totals of a row and of its ancestors' subtrees.
    fn add_totals(&self, path: &RowPath<'_>, word: usize, n: u64) {
        self.row(path.leaf()).note_totals();
        self.table().total(path.leaf(), word).fetch_add(n, Ordering::Relaxed);
        self.add_subtrees(path, word, n);
    }

    /// Adds to the totals of all subtrees that a row is in.
    fn add_subtrees(&self, path: &RowPath<'_>, word: usize, n: u64) {
        let words = total_words(self.table().plan.items) / 2;
        for &row in path.rows() {
            self.row(row).note_totals();
            self.table().total(row, words + word).fetch_add(n, Ordering::Relaxed);
        }
    }

    /// Notes that a row's counts in a column changed (S2).
    pub(crate) fn note_changed(&self, column: u32, row: u32) {
        let changed = self.changed(column);
        if !changed.contains(row) {
            changed.insert(row);
        }
    }

    /// Collects what changed in the rows of this process.
    fn collect(&self, held: &Held) {
        let mine = |row: u32| self.row(row).owner.load(Ordering::Relaxed) == self.process();
        let changed = |column| self.changed(column).iter().filter(move |&row| mine(row));
        let mut open = false;
        for column in 0..self.columns().count() {
            for row in changed(column) {
                open |= self.close_sums(held, column, row);
            }
        }
        // Without a fence (a sandbox forbids it) what sections add meanwhile cannot be told.
        if open && !self.columns().fence() {
            return;
        }
        self.table().begin_collection();
        for column in 0..self.columns().count() {
            for row in changed(column) {
                // First out of the set, then read: a count that follows puts it in again. (The
                // summaries of the set stay: it is filled without the lock.)
                self.changed(column).remove_shared(row);
                // (A free row's parent is the next free row.)
                let free = self.row(row).state.load(Ordering::Acquire) == state::FREE;
                if let Some(path) = RowPath::new(self, row).filter(|_| !free) {
                    self.take_sums(column, &path);
                    self.take_counted(&path);
                }
            }
        }
        self.table().end_collection();
    }

    /// Collects one row for good: it is being destroyed, and nobody opens its cells any more.
    pub(crate) fn close_statistics(&self, path: &RowPath<'_>) {
        if !self.counts_anything(path.leaf()) {
            return;
        }
        let Some(held) = lock::lock() else { return };
        let mut open = false;
        for column in 0..self.columns().count() {
            open |= self.close_sums(&held, column, path.leaf());
        }
        if open && !self.columns().fence() {
            return;
        }
        self.collect_row(path);
    }

    /// Collects a row that nobody writes.
    pub(crate) fn collect_row(&self, path: &RowPath<'_>) {
        if !self.counts_anything(path.leaf()) {
            return;
        }
        self.table().begin_collection();
        for column in 0..self.columns().count() {
            self.take_sums(column, path);
        }
        self.take_counted(path);
        self.table().end_collection();
    }

    /// Whether a row has anything that its parent does not get with the counts in its columns.
    fn counts_anything(&self, row: u32) -> bool {
        let row = self.row(row);
        let track = &row.counter.track;
        row.has_statistics()
            || track.max_events.load(Ordering::Relaxed) | track.high_events.load(Ordering::Relaxed)
                != 0
    }

    /// Clears a cell's tag; whether it had one.
    fn close_sums(&self, _held: &Held, column: u32, row: u32) -> bool {
        self.row(row).has_sums_in(column)
            && self.table().statistics.word(column, row, 0).swap(0, Ordering::AcqRel) != 0
    }

    /// Moves the sums of a closed cell to the totals (S1).
    fn take_sums(&self, column: u32, path: &RowPath<'_>) {
        let (row, table) = (path.leaf(), self.table());
        if !self.row(row).has_sums_in(column) {
            return;
        }
        for sum in 0..FIXED + table.plan.items {
            let word = table.statistics.word(column, row, 1 + sum);
            if word.load(Ordering::Relaxed) != 0 {
                self.add_totals(path, COUNTED + sum, word.swap(0, Ordering::AcqRel));
            }
        }
    }

    /// Brings the totals up to what the row has counted elsewhere.
    fn take_counted(&self, path: &RowPath<'_>) {
        // First what was collected: the row has counted at least as much.
        let collected: [u64; COUNTED] =
            std::array::from_fn(|word| self.collected(path.leaf(), word));
        for (word, counted) in self.counted(path.leaf()).into_iter().enumerate() {
            if counted == collected[word] {
                continue;
            }
            // Only one of several processes that settle a dead one's rows collects the difference.
            self.row(path.leaf()).note_totals();
            let own = self.table().total(path.leaf(), word);
            let taken =
                own.compare_exchange(collected[word], counted, Ordering::AcqRel, Ordering::Relaxed);
            if taken.is_ok() {
                self.add_subtrees(path, word, counted.wrapping_sub(collected[word]));
            }
        }
    }

    fn collected(&self, row: u32, word: usize) -> u64 {
        if self.row(row).has_statistics() {
            self.table().total(row, word).load(Ordering::Acquire)
        } else {
            0
        }
    }

    /// What the collected blocks of a row that is freed become: its parent's, whose columns take the
    /// counts themselves. Empties the row's totals.
    pub(crate) fn hand_statistics_up(&self, index: u32, parent: u32) {
        let row = self.row(index);
        // Collected when the group was closed.
        row.counter.track.max_events.store(0, Ordering::Relaxed);
        row.counter.track.high_events.store(0, Ordering::Relaxed);
        if !row.has_statistics() {
            return;
        }
        let table = self.table();
        for word in 0..total_words(table.plan.items) {
            let total = table.total(index, word).swap(0, Ordering::AcqRel);
            // (The events end with the row; its ancestors' subtrees have them.)
            if word < BLOCKS && total != 0 {
                self.row(parent).note_totals();
                table.total(parent, word).fetch_add(total, Ordering::Relaxed);
            }
        }
        row.forget_statistics();
    }

    /// Reads the totals of a row, and adds what rows of other processes have not collected yet.
    fn read_totals(&self, top: u32, totals: &mut [i64]) {
        let table = self.table();
        let words = totals.len() / 2;
        for (word, total) in totals.iter_mut().enumerate() {
            *total = table.total(top, word).load(Ordering::Acquire) as i64;
        }
        if !table.region().is_shared() {
            return;
        }
        let mut add = |row: u32, word: usize, n: u64| {
            if row == top {
                totals[word] = totals[word].wrapping_add(n as i64);
            }
            totals[words + word] = totals[words + word].wrapping_add(n as i64);
        };
        let mut seen = std::collections::HashSet::new();
        for column in 0..self.columns().count() {
            for row in self.changed(column).iter().chain(self.stocked(column).iter()) {
                let others = row < self.capacity()
                    && self.row(row).owner.load(Ordering::Relaxed) != self.process();
                let below = || RowPath::new(self, row).is_some_and(|path| path.leads_through(top));
                if !others || !below() || !seen.insert(row) {
                    continue;
                }
                for (word, counted) in self.counted(row).into_iter().enumerate() {
                    add(row, word, counted.wrapping_sub(self.collected(row, word)));
                }
                for column in 0..self.columns().count() {
                    for sum in 0..FIXED + table.plan.items {
                        if self.row(row).has_sums_in(column) {
                            let cell = table.statistics.word(column, row, 1 + sum);
                            add(row, COUNTED + sum, cell.load(Ordering::Acquire));
                        }
                    }
                }
            }
        }
    }
}
