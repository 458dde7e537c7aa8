//! An order of pieces, and the layout that a compiler makes of it.

use crate::cost::Place;
use crate::pieces::{Held, Piece, Pieces};
use crate::uses::Uses;

/// The smallest hole that is filled, in bytes.
const HOLE: u64 = 8;

/// The order in which pieces are declared, and which of them begin a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    /// The pieces that are free, in the order of their declaration.
    pub sequence: Vec<usize>,
    /// For each piece, the alignment of its offset beyond its own: 64, 128, or 1.
    pub begins: Vec<u64>,
    /// Whether untouched pieces move forward to fill holes.
    pub fill: bool,
}

/// Pieces at offsets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Laid {
    /// The offset of each piece.
    pub offsets: Vec<u64>,
    /// The size of the record.
    pub size: u64,
    /// The alignment of the record.
    pub align: u64,
}

impl Laid {
    /// Returns the number of which objects' addresses are multiples: today's `base`, or the record's new alignment.
    pub(crate) fn base(&self, pieces: &Pieces, base: u64) -> u64 {
        if self.align > pieces.align { base.max(self.align) } else { base }
    }

    /// Returns the places of the fields and of objects, if objects begin at multiples of `base` today.
    pub(crate) fn place(&self, pieces: &Pieces, uses: &Uses, base: u64) -> Place {
        let offsets = uses.spots.iter().map(|spot| {
            let (piece, within) = pieces.holds(spot.offset);
            self.offsets[piece] + within
        });
        let row = uses.instances.row();
        let row = row.map(|row| row.of_size(pieces.size, self.size, self.align));
        Place { offsets: offsets.collect(), base: self.base(pieces, base), row }
    }
}

impl Order {
    /// Returns today's order: the pieces as they lie, with the alignments that put them there.
    pub(crate) fn today(pieces: &Pieces) -> Order {
        let list = &pieces.list;
        let sequence = (0..list.len()).filter(|&index| list[index].held.is_none()).collect();
        let mut begins = vec![1; list.len()];
        let mut end = 0;
        for (piece, begins) in list.iter().zip(&mut begins) {
            let asked = [64, 128].into_iter().find(|&line| {
                let line = piece.align.max(line);
                u64::next_multiple_of(end, line) == piece.offset
            });
            if u64::next_multiple_of(end, piece.align) != piece.offset {
                *begins = asked.unwrap_or(1);
            }
            end = piece.end();
        }
        Order { sequence, begins, fill: false }
    }

    /// Lays the order out like a compiler. `cold` marks the pieces that no role touches.
    pub(crate) fn lay(&self, pieces: &Pieces, cold: &[bool]) -> Laid {
        let list = &pieces.list;
        let mut held: Vec<&Piece> =
            list.iter().filter(|p| p.held.is_some_and(|held| held != Held::Last)).collect();
        held.sort_by_key(|piece| piece.offset);
        let mut laid = Laid { offsets: vec![0; list.len()], size: 0, align: pieces.align };
        let mut placed = vec![false; list.len()];
        let (mut cursor, mut next) = (0u64, 0);
        for (turn, &index) in self.sequence.iter().enumerate() {
            if placed[index] {
                continue;
            }
            let piece = &list[index];
            let wanted = piece.align.max(self.begins[index]);
            laid.align = laid.align.max(wanted);
            let mut at = cursor.next_multiple_of(wanted);
            // The piece goes behind the pieces that are held there.
            let mut from = next;
            while let Some(held) = held.get(from)
                && held.offset < at + piece.size
            {
                if held.end() > at {
                    at = held.end().next_multiple_of(wanted);
                }
                from += 1;
            }
            if self.fill && at - cursor >= HOLE {
                let later = &self.sequence[turn + 1..];
                let between = &held[next..from];
                self.fill(list, later, between, cold, (cursor, at), &mut placed, &mut laid.offsets);
            }
            next = from;
            laid.offsets[index] = at;
            placed[index] = true;
            cursor = at + piece.size;
        }
        for (index, piece) in list.iter().enumerate() {
            match piece.held {
                Some(Held::Last) => {
                    let behind = held.iter().map(|held| held.end()).max().unwrap_or(0);
                    let wanted = piece.align.max(self.begins[index]);
                    laid.align = laid.align.max(wanted);
                    cursor = cursor.max(behind).next_multiple_of(wanted);
                    laid.offsets[index] = cursor;
                    cursor += piece.size;
                }
                Some(_) => {
                    laid.offsets[index] = piece.offset;
                    laid.align = laid.align.max(self.begins[index]);
                }
                None => {}
            }
        }
        let end = held.iter().map(|held| held.end()).fold(cursor, u64::max);
        laid.size = end.next_multiple_of(laid.align);
        laid
    }

    /// Fills a hole with the largest untouched pieces that fit from further back, until none fits.
    #[expect(clippy::too_many_arguments, reason = "one place, of a loop's own state")]
    fn fill(
        &self,
        list: &[Piece],
        later: &[usize],
        held: &[&Piece],
        cold: &[bool],
        (mut cursor, end): (u64, u64),
        placed: &mut [bool],
        offsets: &mut [u64],
    ) {
        while cursor < end {
            // Pieces that are held within the hole divide it.
            let next = held.iter().find(|held| held.end() > cursor);
            let until = next.map_or(end, |held| held.offset.min(end));
            let at = |index: usize| cursor.next_multiple_of(list[index].align);
            let fits = later.iter().copied().filter(|&index| {
                let free = !placed[index] && cold[index] && self.begins[index] <= 1;
                free && at(index) + list[index].size <= until
            });
            // The first of the largest, so that the fewest pieces move.
            if let Some(index) = fits.min_by_key(|&index| std::cmp::Reverse(list[index].size)) {
                offsets[index] = at(index);
                placed[index] = true;
                cursor = offsets[index] + list[index].size;
            } else {
                let Some(next) = next else { return };
                cursor = next.end();
            }
        }
    }
}

/// Returns the free pieces in the order of a layout.
pub(crate) fn sequence(pieces: &Pieces, laid: &Laid) -> Vec<usize> {
    let mut order: Vec<usize> =
        (0..pieces.list.len()).filter(|&index| pieces.list[index].held.is_none()).collect();
    order.sort_by_key(|&index| laid.offsets[index]);
    order
}

/// Returns the pieces that left today's order: the fewest, by weight, without which the others keep it.
pub(crate) fn moved(sequence: &[usize], weight: impl Fn(usize) -> f64) -> Vec<usize> {
    // Pieces are numbered by today's order: the heaviest rising subsequence stays.
    let mut best: Vec<(f64, Option<usize>)> = Vec::with_capacity(sequence.len());
    for (at, &piece) in sequence.iter().enumerate() {
        let before = (0..at).filter(|&before| sequence[before] < piece);
        let before = before.max_by(|&a, &b| best[a].0.total_cmp(&best[b].0));
        best.push((before.map_or(0.0, |before| best[before].0) + weight(piece), before));
    }
    let mut at = (0..sequence.len()).max_by(|&a, &b| best[a].0.total_cmp(&best[b].0));
    let mut stays = vec![false; sequence.len()];
    while let Some(index) = at {
        stays[index] = true;
        at = best[index].1;
    }
    (0..sequence.len()).filter(|&at| !stays[at]).map(|at| sequence[at]).collect()
}

/// Returns how many pieces [`moved`] returns if all weights are equal. Takes n log n.
pub(crate) fn count_moved(sequence: &[usize]) -> usize {
    let mut tails: Vec<usize> = Vec::new();
    for &piece in sequence {
        let at = tails.partition_point(|&tail| tail < piece);
        if at == tails.len() {
            tails.push(piece);
        } else {
            tails[at] = piece;
        }
    }
    sequence.len() - tails.len()
}

#[cfg(test)]
mod tests;
