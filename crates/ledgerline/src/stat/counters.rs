//! The table of counters and the ways to update it.

use super::items::Item;
use super::layout::View;
use super::places::{PlaceId, Places};
use super::width::{Signed, Update, Width};
use crate::percpu::narrow::{Lane, compare_store};
use crate::percpu::registration::{COMPACT, by_index};
use crate::percpu::{self, Mode, probe, rseq, stripe};
use crate::region::Region;
use std::marker::PhantomData;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

/// Counters of items at places: a difference for each CPU, and shared totals.
///
/// `I` is the set of items (see [`items!`](crate::items)), `W` the width of a difference ([`Width`]). An
/// update only touches the running CPU's difference. When the difference passes the place's threshold, it
/// goes to the total of the place. Readers add up the totals of a place and all below it.
///
/// | call | cost |
/// |---|---|
/// | [`inc`](Self::inc), [`dec`](Self::dec), [`add`](Self::add) | about a nanosecond; an overstep adds an atomic addition |
/// | [`approximate`](Self::approximate) | up to four loads for each place below (`i64`: as `precise`) |
/// | [`precise`](Self::precise), [`snapshot`](Self::snapshot) | a load for each CPU and place below |
/// | [`fold`](Self::fold) and the like | microseconds: a remote fence |
///
/// Updates are async-signal-safe, never wait, and may be made by any thread at any time. Readers take no
/// lock either. Folds, drains and threshold changes take a lock of the table, which updates and readers
/// never touch. They are not async-signal-safe.
///
/// A forked child has its own copy of a table in memory. It must not update a table in a file, which
/// belongs to its parent.
///
/// ```
/// use ledgerline::stat::{Counters, Places};
///
/// ledgerline::items! {
///     /// What a cache does.
///     enum Cache {
///         /// Lookups that found it.
///         Hits = "cache_hits",
///         /// Pages held.
///         Pages = "nr_pages",
///     }
/// }
///
/// let mut tree = Places::builder("machine");
/// let node = tree.node("0")?;
/// let places = tree.build()?;
///
/// let counters = Counters::<Cache, i8>::new(&places)?;
/// counters.inc(node, Cache::Hits);
/// counters.add(node, Cache::Pages, 1000);
/// counters.dec(node, Cache::Pages);
/// assert_eq!(counters.precise(places.root(), Cache::Pages), 999);
///
/// let reading = counters.approximate(node, Cache::Hits);
/// assert!(reading.value.abs_diff(1) <= reading.bound);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Counters<I, W = i64> {
    /// The first block of the first column.
    pub(super) first: *const u8,
    pub(super) block: usize,
    pub(super) stride: usize,
    pub(super) tree: u32,
    /// Offset of `rseq_cs` if sections with compact ids update this table; otherwise zero. It is a field of
    /// the table, so that it is zero for a simulated table.
    pub(super) area: isize,
    pub(super) simulated: bool,
    pub(super) view: View,
    /// For each place the list of itself and all below it. Kept here, because looking into the tree takes
    /// longer than adding up two CPUs.
    pub(super) below: Box<[Box<[u32]>]>,
    pub(super) shared: Box<Shared>,
    #[allow(dead_code, reason = "keeps the memory mapped")]
    pub(super) region: Region,
    pub(super) kind: PhantomData<(fn(I), W)>,
}

/// The fields that only slow paths need.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) places: Places,
    /// Locked by a thread that takes differences out of columns, or changes thresholds.
    pub(super) fold: Mutex<()>,
}

// SAFETY: the memory is accessed only through sections and atomics, and mapped as long as `region`.
unsafe impl<I, W: Width> Send for Counters<I, W> {}
// SAFETY: as above.
unsafe impl<I, W: Width> Sync for Counters<I, W> {}

impl<I, W: Width> std::fmt::Debug for Counters<I, W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Counters").field("layout", &self.view.layout).finish_non_exhaustive()
    }
}

/// Returns the limits of a block.
pub(super) fn limits<'v>(block: *const u8) -> &'v AtomicU16 {
    // SAFETY: blocks of bounded widths begin with a word of limits, which is accessed only by atomics and
    // sections. The view to which the block belongs keeps it mapped (S1).
    unsafe { &*block.cast() }
}

impl<I: Item, W: Width> Counters<I, W> {
    /// Returns the places.
    pub fn places(&self) -> &Places {
        &self.shared.places
    }

    /// Returns how many columns the table has: one for each CPU that this machine may ever have, or for
    /// each simulated one.
    pub fn cpus(&self) -> u32 {
        self.view.layout.columns
    }

    /// Returns how this table is updated. Simulated CPUs use atomics.
    pub fn mode(&self) -> Mode {
        if self.simulated { Mode::Fallback } else { percpu::detect() }
    }

    /// Makes a handle to one place, which is checked here once.
    ///
    /// # Panics
    /// If the place belongs to another tree, like all calls that take a place.
    #[inline(always)]
    pub fn at(&self, place: PlaceId) -> At<'_, I, W> {
        At { counters: self, place: self.check(place) }
    }

    /// Adds one to an item at a place, and thereby at all places that it lies in.
    #[inline(always)]
    pub fn inc(&self, place: PlaceId, item: I) {
        self.at(place).inc(item);
    }

    /// Subtracts one.
    #[inline(always)]
    pub fn dec(&self, place: PlaceId, item: I)
    where
        W: Signed,
    {
        self.at(place).dec(item);
    }

    /// Adds `n`. An amount that does not fit into a difference goes to the totals at once. An amount that
    /// does not fit into the totals is left out and counted (see [`clamps`](Self::clamps)).
    #[inline(always)]
    pub fn add(&self, place: PlaceId, item: I, n: W::Amount) {
        self.at(place).add(item, n);
    }

    /// Makes a handle to one simulated CPU.
    ///
    /// # Panics
    /// If the table was not made with [`CountersBuilder::cpus`](super::CountersBuilder::cpus), or has no
    /// such CPU.
    pub fn on(&self, cpu: u32) -> On<'_, I, W> {
        assert!(self.simulated, "only simulated CPUs can be chosen");
        assert!(cpu < self.cpus(), "CPU {cpu} of {}", self.cpus());
        On { counters: self, cpu }
    }

    #[inline(always)]
    pub(super) fn check(&self, place: PlaceId) -> usize {
        // A place of this tree is within it; numbers of trees are never reused.
        assert!(place.tree == self.tree, "a place of another tree");
        place.index as usize
    }

    #[inline(always)]
    pub(super) fn check_item(item: I) -> usize {
        let at = item.index();
        assert!(at < I::ALL.len(), "item {at} of {}", I::ALL.len());
        at
    }

    #[inline(always)]
    fn update(&self, place: usize, item: usize, update: Update) {
        if self.area != 0 && probe::serves_this_thread() {
            // SAFETY: place and item are below the layout's, and there is a column for every index
            // that the kernel can report (S1, P3).
            if unsafe { W::add::<COMPACT>(self.area, self.lane(place, item), update.n) } {
                return;
            }
        }
        self.update_otherwise(place, item, update);
    }

    /// Returns the addresses by which the sections find a difference.
    #[inline(always)]
    fn lane(&self, place: usize, item: usize) -> Lane {
        let block = self.first.wrapping_add(place * self.block);
        let offset = View::offset(W::KIND, item);
        let word = block.wrapping_add(offset & !7);
        Lane { block, word, shift: (offset & 7) as u32 * 8, stride: self.stride }
    }

    /// Makes an update that the fast path cannot: an overstep, a closed place, another mode.
    #[cold]
    #[inline(never)]
    fn update_otherwise(&self, place: usize, item: usize, update: Update) {
        if !self.simulated {
            let all = probe::registration();
            if by_index!(all, |INDEX, area| self.overstep::<INDEX>(area, place, item, update))
                .is_some()
            {
                return;
            }
            // A thread that cannot use sections while others do has no column.
            if all.is_some() {
                return self.view.add_to_total(0, place, item, update.n);
            }
        }
        self.update_column(stripe() % self.cpus(), place, item, update);
    }

    /// Makes an overstep: one section stores the rest of the difference, then the carry goes to the
    /// totals. In between, the carry is in flight and counted in neither: at most `t + t/2 + 1` or
    /// `t + n` per thread.
    fn overstep<const INDEX: isize>(&self, area: isize, place: usize, item: usize, update: Update) {
        let first = self.lane(place, item);
        // SAFETY: as in `update`, where compact ids have failed already, or the thread was not registered yet.
        if (INDEX != COMPACT || cfg!(own_area)) && unsafe { W::add::<INDEX>(area, first, update.n) }
        {
            return;
        }
        if !W::BOUNDED {
            return self.view.add_to_total(0, place, item, update.n);
        }
        let lane = ((1 << (8 * size_of::<W>())) - 1) << first.shift;
        loop {
            // SAFETY: this thread is registered.
            let column = unsafe { rseq::index::<INDEX>(area) };
            let block = self.view.block(column, place);
            let limits = limits(block).load(Ordering::Acquire);
            if limits == W::CLOSED {
                return self.view.add_to_total(column, place, item, update.n);
            }
            let at = block.wrapping_add(first.word.addr() - first.block.addr());
            // SAFETY: a live, aligned word of the column (S1).
            let word = unsafe { &*at.cast::<AtomicU64>() }.load(Ordering::Relaxed);
            let old = ((word & lane) >> first.shift) as i64 - W::ZERO;
            let (new, carry) = W::step(old, update, limits);
            let new = word & !lane | (((new + W::ZERO) as u64) << first.shift);
            // SAFETY: as above. The section checks that the thread still runs on that column, and that
            // nothing has changed.
            if unsafe { compare_store::<INDEX>(area, block, at, column, limits, (word, new)) } {
                return self.view.add_to_total(column, place, item, carry);
            }
        }
    }

    /// Updates by atomics in a given column.
    fn update_column(&self, column: u32, place: usize, item: usize, update: Update) {
        let block = self.view.block(column, place);
        let at = block.wrapping_add(View::offset(W::KIND, item));
        loop {
            let before = if W::BOUNDED { limits(block).load(Ordering::Acquire) } else { 0 };
            if before == W::CLOSED {
                return self.view.add_to_total(column, place, item, update.n);
            }
            // SAFETY: a live difference (S1).
            let old = unsafe { W::load(at) };
            let (new, carry) = W::step(old, update, before);
            // SAFETY: as above.
            if unsafe { W::exchange(at, old, new) } {
                self.view.add_to_total(column, place, item, carry);
                // SeqCst, partner of the limits' store in `fold.rs`: either the thread that lowered the
                // threshold takes this difference out, or this thread sees the new threshold.
                if W::BOUNDED && limits(block).load(Ordering::SeqCst) != before {
                    self.take_out(column, block, at, place, item);
                }
                return;
            }
        }
    }

    /// Takes out a difference that may not stay under the present limits.
    #[cold]
    fn take_out(&self, column: u32, block: *const u8, at: *const u8, place: usize, item: usize) {
        loop {
            let limits = limits(block).load(Ordering::SeqCst);
            // SAFETY: a live difference (S1).
            let old = unsafe { W::load(at) };
            // A difference that an update by zero would leave unchanged may stay.
            let stays = || W::step(old, Update { n: 0, by_one: false }, limits) == (old, 0);
            if old == 0 || limits != W::CLOSED && stays() {
                return;
            }
            // SAFETY: as above.
            if unsafe { W::exchange(at, old, 0) } {
                return self.view.add_to_total(column, place, item, old);
            }
        }
    }

    /// Returns whether updates go through sections, so that a fold has to fence.
    pub(super) fn is_rseq(&self) -> bool {
        !self.simulated && probe::registration().is_some()
    }
}

/// One place of a table. Made by [`Counters::at`].
#[derive(Clone, Copy, Debug)]
pub struct At<'c, I, W: Width = i64> {
    counters: &'c Counters<I, W>,
    place: usize,
}

impl<I: Item, W: Width> At<'_, I, W> {
    /// Like [`Counters::inc`].
    #[inline(always)]
    pub fn inc(self, item: I) {
        let update = Update { n: 1, by_one: true };
        self.counters.update(self.place, Counters::<I, W>::check_item(item), update);
    }

    /// Like [`Counters::dec`].
    #[inline(always)]
    pub fn dec(self, item: I)
    where
        W: Signed,
    {
        let update = Update { n: -1, by_one: true };
        self.counters.update(self.place, Counters::<I, W>::check_item(item), update);
    }

    /// Like [`Counters::add`].
    #[inline(always)]
    pub fn add(self, item: I, n: W::Amount) {
        let update = Update { n: n.into(), by_one: false };
        self.counters.update(self.place, Counters::<I, W>::check_item(item), update);
    }
}

/// One simulated CPU of a table. Made by [`Counters::on`].
#[derive(Clone, Copy, Debug)]
pub struct On<'c, I, W: Width = i64> {
    counters: &'c Counters<I, W>,
    cpu: u32,
}

impl<I: Item, W: Width> On<'_, I, W> {
    /// Like [`Counters::inc`], but on this CPU.
    pub fn inc(self, place: PlaceId, item: I) {
        self.update(place, item, Update { n: 1, by_one: true });
    }

    /// Like [`Counters::dec`], but on this CPU.
    pub fn dec(self, place: PlaceId, item: I)
    where
        W: Signed,
    {
        self.update(place, item, Update { n: -1, by_one: true });
    }

    /// Like [`Counters::add`], but on this CPU.
    pub fn add(self, place: PlaceId, item: I, n: W::Amount) {
        self.update(place, item, Update { n: n.into(), by_one: false });
    }

    fn update(self, place: PlaceId, item: I, update: Update) {
        let place = self.counters.check(place);
        let item = Counters::<I, W>::check_item(item);
        self.counters.update_column(self.cpu, place, item, update);
    }
}
