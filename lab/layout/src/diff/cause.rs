//! Finds the changes that moved the other fields.

use super::Sides;
use super::pair::Pairs;
use crate::leaf::{self, Leaf};
use crate::model::{Type, TypeId, Types};
use crate::spell::spell;

/// The change to a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// It is new, and has this number of bytes.
    Inserted(u64),
    /// It is gone, and had this number of bytes.
    Removed(u64),
    /// It has another size: the bytes before and after.
    Resized(u64, u64),
    /// It has another width, and is or was a bitfield: before and after.
    Rewidened(Width, Width),
    /// The bytes between the end of the last field, or the start of a flexible array, and the end of the record:
    /// before and after. It is reported if no other change explains it, and always for a flexible array, whose
    /// elements begin there.
    Padded(u64, u64),
    /// It has another name, this one.
    Renamed(String),
    /// It stands elsewhere among the others: the offsets before and after.
    Reordered(u64, u64),
    /// It begins this many bytes later than the field before it would require; negative if earlier.
    Aligned(i64),
    /// The record has another alignment: before and after.
    Realigned(u64, u64),
}

/// The width of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Width {
    /// The number of its bits.
    pub bits: u64,
    /// Whether it is a bitfield.
    pub bitfield: bool,
}

impl Width {
    fn of(leaf: &Leaf) -> Width {
        Width { bits: leaf.bits, bitfield: leaf.bitfield }
    }
}

/// A change that moved fields, or renamed one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// The field; empty for the record itself.
    pub field: String,
    /// Its type.
    pub ty: String,
    /// Its offset, in the build that has it.
    pub offset: u64,
    /// The change.
    pub what: What,
    /// The number of later fields that moved, up to the next cause.
    pub moved: usize,
}

/// Returns the causes in the order of their places in the new build. A removed field counts at the place that it
/// would have.
pub(super) fn causes(
    sides: Sides,
    old: &[Leaf],
    new: &[Leaf],
    pairs: &Pairs,
    align: (u64, u64),
) -> Vec<Cause> {
    let Pairs { of_old, of_new } = pairs;
    let kept = kept_in_order(&pairs.list().collect::<Vec<_>>(), old.len());
    let mut causes = Vec::new();
    if align.0 != align.1 {
        let what = What::Realigned(align.0, align.1);
        causes.push(Cause { field: String::new(), ty: String::new(), offset: 0, what, moved: 0 });
    }
    let add = |causes: &mut Vec<Cause>, types, leaf: &Leaf, what| {
        let (field, ty) = (leaf.path.clone(), spell(types, leaf.ty).to_string());
        causes.push(Cause { field, ty, offset: leaf.offset(), what, moved: 0 });
    };
    // The shift of the last kept field's end.
    let (mut shift, mut from) = (0i64, 0);
    for (index, leaf) in new.iter().enumerate() {
        let Some(before) = of_new[index] else {
            add(&mut causes, sides.new.0, leaf, What::Inserted(leaf.size()));
            continue;
        };
        let was = &old[before];
        if was.path != leaf.path {
            add(&mut causes, sides.old.0, was, What::Renamed(leaf.path.clone()));
        }
        if !kept[before] {
            let what = What::Reordered(was.offset(), leaf.offset());
            add(&mut causes, sides.new.0, leaf, what);
            continue;
        }
        let explained = causes.len();
        for (gone, other) in old.iter().enumerate().take(before).skip(from) {
            if of_old[gone].is_none() {
                add(&mut causes, sides.old.0, other, What::Removed(other.size()));
            }
        }
        from = before + 1;
        let delta = (leaf.start / 8) as i64 - (was.start / 8) as i64;
        // A neighbour that was added, removed or moved explains it.
        let reasons = causes.len() > explained
            || index > 0 && of_new[index - 1].is_none_or(|other| !kept[other])
            || before > 0 && of_old[before - 1].is_none_or(|_| !kept[before - 1]);
        if delta != shift && !reasons {
            add(&mut causes, sides.new.0, leaf, What::Aligned(delta - shift));
        }
        if was.bitfield || leaf.bitfield {
            let (before, after) = (Width::of(was), Width::of(leaf));
            if before != after {
                add(&mut causes, sides.new.0, leaf, What::Rewidened(before, after));
            }
        } else if was.size() != leaf.size() {
            add(&mut causes, sides.new.0, leaf, What::Resized(was.size(), leaf.size()));
        }
        shift = delta + leaf.size() as i64 - was.size() as i64;
        if delta != 0
            && let Some(cause) = causes.last_mut()
        {
            cause.moved += 1;
        }
    }
    for (gone, other) in old.iter().enumerate().skip(from) {
        if of_old[gone].is_none() {
            add(&mut causes, sides.old.0, other, What::Removed(other.size()));
        }
    }
    if let (Some(was), Some(is)) = (tail(sides.old, old), tail(sides.new, new)) {
        let flexible = was.0.bits == 0 && is.0.bits == 0;
        if was.1 != is.1 && (flexible || causes.is_empty()) {
            add(&mut causes, sides.new.0, is.0, What::Padded(was.1, is.1));
        }
    }
    causes
}

/// Returns the field that ends last, with the bytes of the record behind it. If there is a flexible array, it is that
/// field: its elements begin in these bytes.
fn tail<'l>((types, id): (&Types, TypeId), leaves: &'l [Leaf]) -> Option<(&'l Leaf, u64)> {
    let (_, record) = leaf::record(types, id)?;
    let last = leaves.iter().max_by_key(|leaf| (leaf.end(), leaf.start))?;
    let flexible = leaves.iter().rev().find(|leaf| {
        let array = types.get(types.resolve(leaf.ty));
        matches!(array, Type::Array { count: None, .. }) && leaf.start >= last.end()
    });
    let last = flexible.unwrap_or(last);
    Some((last, record.size.saturating_sub(last.end().div_ceil(8))))
}

/// Returns which old fields stand in the same order as before: a longest rising subsequence of their new places.
fn kept_in_order(pairs: &[(usize, usize)], fields: usize) -> Vec<bool> {
    // The pair that a subsequence of each length ends with, and the predecessor of each pair.
    let mut ends: Vec<usize> = Vec::new();
    let mut follows = vec![None; pairs.len()];
    for (index, &(_, place)) in pairs.iter().enumerate() {
        let length = ends.partition_point(|&end| pairs[end].1 < place);
        follows[index] = length.checked_sub(1).map(|length| ends[length]);
        if length == ends.len() {
            ends.push(index);
        } else {
            ends[length] = index;
        }
    }
    let mut kept = vec![false; fields];
    let mut at = ends.last().copied();
    while let Some(index) = at {
        kept[pairs[index].0] = true;
        at = follows[index];
    }
    kept
}
