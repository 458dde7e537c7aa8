//! The mappings that a program made: their address ranges, kinds and owners.
//!
//! A sorted table of stretches that do not overlap, in memory that a fork wipes (process.rs): the mappings that a
//! forked child inherited stay its parent's. Equal neighbours are merged, as in the kernel, so the table has about as
//! many entries as `/proc/self/maps` has lines of the program's own, and some thousand more at most: giving pages back
//! splits an entry, but no mapping. Ranges that the table has no room for are forgotten, and no longer charged.

mod sorted;

use crate::filter;
use sorted::Sorted;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

/// The kind of a stretch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Private, and never was writable: it costs nothing yet.
    Reserved = 0,
    /// Private and writable: counted.
    Writable = 1,
    /// Private, and was writable: it may still hold written data. Counted.
    Held = 2,
    /// Writable, and its pages were given back: counted, and free again as soon as it is not writable.
    Dropped = 3,
    /// Shared with other processes, anonymous memory or a file.
    Shared = 4,
    /// A file, private and not writable.
    File = 5,
    /// A table that a library reserved as a whole and hardly touches ([`ledgerline::sparse`]): never counted.
    Sparse = 6,
}

impl Kind {
    /// Returns whether it counts towards the limit.
    pub(crate) fn is_counted(self) -> bool {
        matches!(self, Kind::Writable | Kind::Held | Kind::Dropped)
    }

    /// Returns the kind of a number.
    fn of(number: usize) -> Kind {
        use Kind::{Dropped, File, Held, Reserved, Shared, Sparse, Writable};
        [Reserved, Writable, Held, Dropped, Shared, File, Sparse, Reserved][number & 7]
    }
}

/// A stretch: whole pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// Its owner (process.rs).
    pub(crate) slot: u32,
    pub(crate) kind: Kind,
}

impl Range {
    pub(crate) fn bytes(&self) -> usize {
        self.end - self.start
    }

    /// Returns the bytes that count towards the limit.
    pub(crate) fn counted(&self) -> usize {
        if self.kind.is_counted() { self.bytes() } else { 0 }
    }

    /// Returns the part between two addresses.
    fn within(self, start: usize, end: usize) -> Range {
        Range { start: self.start.max(start), end: self.end.min(end), ..self }
    }
}

/// A range in two words: pages leave twelve bits, of which the slot takes eight and the kind three.
#[derive(Clone, Copy)]
#[repr(C)]
struct Entry {
    start_slot_kind: usize,
    end: usize,
}

const KIND_BITS: u32 = 3;
const LOW: usize = (1 << 12) - 1;

impl Entry {
    fn new(range: Range) -> Entry {
        let low = (range.slot as usize & 0xff) << KIND_BITS | range.kind as usize;
        Entry { start_slot_kind: range.start | low, end: range.end }
    }

    fn start(self) -> usize {
        self.start_slot_kind & !LOW
    }

    fn range(self) -> Range {
        let low = self.start_slot_kind & LOW;
        Range {
            start: self.start(),
            end: self.end,
            slot: (low >> KIND_BITS & 0xff) as u32,
            kind: Kind::of(low & ((1 << KIND_BITS) - 1)),
        }
    }
}

/// A table with more entries is crowded: giving pages back splits no entry then ([`Ranges::give_back`]).
const CROWDED: usize = 1 << 13;

/// The table of the module's documentation. All zeros are an empty table that is not held.
#[repr(C)]
pub(crate) struct Table {
    held: AtomicBool,
    table: UnsafeCell<Sorted>,
}

// SAFETY: only the thread that set `held` touches the table.
unsafe impl Sync for Table {}

/// The table, held by this thread.
pub(crate) struct Ranges<'t> {
    held: &'t AtomicBool,
    table: &'t mut Sorted,
    forget: fn(Range),
}

impl Table {
    /// Waits for the table. The caller is marked busy ([`crate::thread::Busy`]), so that a signal handler of the same
    /// thread does not come here. Ranges that the table has no room for are passed to `forget`, and have no owner from
    /// then on.
    pub(crate) fn hold(&self, forget: fn(Range)) -> Ranges<'_> {
        // Acquire, partner of the Release in `drop`: the table is as the last holder left it.
        while self.held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err()
        {
            filter::wait();
        }
        // SAFETY: this thread set `held`, and no other thread touches the table before it is reset.
        Ranges { held: &self.held, table: unsafe { &mut *self.table.get() }, forget }
    }
}

impl Drop for Ranges<'_> {
    fn drop(&mut self) {
        self.held.store(false, Ordering::Release);
    }
}

impl Ranges<'_> {
    /// Enters a stretch, which replaces everything known of it.
    pub(crate) fn insert(&mut self, range: Range, gone: impl FnMut(Range)) {
        self.cut(range.start, range.end, gone);
        self.add(range);
    }

    /// Takes everything between two addresses out, and passes each piece to `gone`.
    pub(crate) fn cut(&mut self, start: usize, end: usize, mut gone: impl FnMut(Range)) {
        while let Some(range) = self.next(start, end) {
            self.table.remove(range.start);
            gone(range.within(start, end));
            // The remains of the first and of the last entry.
            if range.start < start {
                self.add(Range { end: start, ..range });
            }
            if range.end > end {
                self.add(Range { start: end, ..range });
            }
        }
    }

    /// Returns everything between two addresses, piece by piece.
    pub(crate) fn pieces(&self, start: usize, end: usize) -> impl Iterator<Item = Range> {
        let mut from = start;
        std::iter::from_fn(move || {
            let piece = self.first(from, end)?;
            from = piece.end;
            Some(piece)
        })
    }

    /// Returns the first piece between two addresses.
    pub(crate) fn first(&self, start: usize, end: usize) -> Option<Range> {
        Some(self.next(start, end)?.within(start, end))
    }

    /// Changes every piece between two addresses to the result of `become`; `None` leaves a piece as it is.
    pub(crate) fn change(
        &mut self,
        start: usize,
        end: usize,
        mut become_: impl FnMut(Range) -> Option<Range>,
    ) {
        let mut at = start;
        while let Some(range) = self.next(at, end) {
            let piece = range.within(at, end);
            if let Some(other) = become_(piece) {
                self.insert(other, |_| {});
            }
            at = piece.end;
        }
    }

    /// Like [`change`](Self::change), but for pages that are given back. The kernel keeps them in one mapping with
    /// their neighbours, and nothing limits how many such pieces a program makes. In a crowded table each entry changes
    /// as a whole or not at all: the rest of a mapping keeps its kind, which counts as if its pages were still there.
    pub(crate) fn give_back(
        &mut self,
        start: usize,
        end: usize,
        mut become_: impl FnMut(Range) -> Option<Range>,
    ) {
        let is_crowded = self.table.count() >= CROWDED;
        // The entries between the first and the last lie within the range as a whole.
        let whole = |range: Option<Range>| range.filter(|_| is_crowded);
        let first = whole(self.next(start, end)).filter(|range| range.start < start);
        let last = whole(self.next(end - 1, end)).filter(|range| range.end > end);
        let start = first.map_or(start, |range| range.end.min(end));
        let end = last.map_or(end, |range| range.start.max(start));
        if start < end {
            self.change(start, end, &mut become_);
        }
    }

    /// Returns the first entry that overlaps the space between two addresses.
    fn next(&self, start: usize, end: usize) -> Option<Range> {
        let entry = self.table.first_ending_behind(start).filter(|_| start < end)?;
        Some(entry.range()).filter(|range| range.start < end)
    }

    /// Enters a stretch where nothing is.
    fn add(&mut self, mut range: Range) {
        let (slot, kind) = (range.slot, range.kind);
        let joins = |other: &Range| (other.slot, other.kind) == (slot, kind);
        // Nothing starts in the stretch: an entry that ends behind the byte before it ends exactly there, or lies
        // behind.
        let before = range.start.checked_sub(1).and_then(|byte| self.next(byte, range.start));
        if let Some(before) = before.filter(joins) {
            self.table.remove(before.start);
            range.start = before.start;
        }
        let behind = self.next(range.end, usize::MAX).filter(|other| other.start == range.end);
        if let Some(behind) = behind.filter(joins) {
            self.table.remove(behind.start);
            range.end = behind.end;
        }
        if !self.table.insert(Entry::new(range)) {
            (self.forget)(range);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::sorted::MOST;
    use super::*;
    use std::sync::atomic::AtomicUsize;

    const PAGE: usize = 4096;
    const PAGES: usize = 64;

    /// The state of each page, one by one.
    type Obvious = [Option<(u32, Kind)>; PAGES];

    fn table() -> Box<Table> {
        // SAFETY: all zeros are a table.
        unsafe { Box::new_zeroed().assume_init() }
    }

    /// Fails: no range may be forgotten here.
    fn never(range: Range) {
        panic!("{range:?} was forgotten");
    }

    fn writable(from: usize, to: usize) -> Range {
        Range { start: from * PAGE, end: to * PAGE, slot: 1, kind: Kind::Writable }
    }

    fn dropped(range: Range) -> Option<Range> {
        (range.kind == Kind::Writable).then_some(Range { kind: Kind::Dropped, ..range })
    }

    fn pages(ranges: &Ranges<'_>) -> Obvious {
        let mut pages = [None; PAGES];
        for range in ranges.pieces(0, PAGES * PAGE) {
            for page in &mut pages[range.start / PAGE..range.end / PAGE] {
                assert_eq!(*page, None, "a page is in two ranges");
                *page = Some((range.slot, range.kind));
            }
        }
        pages
    }

    struct Random(u64);

    impl Random {
        fn below(&mut self, n: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (self.0 >> 33) % n
        }
    }

    #[test]
    fn it_says_of_every_page_what_an_obvious_table_says() {
        let table = table();
        let mut obvious: Obvious = [None; PAGES];
        let mut random = Random(crate::seed::seed(1));
        for step in 0..200_000 {
            let start = random.below(PAGES as u64 - 1) as usize;
            let end = start + 1 + random.below((PAGES - start) as u64 - 1) as usize;
            let (from, to) = (start * PAGE, end * PAGE);
            let (slot, kind) = (random.below(3) as u32, Kind::of(random.below(7) as usize));
            let mut ranges = table.hold(never);
            let mut gone = 0;
            match random.below(3) {
                0 => {
                    ranges
                        .insert(Range { start: from, end: to, slot, kind }, |r| gone += r.bytes());
                    let was = obvious[start..end].iter().flatten().count();
                    assert_eq!(gone, was * PAGE, "step {step}");
                    obvious[start..end].fill(Some((slot, kind)));
                }
                1 => {
                    ranges.cut(from, to, |range| gone += range.bytes());
                    let was = obvious[start..end].iter().flatten().count();
                    assert_eq!(gone, was * PAGE, "step {step}");
                    obvious[start..end].fill(None);
                }
                _ => {
                    let changes = |range: Range| {
                        (range.kind == Kind::Reserved).then_some(Range { slot, kind, ..range })
                    };
                    // The new kind is not changed again.
                    if kind != Kind::Reserved {
                        if random.below(2) == 0 {
                            ranges.change(from, to, changes);
                        } else {
                            ranges.give_back(from, to, changes);
                        }
                        for page in &mut obvious[start..end] {
                            if page.is_some_and(|(_, kind)| kind == Kind::Reserved) {
                                *page = Some((slot, kind));
                            }
                        }
                    }
                }
            }
            assert_eq!(pages(&ranges), obvious, "step {step}");
            // Equal neighbours are merged.
            let mut before: Option<Range> = None;
            let mut count = 0;
            for next in ranges.pieces(0, usize::MAX) {
                if let Some(one) = before.replace(next) {
                    assert!(one.end <= next.start);
                    assert!(one.end < next.start || (one.slot, one.kind) != (next.slot, next.kind));
                }
                count += 1;
            }
            assert_eq!(ranges.table.count(), count);
        }
    }

    #[test]
    fn in_a_crowded_table_what_is_given_back_changes_as_a_whole_or_not_at_all() {
        let table = table();
        let mut ranges = table.hold(never);
        (0..CROWDED)
            .map(|at| PAGES + 2 * at + 1)
            .for_each(|at| ranges.insert(writable(at, at + 1), |_| {}));
        let mut obvious: Obvious = [None; PAGES];
        let mut random = Random(crate::seed::seed(2));
        for step in 0..100_000 {
            let start = random.below(PAGES as u64 - 1) as usize;
            let end = start + 1 + random.below((PAGES - start) as u64 - 1) as usize;
            if random.below(2) == 0 {
                let end = end.min(start + 5);
                let kind = [Kind::Writable, Kind::Dropped, Kind::Held][random.below(3) as usize];
                ranges.insert(Range { kind, ..writable(start, end) }, |_| {});
                obvious[start..end].fill(Some((1, kind)));
            } else {
                ranges.give_back(start * PAGE, end * PAGE, dropped);
                let was = obvious;
                let mut run = 0;
                for at in 1..=PAGES {
                    if at < PAGES && was[at] == was[run] {
                        continue;
                    }
                    if was[run] == Some((1, Kind::Writable)) && start <= run && at <= end {
                        obvious[run..at].fill(Some((1, Kind::Dropped)));
                    }
                    run = at;
                }
            }
            assert_eq!(pages(&ranges), obvious, "step {step}");
        }
    }

    #[test]
    fn every_second_page_that_is_given_back_takes_no_room_without_end() {
        let table = table();
        let mut ranges = table.hold(never);
        let all = 3 * MOST;
        ranges.insert(writable(0, all), |_| {});
        for at in (0..all).step_by(2).rev() {
            ranges.give_back(at * PAGE, (at + 1) * PAGE, dropped);
        }
        assert!(ranges.table.count() <= CROWDED + 2, "{}", ranges.table.count());
        // All of it is there, and counts. It can be given back as a whole again.
        let counted = ranges.pieces(0, usize::MAX).map(|range| range.counted());
        assert_eq!(counted.sum::<usize>(), all * PAGE);
        ranges.give_back(0, all * PAGE, dropped);
        assert_eq!(ranges.table.count(), 1);
        let mut gone = 0;
        ranges.cut(0, all * PAGE, |range| gone += range.bytes());
        assert_eq!((gone, ranges.table.count()), (all * PAGE, 0));
    }

    #[test]
    fn a_full_table_forgets_what_comes_then_and_says_so() {
        static FORGOTTEN: AtomicUsize = AtomicUsize::new(0);
        let table = table();
        let mut ranges = table.hold(|range| {
            FORGOTTEN.fetch_add(range.bytes(), Ordering::Relaxed);
        });
        let forgotten = || FORGOTTEN.load(Ordering::Relaxed) / PAGE;
        let at = |n: usize| 4 * n;
        (0..MOST + 5).for_each(|n| ranges.insert(writable(at(n), at(n) + 3), |_| {}));
        assert_eq!((ranges.table.count(), forgotten()), (MOST, 5 * 3));
        // A piece from the middle of another: one of the two remaining parts is forgotten.
        let mut gone = 0;
        ranges.cut((at(7) + 1) * PAGE, (at(7) + 2) * PAGE, |range| gone += range.bytes());
        assert_eq!((gone, forgotten()), (PAGE, 5 * 3 + 1));
        // A range that replaces another has its room.
        ranges.insert(Range { kind: Kind::Shared, ..writable(at(8), at(8) + 3) }, |_| {});
        assert_eq!((ranges.table.count(), forgotten()), (MOST, 5 * 3 + 1));
        ranges.cut(0, usize::MAX & !LOW, |range| gone += range.bytes());
        assert_eq!((gone / PAGE + forgotten(), ranges.table.count()), ((MOST + 5) * 3, 0));
    }
}
