//! Finds Rust's types without a size: structures that end in a slice or a string.
//!
//! The compiler describes such a tail as one element. Pointers to the structure show that there may be any number of
//! elements: such a reference has a length beside the address, and its name contains the structure's own name.

use crate::model::{Kind, Points, Record, Role, Type, TypeId, Types};

/// The prefixes of a type's name in the name of a pointer to it.
pub(super) const POINTERS: [&str; 4] = ["&mut ", "&", "*const ", "*mut "];

/// Makes such tails flexible arrays.
pub(super) fn open(types: &mut Types) {
    let mut found: Vec<TypeId> =
        types.records().filter_map(|(_, record)| without_size(types, record)).collect();
    found.sort_unstable();
    found.dedup();
    let tails: Vec<(TypeId, usize, TypeId)> = found
        .iter()
        .filter_map(|&id| {
            let Type::Record(record) = types.get(id) else { return None };
            let last = record.members.len().checked_sub(1)?;
            let tail = &record.members[last];
            // A tail that is itself a structure without a size has a tail of its own.
            let nested = found.binary_search(&tail.ty).is_ok();
            (tail.role == Role::Field && !nested).then_some((id, last, tail.ty))
        })
        .collect();
    for (id, last, element) in tails {
        let array = types.push(Type::Array { element, count: None });
        if let Type::Record(record) = types.get_mut(id) {
            record.members[last].ty = array;
        }
    }
}

/// Returns the structure that a reference with a length points to, if it points to one. `&[T]` points to a `T`, which
/// has a size; `&S` points to an `S`, which has none.
fn without_size(types: &Types, reference: &Record) -> Option<TypeId> {
    let [first, second] = &reference.members[..] else { return None };
    let name = types.name(reference.name);
    let to = POINTERS.iter().find_map(|pointer| name.strip_prefix(pointer))?;
    if types.name(first.name) != "data_ptr" || types.name(second.name) != "length" {
        return None;
    }
    let Type::Pointer { to: Some(id), points: Points::Pointer(_) } = *types.get(first.ty) else {
        return None;
    };
    match types.get(id) {
        Type::Record(record) if record.kind == Kind::Struct && types.name(record.name) == to => {
            Some(id)
        }
        _ => None,
    }
}
