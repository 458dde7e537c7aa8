//! The mappings that a program made: which stretches of its address space, what they are, who made them.
//!
//! A sorted table of stretches that do not overlap, in memory that a fork wipes (process.rs): what a forked child
//! inherited stays its parent's. Neighbours that are alike are one, as they are in the kernel, so the table has
//! about as many entries as `/proc/self/maps` has lines of the program's own. To enter or to take out costs a
//! search and the move of what lies behind.

use crate::filter;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a stretch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Private, and never was writable: it costs nothing yet.
    Reserved = 0,
    /// Private and writable: counted.
    Writable = 1,
    /// Private, and was writable: it may hold what was written. Counted.
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
    /// Whether it counts towards the limit.
    pub(crate) fn is_counted(self) -> bool {
        matches!(self, Kind::Writable | Kind::Held | Kind::Dropped)
    }

    fn of(bits: usize) -> Kind {
        match bits {
            1 => Kind::Writable,
            2 => Kind::Held,
            3 => Kind::Dropped,
            4 => Kind::Shared,
            5 => Kind::File,
            6 => Kind::Sparse,
            _ => Kind::Reserved,
        }
    }
}

/// A stretch: whole pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// Who made it (process.rs).
    pub(crate) slot: u32,
    pub(crate) kind: Kind,
}

impl Range {
    pub(crate) fn bytes(&self) -> usize {
        self.end - self.start
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

/// More than the kernel lets a process have mappings (`vm.max_map_count`), unless it is told otherwise. Those
/// beyond are not counted.
const MOST: usize = 1 << 16;

/// See the module's documentation. All zeros are a table without entries that nobody holds.
#[repr(C)]
pub(crate) struct Table {
    held: AtomicBool,
    table: UnsafeCell<Sorted>,
}

#[repr(C)]
struct Sorted {
    count: usize,
    entries: [Entry; MOST],
}

// SAFETY: the table is touched by the thread that set `held` alone.
unsafe impl Sync for Table {}

/// The table, held by this thread.
pub(crate) struct Ranges<'t> {
    held: &'t AtomicBool,
    table: &'t mut Sorted,
}

impl Table {
    pub(crate) const fn new() -> Table {
        let entries = [const { Entry { start_slot_kind: 0, end: 0 } }; MOST];
        Table { held: AtomicBool::new(false), table: UnsafeCell::new(Sorted { count: 0, entries }) }
    }

    /// Waits for the table. The caller is marked busy ([`crate::thread::Busy`]), so that a signal handler of the
    /// same thread does not come here.
    pub(crate) fn hold(&self) -> Ranges<'_> {
        // Acquire, partner of the Release in `drop`: the table is as the last holder left it.
        while self.held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err()
        {
            filter::wait();
        }
        // SAFETY: `held` was this thread's to set, and nobody else touches the table before it is reset.
        Ranges { held: &self.held, table: unsafe { &mut *self.table.get() } }
    }
}

impl Drop for Ranges<'_> {
    fn drop(&mut self) {
        self.held.store(false, Ordering::Release);
    }
}

impl Ranges<'_> {
    /// Enters a stretch, in the place of what is known of it. What the table has no room for is forgotten, and
    /// nobody's.
    pub(crate) fn insert(&mut self, range: Range, gone: impl FnMut(Range)) {
        self.cut(range.start, range.end, gone);
        self.add(range);
    }

    /// Takes everything between two addresses out, and shows it piece by piece.
    pub(crate) fn cut(&mut self, start: usize, end: usize, mut gone: impl FnMut(Range)) {
        let first = self.first_ending_behind(start);
        let mut last = first;
        // What is left of the first and of the last.
        let mut rest: [Option<Range>; 2] = [None, None];
        while let Some(range) = self.get(last).filter(|range| range.start < end) {
            if range.start < start {
                rest[0] = Some(Range { end: start, ..range });
            }
            if range.end > end {
                rest[1] = Some(Range { start: end, ..range });
            }
            gone(Range { start: range.start.max(start), end: range.end.min(end), ..range });
            last += 1;
        }
        if first < last {
            self.remove(first, last);
            rest.into_iter().flatten().for_each(|range| self.add(range));
        }
    }

    /// Shows everything between two addresses, piece by piece.
    pub(crate) fn each(&self, start: usize, end: usize, mut show: impl FnMut(Range)) {
        let mut at = self.first_ending_behind(start);
        while let Some(range) = self.get(at).filter(|range| range.start < end) {
            show(Range { start: range.start.max(start), end: range.end.min(end), ..range });
            at += 1;
        }
    }

    /// Makes everything between two addresses what `become` says; `None` leaves a piece as it is.
    pub(crate) fn change(
        &mut self,
        start: usize,
        end: usize,
        mut become_: impl FnMut(Range) -> Option<Range>,
    ) {
        let mut at = start;
        // The next piece that is there and is to be another.
        loop {
            let mut next = None;
            self.each(at, end, |range| {
                if next.is_none()
                    && let Some(other) = become_(range)
                {
                    next = Some(other);
                }
            });
            let Some(range) = next else { return };
            self.insert(range, |_| {});
            at = range.end;
        }
    }

    fn entries(&self) -> &[Entry] {
        &self.table.entries[..self.table.count]
    }

    fn get(&self, at: usize) -> Option<Range> {
        self.entries().get(at).map(|entry| entry.range())
    }

    fn first_ending_behind(&self, address: usize) -> usize {
        self.entries().partition_point(|entry| entry.end <= address)
    }

    fn remove(&mut self, from: usize, to: usize) {
        let count = self.table.count;
        self.table.entries.copy_within(to..count, from);
        self.table.count -= to - from;
    }

    /// Enters a stretch where nothing is.
    fn add(&mut self, mut range: Range) {
        let mut at = self.first_ending_behind(range.start);
        let alike = |other: Range| (other.slot, other.kind) == (range.slot, range.kind);
        let (before, behind) = (at.checked_sub(1).and_then(|at| self.get(at)), self.get(at));
        let joins = |other: Option<Range>, end: bool| {
            other.filter(|&other| {
                alike(other)
                    && if end { other.start == range.end } else { other.end == range.start }
            })
        };
        let (before, behind) = (joins(before, false), joins(behind, true));
        if let Some(behind) = behind {
            range.end = behind.end;
            self.remove(at, at + 1);
        }
        if let Some(before) = before {
            range.start = before.start;
            at -= 1;
            self.remove(at, at + 1);
        }
        let count = self.table.count;
        if count < MOST {
            self.table.entries.copy_within(at..count, at + 1);
            self.table.entries[at] = Entry::new(range);
            self.table.count += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 4096;
    const PAGES: usize = 64;

    /// What each page is, one by one.
    type Obvious = [Option<(u32, Kind)>; PAGES];

    fn table() -> Box<Table> {
        // SAFETY: all zeros are a table.
        unsafe { Box::new_zeroed().assume_init() }
    }

    fn pages(ranges: &Ranges<'_>) -> Obvious {
        let mut pages = [None; PAGES];
        ranges.each(0, PAGES * PAGE, |range| {
            for page in &mut pages[range.start / PAGE..range.end / PAGE] {
                assert_eq!(*page, None, "a page is in two ranges");
                *page = Some((range.slot, range.kind));
            }
        });
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
        let mut random = Random(1);
        for step in 0..200_000 {
            let start = random.below(PAGES as u64 - 1) as usize;
            let end = start + 1 + random.below((PAGES - start) as u64 - 1) as usize;
            let (from, to) = (start * PAGE, end * PAGE);
            let (slot, kind) = (random.below(3) as u32, Kind::of(random.below(7) as usize));
            let mut ranges = table.hold();
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
                    // (What it becomes is not changed again.)
                    if kind != Kind::Reserved {
                        ranges.change(from, to, changes);
                        for page in &mut obvious[start..end] {
                            if page.is_some_and(|(_, kind)| kind == Kind::Reserved) {
                                *page = Some((slot, kind));
                            }
                        }
                    }
                }
            }
            assert_eq!(pages(&ranges), obvious, "step {step}");
            // Neighbours that are alike are one.
            for pair in ranges.entries().windows(2) {
                let (one, next) = (pair[0].range(), pair[1].range());
                assert!(one.end <= next.start);
                assert!(one.end < next.start || (one.slot, one.kind) != (next.slot, next.kind));
            }
        }
    }

    #[test]
    fn a_full_table_forgets_what_comes_then() {
        let table = table();
        let mut ranges = table.hold();
        let range = |at: usize| Range {
            start: 2 * at * PAGE,
            end: (2 * at + 1) * PAGE,
            slot: 1,
            kind: Kind::Writable,
        };
        (0..MOST + 5).for_each(|at| ranges.insert(range(at), |_| {}));
        assert_eq!(ranges.table.count, MOST);
        ranges.cut(0, usize::MAX & !LOW, |_| {});
        assert_eq!(ranges.table.count, 0);
    }
}
