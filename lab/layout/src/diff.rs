//! What changed between two builds of a record, in line-mates and not in offsets.

mod cause;
mod mates;
mod pair;
mod print;

pub use cause::{Cause, What};
pub use mates::{Change, Mates};
pub use print::{json, text};

use crate::leaf::{self, Expand, Leaf};
use crate::lines::Lines;
use crate::model::{TypeId, Types};

/// The two builds of one record.
#[derive(Clone, Copy, Debug)]
pub struct Sides<'t> {
    /// The types before, and the record.
    pub old: (&'t Types, TypeId),
    /// The types after, and the record.
    pub new: (&'t Types, TypeId),
}

/// Size, lines and alignment of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// In bytes.
    pub size: u64,
    /// How many it touches.
    pub lines: u64,
    /// In bytes.
    pub align: u64,
}

/// What changed in a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The record.
    pub name: String,
    /// Before and after.
    pub extent: (Extent, Extent),
    /// What moved everything else, by place.
    pub causes: Vec<Cause>,
    /// Who left whose line, and who came to share one.
    pub changes: Vec<Change>,
}

/// Compares two builds of a record, both bases taken to begin a line of `line` bytes; `None` when every field
/// is where it was.
///
/// Costs time in proportion to the members and to the pairs of groups that share a line.
pub fn compare(name: &str, sides: Sides, line: u64) -> Option<Difference> {
    let lines = Lines::of(line);
    let (mut old, mut new) =
        (flat(sides.old.0, sides.old.1, lines)?, flat(sides.new.0, sides.new.1, lines)?);
    let pairs = pair::pair(sides, &mut old.1, &mut new.1);
    let causes = cause::causes(sides, &old.1, &new.1, &pairs, (old.0.align, new.0.align));
    let changes = mates::changes(sides, lines, &old.1, &new.1, &pairs);
    let same = old.0 == new.0 && causes.is_empty() && changes.is_empty();
    let moved = pairs.iter().any(|&(a, b)| old.1[a].start != new.1[b].start);
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
