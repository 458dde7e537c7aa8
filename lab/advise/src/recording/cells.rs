//! The fields of a type as the library counts them: each byte belongs to one cell, or to none.

use ledgerline_layout::leaf::{Expand, Leaf, leaves, record};
use ledgerline_layout::model::{Type, TypeId, Types};
use ledgerline_record::format::NO_CELL;

/// The most elements of an array whose elements are counted separately.
const MOST_ELEMENTS: u64 = 64;
/// Smaller elements, like characters, are not counted separately.
const SMALLEST_ELEMENT: u64 = 4;

/// The cells of a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cells {
    /// The path of each cell's field, as profiles spell it. A field that is interrupted by other members of a union has
    /// several cells.
    pub paths: Vec<String>,
    /// The cell of each byte of the type; the largest number for padding.
    pub map: Vec<u16>,
}

impl Cells {
    /// Returns the cells of a record of `size` bytes.
    ///
    /// If fields overlap, as in unions or as bitfields in one byte, a byte belongs to the field that is declared first.
    /// Elements of arrays of up to 64 numbers, pointers or records are cells of their own. A record without members,
    /// like an empty base class, has no cell, although its size is one byte. `None` if there are more than 65 534
    /// cells.
    #[must_use]
    pub fn of(types: &Types, id: TypeId, size: usize) -> Option<Cells> {
        let mut owners: Vec<Option<u32>> = vec![None; size];
        let mut fields = Vec::new();
        let empty =
            |leaf: &Leaf| record(types, leaf.ty).is_some_and(|(_, of)| of.members.is_empty());
        for leaf in leaves(types, id, Expand::All).into_iter().filter(|leaf| !empty(leaf)) {
            for (path, start, end) in parts(types, leaf) {
                let field = u32::try_from(fields.len()).ok()?;
                fields.push(path);
                let bytes =
                    usize::try_from(start).ok()?.min(size)..usize::try_from(end).ok()?.min(size);
                for owner in &mut owners[bytes] {
                    owner.get_or_insert(field);
                }
            }
        }
        let mut cells = Cells { paths: Vec::new(), map: Vec::with_capacity(size) };
        let mut last = None;
        for owner in owners {
            if let Some(field) = owner
                && owner != last
            {
                cells.paths.push(fields[field as usize].clone());
            }
            last = owner;
            let cell = || u16::try_from(cells.paths.len() - 1).ok().filter(|&cell| cell < NO_CELL);
            cells.map.push(if owner.is_some() { cell()? } else { NO_CELL });
        }
        Some(cells)
    }
}

/// Returns a field's parts: path, first byte, the byte after the last.
fn parts(types: &Types, leaf: Leaf) -> Vec<(String, u64, u64)> {
    let (start, end) = (leaf.offset(), leaf.offset().saturating_add(leaf.size()));
    if let Type::Array { element, count: Some(count @ 2..=MOST_ELEMENTS) } =
        *types.get(types.resolve(leaf.ty))
        && let Some(size @ SMALLEST_ELEMENT..) = types.size(element)
        && count.checked_mul(size) == Some(leaf.size())
    {
        return (0..count)
            .map(|index| {
                let at = start + index * size;
                (format!("{}[{index}]", leaf.path), at, at + size)
            })
            .collect();
    }
    vec![(leaf.path, start, end)]
}

#[cfg(test)]
mod tests;
