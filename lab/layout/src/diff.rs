//! Reports the changes between two builds of a record: the fields that share a line, rather than their offsets.

mod cause;
mod mates;
mod pair;
mod print;

pub use cause::{Cause, What, Width};
pub use mates::{Change, Mates};
pub use print::{json, text};

use crate::leaf::{self, Expand, Leaf};
use crate::lines::Lines;
use crate::model::{TypeId, Types};
use serde::Serialize;

/// The two builds of one record.
#[derive(Clone, Copy, Debug)]
pub struct Sides<'t> {
    /// The types of the old build, and the record.
    pub old: (&'t Types, TypeId),
    /// The types of the new build, and the record.
    pub new: (&'t Types, TypeId),
}

/// Size, lines and alignment of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Extent {
    /// The size in bytes.
    pub size: u64,
    /// The number of lines that it touches.
    pub lines: u64,
    /// The alignment in bytes.
    pub align: u64,
}

/// The changes to a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The record's name.
    pub name: String,
    /// Its extent before and after.
    pub extent: (Extent, Extent),
    /// The changes that moved other fields, in the order of their places.
    pub causes: Vec<Cause>,
    /// The fields that left the lines of others, and those that share one now.
    pub changes: Vec<Change>,
}

/// Compares two builds of a record; `None` if every field is where it was. The base of either is assumed to begin a
/// line of `line` bytes.
///
/// The time is proportional to the members and to the pairs of groups that share a line.
pub fn compare(name: &str, sides: Sides, line: u64) -> Option<Difference> {
    let lines = Lines::of(line);
    let (mut old, mut new) =
        (flat(sides.old.0, sides.old.1, lines)?, flat(sides.new.0, sides.new.1, lines)?);
    let pairs = pair::pair(sides, &mut old.1, &mut new.1);
    let causes = cause::causes(sides, &old.1, &new.1, &pairs, (old.0.align, new.0.align));
    let changes = mates::changes(sides, lines, &old.1, &new.1, &pairs);
    let same = old.0 == new.0 && causes.is_empty() && changes.is_empty();
    let moved = pairs.list().any(|(a, b)| old.1[a].start != new.1[b].start);
    (!same || moved).then(|| Difference {
        name: name.to_owned(),
        extent: (old.0, new.0),
        causes,
        changes,
    })
}

fn flat(types: &Types, id: TypeId, lines: Lines) -> Option<(Extent, Vec<Leaf>)> {
    let (id, record) = leaf::record(types, id)?;
    let extent = Extent {
        size: record.size,
        lines: lines.count(0, record.size),
        align: record.align.bytes(),
    };
    let mut leaves = leaf::leaves(types, id, Expand::Anonymous);
    leaves.sort_by_key(|leaf| leaf.start);
    Some((extent, leaves))
}

#[cfg(test)]
mod tests;
