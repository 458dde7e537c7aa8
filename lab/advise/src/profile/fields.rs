//! Finds the field of a path, and the path of the field at an offset.

use std::collections::BTreeSet;

use ledgerline_layout::leaf::{self, Expand, Leaf};
use ledgerline_layout::lines::Lines;
use ledgerline_layout::model::{Type, TypeId, Types};

use super::TypeProfile;

/// Most indices of a path: the types of a damaged file may nest without end.
const DEEPEST: usize = 64;

/// Returns the field that a path names: `memory.usage`, `stat[3]`, `stat`. Elements of arrays are found, and an array
/// of arrays takes several indices.
///
/// `None` if the type has no such field or element.
#[must_use]
pub fn find(types: &Types, id: TypeId, path: &str) -> Option<Leaf> {
    within(types, id, path, DEEPEST)
}

fn within(types: &Types, id: TypeId, path: &str, depth: usize) -> Option<Leaf> {
    // The longest prefix without an index is a field. Indices and fields of elements follow.
    let Some((before, rest)) = path.split_once('[') else { return leaf::find(types, id, path) };
    let mut leaf = leaf::find(types, id, before)?;
    let mut rest = rest;
    loop {
        let (index, after) = rest.split_once(']')?;
        let index: u64 = index.parse().ok()?;
        let Type::Array { element, count } = types.get(types.resolve(leaf.ty)) else { return None };
        if count.is_some_and(|count| index >= count) {
            return None;
        }
        let size = types.size(*element)?;
        let start = leaf.start.checked_add(index.checked_mul(size)?.checked_mul(8)?)?;
        let bits = size.checked_mul(8)?;
        leaf = Leaf { path: String::new(), ty: *element, start, bits, bitfield: false };
        if let Some(more) = after.strip_prefix('[') {
            rest = more;
            continue;
        }
        if let Some(inner) = after.strip_prefix('.') {
            let inner = within(types, leaf.ty, inner, depth.checked_sub(1)?)?;
            leaf = Leaf { start: leaf.start.checked_add(inner.start)?, ..inner };
        } else if !after.is_empty() {
            return None;
        }
        leaf.path = path.to_owned();
        return Some(leaf);
    }
}

/// Returns the lines of a type that a profile's accesses touch. Fields that the type does not have touch none.
#[must_use]
pub fn lines(types: &Types, id: TypeId, profile: &TypeProfile, lines: Lines) -> BTreeSet<u64> {
    let leaves = profile.accesses().filter_map(|access| find(types, id, &access.field));
    leaves
        .filter(|leaf| leaf.size() > 0)
        .flat_map(|leaf| {
            let (first, last) = lines.leaf(&leaf);
            first..=last
        })
        .collect()
}

/// The field at each byte of a type.
#[derive(Clone, Debug)]
pub(super) struct Bytes<'t> {
    types: &'t Types,
    /// Sorted by place.
    leaves: Vec<Leaf>,
    /// The size of the type.
    pub size: u64,
}

impl<'t> Bytes<'t> {
    /// Returns the bytes of a record; `None` for another type.
    pub fn of(types: &'t Types, id: TypeId) -> Option<Bytes<'t>> {
        let (_, record) = leaf::record(types, id)?;
        let mut leaves = leaf::leaves(types, id, Expand::All);
        leaves.retain(|leaf| leaf.size() > 0 && !leaf.path.is_empty());
        leaves.sort_by_key(|leaf| leaf.start);
        Some(Bytes { types, leaves, size: record.size })
    }

    /// Returns the path of the field at an offset: an array's element with its index, of a union the first member.
    /// `None` in holes.
    pub fn field(&self, offset: u64) -> Option<String> {
        // Fields overlap only in unions, so the wanted one is near.
        let end = self.leaves.partition_point(|leaf| leaf.offset() <= offset);
        let covers = |leaf: &&Leaf| offset < leaf.offset().saturating_add(leaf.size());
        let leaf = self.leaves[..end].iter().rev().take(64).rfind(covers)?;
        if let Type::Array { element, .. } = self.types.get(self.types.resolve(leaf.ty))
            && let Some(size @ 1..) = self.types.size(*element)
        {
            return Some(format!("{}[{}]", leaf.path, (offset - leaf.offset()) / size));
        }
        Some(leaf.path.clone())
    }
}
