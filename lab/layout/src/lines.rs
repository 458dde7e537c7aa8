//! Computes the lines of bytes, the bits that no field covers, and their dependence on the base's address.

use std::collections::BTreeMap;

use crate::leaf::Leaf;

/// Lines of a size, and the place among them where a record begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lines {
    size: u64,
    shift: u64,
}

impl Lines {
    /// Returns lines of `size` bytes; the record begins one.
    ///
    /// # Panics
    /// If the size is not a power of two.
    pub fn of(size: u64) -> Lines {
        assert!(size.is_power_of_two(), "a line has a power of two bytes");
        Lines { size, shift: 0 }
    }

    /// Returns the same lines, with the record beginning `shift` bytes into one.
    pub fn shifted(self, shift: u64) -> Lines {
        Lines { shift: shift % self.size, ..self }
    }

    /// Returns the bytes of a line.
    pub fn size(self) -> u64 {
        self.size
    }

    /// Returns the number of bytes of the first line before the record.
    pub fn shift(self) -> u64 {
        self.shift
    }

    /// Returns the line of a byte, counted from the record's first line.
    pub fn line(self, offset: u64) -> u64 {
        // The sum is taken in parts, so that no offset overflows.
        offset / self.size + (offset % self.size + self.shift) / self.size
    }

    /// Returns the first and the last line of `size` bytes at `offset`. An empty range counts as lying on one line.
    pub fn range(self, offset: u64, size: u64) -> (u64, u64) {
        let last = offset.saturating_add(size.saturating_sub(1));
        (self.line(offset), self.line(last))
    }

    /// Returns the number of lines that `size` bytes at `offset` touch; zero for no bytes.
    pub fn count(self, offset: u64, size: u64) -> u64 {
        if size == 0 {
            return 0;
        }
        let (first, last) = self.range(offset, size);
        last - first + 1
    }

    /// Returns whether `size` bytes at `offset` touch more lines than necessary.
    pub fn straddles(self, offset: u64, size: u64) -> bool {
        self.count(offset, size) > size.div_ceil(self.size)
    }

    /// Returns whether two fields share a line.
    pub fn share(self, one: &Leaf, other: &Leaf) -> bool {
        if one.size() == 0 || other.size() == 0 {
            return false;
        }
        let (a, b) = (self.leaf(one), self.leaf(other));
        a.0 <= b.1 && b.0 <= a.1
    }

    /// Returns the first and the last line of a field.
    pub fn leaf(self, leaf: &Leaf) -> (u64, u64) {
        self.range(leaf.offset(), leaf.size())
    }

    /// Returns these lines under every base that is a multiple of `align`.
    pub fn placements(self, align: u64) -> impl Iterator<Item = Lines> {
        let step = align.clamp(1, self.size);
        (0..self.size.div_ceil(step)).map(move |turn| self.shifted(turn * step))
    }
}

/// The effect of a place of the base on a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The places that have this effect, in bytes from a line's start.
    pub shifts: Vec<u64>,
    /// The number of lines that the record touches.
    pub lines: u64,
    /// The indices of the fields that touch more lines than necessary, at the first of the places.
    pub straddling: Vec<usize>,
}

/// Returns the best and the worst place of a record of `size` bytes whose base is a multiple of `align`. They have
/// the fewest and the most lines; among equals, the fewest and the most fields that straddle.
///
/// ```
/// use ledgerline_layout::lines::{Lines, extremes};
/// let (best, worst) = extremes(Lines::of(64), 8, 64, &[]);
/// assert_eq!((best.lines, best.shifts), (1, vec![0]));
/// assert_eq!((worst.lines, worst.shifts.len()), (2, 7));
/// ```
pub fn extremes(lines: Lines, align: u64, size: u64, leaves: &[Leaf]) -> (Placement, Placement) {
    // Keyed by the number of lines, and of fields that straddle.
    let mut effects: BTreeMap<(u64, usize), Placement> = BTreeMap::new();
    for placed in lines.placements(align) {
        let straddles =
            |&index: &usize| placed.straddles(leaves[index].offset(), leaves[index].size());
        let straddling: Vec<usize> = (0..leaves.len()).filter(straddles).collect();
        let lines = placed.count(0, size);
        let effect = effects.entry((lines, straddling.len()));
        let new = Placement { shifts: Vec::new(), lines, straddling };
        effect.or_insert(new).shifts.push(placed.shift);
    }
    let extreme = |found: Option<&Placement>| found.expect("there is a place").clone();
    (extreme(effects.values().next()), extreme(effects.values().next_back()))
}

/// Adjacent bits that no field covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The first bit.
    pub start: u64,
    /// The number of bits.
    pub bits: u64,
}

impl Gap {
    /// Returns the total bits of some gaps.
    pub fn sum(gaps: &[Gap]) -> u64 {
        gaps.iter().fold(0, |sum, gap| sum.saturating_add(gap.bits))
    }
}

/// Returns the bits that the fields of a record do not cover: the holes between them, and the padding after the last.
///
/// A field is given by its first bit and its number of bits, in any order. Fields may overlap, as in a union. A
/// record without fields is all padding. A field without bits is an array of any length, whose elements begin there.
/// If it comes behind all others, the bytes before it are a hole as well.
/// others, what lies before it is a hole, too.
pub fn gaps(
    spans: impl Iterator<Item = (u64, u64)>,
    size: u64,
    order: &mut Vec<(u64, u64)>,
) -> (Vec<Gap>, Option<Gap>) {
    order.clear();
    let size = size.saturating_mul(8);
    let mut elements = 0;
    order.extend(spans.filter(|&(start, bits)| {
        if bits == 0 && start <= size {
            elements = elements.max(start);
        }
        bits > 0
    }));
    if !order.is_sorted() {
        order.sort_unstable();
    }
    let mut holes = Vec::new();
    let mut end = 0u64;
    for &(start, bits) in order.iter() {
        if start > end {
            holes.push(Gap { start: end, bits: start - end });
        }
        end = end.max(start.saturating_add(bits));
    }
    if elements > end {
        holes.push(Gap { start: end, bits: elements - end });
        end = elements;
    }
    (holes, (size > end).then(|| Gap { start: end, bits: size - end }))
}

#[cfg(test)]
mod tests;
