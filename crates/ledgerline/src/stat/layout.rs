//! The layout of a table's region, in memory and in a file.
//!
//! ```text
//! header     what follows, and how much of it
//! items      a name each
//! places     a name, the parent, the kind, the threshold
//! totals     stripe 0: items of place 0, of place 1, ...    shared by some CPUs, touched at an overstep
//!            stripe 1: ...
//! columns    CPU 0: block of place 0, block of place 1, ... written by that CPU alone
//!            CPU 1: ...
//! ```
//!
//! All offsets follow from four numbers (width, items, places, columns), so a file cannot contain a wrong
//! one. A block of up to 64 bytes lies in one line, with the threshold beside the differences. A column is
//! an odd number of line pairs long. So no two CPUs share a pair, and the same word of many columns does
//! not fall into the same cache set. That makes adding up a row several times cheaper than with columns a
//! page apart.

use super::places::{NAME_MAX, PLACES_MAX, PlaceKind, PlaceSnapshot, Places};
use super::width::WidthKind;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use std::sync::atomic::{AtomicI64, AtomicU8};

/// "ledgstat".
const MAGIC: u64 = u64::from_le_bytes(*b"ledgstat");
/// The version of this layout.
const VERSION: u32 = 2;
/// A line pair: two lines that CPUs fetch together.
const PAIR: usize = 128;
/// The most items of a table.
pub(super) const ITEMS_MAX: usize = 1024;
/// The most stripes of a total. A reader adds them up, and this many CPUs can overstep without taking a
/// line from each other. Reading four lines costs less than reading one line that several CPUs write.
pub(super) const STRIPES_MAX: u32 = 4;
/// The most columns of a table.
pub(super) const COLUMNS_MAX: u32 = 1 << 16;

/// The parts of a table; every offset follows from these numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) width: WidthKind,
    pub(super) items: usize,
    pub(super) places: usize,
    pub(super) columns: u32,
    /// Bytes of a block.
    pub(super) block: usize,
    /// Bytes from a column to the next.
    pub(super) stride: usize,
    /// The number of stripes of a total: a power of two.
    pub(super) stripes: u32,
    places_at: usize,
    totals_at: usize,
    totals_stride: usize,
    stripe_size: usize,
    pub(super) columns_at: usize,
    /// Bytes of the whole table.
    pub(super) size: usize,
}

impl Layout {
    /// Computes the layout. Returns `None` if a number is zero or too large.
    pub(super) fn new(
        width: WidthKind,
        items: usize,
        places: usize,
        columns: u32,
    ) -> Option<Layout> {
        let fits = (1..=ITEMS_MAX).contains(&items)
            && (1..=PLACES_MAX).contains(&places)
            && (1..=COLUMNS_MAX).contains(&columns);
        if !fits {
            return None;
        }
        // None of this overflows: at most 2^10 items, 2^12 places, 2^16 columns of 8 bytes.
        let block = width.header() + items * width.bytes();
        let block =
            if block <= 64 { block.next_power_of_two() } else { block.next_multiple_of(64) };
        // The computation fails if the table does not fit into the address space.
        let pairs = places.checked_mul(block)?.div_ceil(PAIR) | 1;
        let places_at = size_of::<Header>() + (items * size_of::<Name>()).next_multiple_of(PAIR);
        let totals_at = places_at + places * size_of::<PlaceRecord>();
        let totals_stride = (items * 8).next_multiple_of(PAIR);
        let stripe_size = places.checked_mul(totals_stride)?;
        // Without thresholds there is no overstep, so one stripe is enough.
        let bounded = !matches!(width, WidthKind::I64);
        let stripes = if bounded { columns.next_power_of_two().min(STRIPES_MAX) } else { 1 };
        let totals_end = (stripes as usize).checked_mul(stripe_size)?.checked_add(totals_at)?;
        let columns_at = totals_end.checked_next_multiple_of(4096)?;
        let stride = pairs.checked_mul(PAIR)?;
        let size = (columns as usize).checked_mul(stride)?.checked_add(columns_at)?;
        Some(Layout {
            width,
            items,
            places,
            columns,
            block,
            stride,
            stripes,
            places_at,
            totals_at,
            totals_stride,
            stripe_size,
            columns_at,
            size,
        })
    }
}

/// The start of the region.
#[repr(C, align(128))]
#[derive(Debug)]
pub(super) struct Header {
    magic: AtomicU64,
    version: AtomicU32,
    width: AtomicU32,
    items: AtomicU32,
    places: AtomicU32,
    columns: AtomicU32,
    apart: [AtomicU32; 25],
    /// Odd while differences move to the totals; see `fold.rs`.
    pub(super) sequence: AtomicU64,
    /// How many readings were clamped at zero.
    pub(super) below_zero: AtomicU64,
    /// How many amounts did not fit into a total.
    pub(super) saturated: AtomicU64,
}

impl Header {
    /// Returns whether this is the start of a file of counters.
    pub(super) fn is_named(&self) -> bool {
        // Acquire, partner of the Release in `describe`: if the magic number is seen, so is everything
        // else.
        self.magic.load(Ordering::Acquire) == MAGIC
    }
}

/// A name in the region.
#[repr(C)]
#[derive(Debug)]
struct Name {
    length: AtomicU8,
    bytes: [AtomicU8; NAME_MAX],
}

impl Name {
    fn write(&self, name: &str) {
        for (to, &from) in self.bytes.iter().zip(name.as_bytes()) {
            to.store(from, Ordering::Relaxed);
        }
        self.length.store(name.len().min(NAME_MAX) as u8, Ordering::Relaxed);
    }

    /// Returns the name, if the bytes are a valid one.
    fn read(&self) -> Option<String> {
        let length = self.length.load(Ordering::Relaxed) as usize;
        let bytes = self.bytes.get(..length)?;
        let bytes = bytes.iter().map(|byte| byte.load(Ordering::Relaxed)).collect();
        String::from_utf8(bytes).ok().filter(|name| super::places::is_name(name))
    }
}

/// A place in the region.
#[repr(C, align(128))]
#[derive(Debug)]
pub(super) struct PlaceRecord {
    name: Name,
    /// The number of its parent, which is smaller than its own; the root is its own parent.
    parent: AtomicU32,
    kind: AtomicU32,
    /// The threshold of this place in every column.
    pub(super) threshold: AtomicU32,
    /// Sum of the thresholds of the place and all below it.
    pub(super) below: AtomicU64,
}

fn kind_from(number: u32) -> Option<PlaceKind> {
    [PlaceKind::Machine, PlaceKind::Node, PlaceKind::Zone, PlaceKind::Other]
        .into_iter()
        .find(|&kind| kind as u32 == number)
}

/// The memory of a table, by its parts.
///
/// Invariant S1: `base` is the start of a mapping of at least `layout.size` bytes that outlives every use
/// of the view, and indices passed to a view are below the layout's.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    base: *const u8,
    pub(super) layout: Layout,
}

impl View {
    /// # Safety
    /// S1.
    pub(super) unsafe fn new(base: *const u8, layout: Layout) -> View {
        View { base, layout }
    }

    /// Returns the value at an offset that follows from the layout.
    fn at<T>(&self, offset: usize) -> &T {
        debug_assert!(offset + size_of::<T>() <= self.layout.size);
        // SAFETY: within the mapping (S1; guarded by `tests::the_parts_lie_apart_and_inside`). All types
        // here consist of atomics, for which any bytes are valid and concurrent writes are allowed.
        unsafe { &*self.base.add(offset).cast() }
    }

    pub(super) fn header(&self) -> &Header {
        self.at(0)
    }

    fn item(&self, item: usize) -> &Name {
        self.at(size_of::<Header>() + item * size_of::<Name>())
    }

    pub(super) fn place(&self, place: usize) -> &PlaceRecord {
        self.at(self.layout.places_at + place * size_of::<PlaceRecord>())
    }

    /// Returns the stripe of a total to which a column adds.
    #[inline(always)]
    pub(super) fn total(&self, column: u32, place: usize, item: usize) -> &AtomicI64 {
        self.stripe(column & (self.layout.stripes - 1), place, item)
    }

    /// Returns the sum of a total's stripes. The width is passed again, so that a width without a
    /// threshold, which has one stripe, costs no loop.
    #[inline(always)]
    pub(super) fn total_sum(&self, width: WidthKind, place: usize, item: usize) -> i64 {
        let first = self.stripe(0, place, item).load(Ordering::Relaxed);
        if matches!(width, WidthKind::I64) {
            return first;
        }
        // The sum of the stripes fits (`total.rs`), but a damaged file may hold anything, so the addition
        // wraps.
        (1..self.layout.stripes).fold(first, |sum, stripe| {
            sum.wrapping_add(self.stripe(stripe, place, item).load(Ordering::Relaxed))
        })
    }

    #[inline(always)]
    fn stripe(&self, stripe: u32, place: usize, item: usize) -> &AtomicI64 {
        let layout = &self.layout;
        let offset = stripe as usize * layout.stripe_size + place * layout.totals_stride;
        self.at(layout.totals_at + offset + item * 8)
    }

    /// Returns the start of a place's block in a column.
    #[inline(always)]
    pub(super) fn block(&self, column: u32, place: usize) -> *const u8 {
        let layout = &self.layout;
        debug_assert!(column < layout.columns && place < layout.places);
        let offset = column as usize * layout.stride + place * layout.block;
        self.base.wrapping_add(layout.columns_at + offset)
    }

    /// Returns the offset of an item's difference from the start of its block.
    #[inline(always)]
    pub(super) fn offset(width: WidthKind, item: usize) -> usize {
        width.header() + item * width.bytes()
    }

    /// Writes the description of the table. The magic number comes last.
    pub(super) fn describe<'n>(&self, items: impl Iterator<Item = &'n str>, tree: &Places) {
        for (at, name) in items.enumerate() {
            self.item(at).write(name);
        }
        for place in tree.iter() {
            let record = self.place(place.index());
            record.name.write(tree.name(place));
            record.parent.store(tree.parent(place).map_or(0, |at| at.index), Ordering::Relaxed);
            record.kind.store(tree.kind(place) as u32, Ordering::Relaxed);
        }
        let (header, layout) = (self.header(), &self.layout);
        header.version.store(VERSION, Ordering::Relaxed);
        header.width.store(layout.width as u32, Ordering::Relaxed);
        header.items.store(layout.items as u32, Ordering::Relaxed);
        header.places.store(layout.places as u32, Ordering::Relaxed);
        header.columns.store(layout.columns, Ordering::Relaxed);
        // Release, partner of the Acquire in `is_named`.
        header.magic.store(MAGIC, Ordering::Release);
    }

    /// Returns the names of the items, if they are valid.
    pub(super) fn read_items(&self) -> Option<Vec<String>> {
        (0..self.layout.items).map(|item| self.item(item).read()).collect()
    }

    /// Returns the places without their values, if they form a tree.
    pub(super) fn read_places(&self) -> Option<Vec<PlaceSnapshot>> {
        (0..self.layout.places)
            .map(|at| {
                let record = self.place(at);
                let parent = record.parent.load(Ordering::Relaxed) as usize;
                let kind = kind_from(record.kind.load(Ordering::Relaxed))?;
                let name = record.name.read()?;
                // Parents come first, so that there is no cycle; only the root is its own parent.
                let is_tree = parent < at || at == 0 && parent == 0;
                is_tree.then(|| PlaceSnapshot::unread(name, kind, (at > 0).then_some(parent)))
            })
            .collect()
    }
}

/// Reads the layout from the header at the start of a file, and checks it.
///
/// # Errors
/// A sentence that describes the problem.
pub(super) fn read_layout(header: &Header) -> Result<Layout, &'static str> {
    if !header.is_named() {
        return Err("this is no file of counters");
    }
    if header.version.load(Ordering::Relaxed) != VERSION {
        return Err("these counters were written by another version");
    }
    let load = |word: &AtomicU32| word.load(Ordering::Relaxed);
    let width = WidthKind::from_number(load(&header.width));
    width
        .and_then(|width| {
            let (items, places) = (load(&header.items) as usize, load(&header.places) as usize);
            Layout::new(width, items, places, load(&header.columns))
        })
        .ok_or("the header of these counters is damaged")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_lie_apart_and_inside() {
        assert_eq!(size_of::<Header>(), 256);
        assert_eq!(std::mem::offset_of!(Header, sequence), PAIR);
        for width in [WidthKind::I8, WidthKind::U16, WidthKind::I64] {
            for items in [1, 2, 5, 7, 8, 30, 31, 62, 63, 200, ITEMS_MAX] {
                for places in [1, 2, 7, 64, PLACES_MAX] {
                    for columns in [1, 2, 63, COLUMNS_MAX] {
                        let layout = Layout::new(width, items, places, columns);
                        if usize::BITS < 64 && layout.is_none() {
                            continue;
                        }
                        let layout = layout.unwrap();
                        let differences = width.header() + items * width.bytes();
                        assert!(layout.block >= differences);
                        assert!(layout.block > 64 || 64 % layout.block == 0, "straddles a line");
                        assert!(layout.block.is_multiple_of(8));
                        assert!(layout.stride >= places * layout.block);
                        assert_eq!(layout.stride / PAIR % 2, 1);
                        assert!(layout.stride.is_multiple_of(PAIR));
                        let places_end = layout.places_at + places * size_of::<PlaceRecord>();
                        assert!(size_of::<Header>() + items * 64 <= layout.places_at);
                        assert!(places_end <= layout.totals_at);
                        assert!(items * 8 <= layout.totals_stride);
                        assert!(layout.totals_at.is_multiple_of(PAIR));
                        let totals = places * layout.totals_stride;
                        assert!(layout.stripes.is_power_of_two());
                        assert!(layout.stripes <= columns.next_power_of_two());
                        let totals_end = layout.totals_at + layout.stripes as usize * totals;
                        assert!(totals_end <= layout.columns_at);
                        let end = layout.columns_at + columns as usize * layout.stride;
                        assert_eq!(end, layout.size);
                    }
                }
            }
        }
    }

    #[test]
    fn nothing_and_too_much_have_no_layout() {
        let layout = |items, places, columns| Layout::new(WidthKind::I8, items, places, columns);
        assert!(layout(0, 1, 1).is_none() && layout(ITEMS_MAX + 1, 1, 1).is_none());
        assert!(layout(1, 0, 1).is_none() && layout(1, PLACES_MAX + 1, 1).is_none());
        assert!(layout(1, 1, 0).is_none() && layout(1, 1, COLUMNS_MAX + 1).is_none());
    }
}
