//! Infers the alignment of types that the file does not state.
//!
//! Rust states the alignment of every type, GCC and Clang state it if an attribute asked for it, and BTF never states
//! it. The rest follows from the members by the rules of C: a record is aligned like its widest member, unless an
//! offset or the size shows that it was packed.

use crate::leaf::end_of;
use crate::model::{Align, Kind, Member, Record, Type, TypeId, Types};

/// Works out the alignment of every record that is not [`Align::Known`].
///
/// An earlier [`Align::Inferred`] of the record does not matter. A malformed file may have a record that contains
/// itself; it counts as aligned to 1 where it meets itself. The pass visits each member once.
pub fn infer(types: &mut Types) {
    let records: Vec<TypeId> = types.records().map(|(id, _)| id).collect();
    let mut seen = Seen { met: vec![false; types.len()], path: Vec::new() };
    for &id in &records {
        // The record counts as aligned to 1 until its turn comes.
        if let Type::Record(record) = types.get_mut(id)
            && let Align::Inferred(bytes) = &mut record.align
        {
            *bytes = 1;
        }
    }
    for id in records {
        seen.members_first(types, id);
    }
}

/// Returns the alignment of a type in bytes; `None` for a type that has none (void, a function, a declaration).
///
/// The result is valid after [`infer`] has run over `types`.
pub fn of(types: &Types, id: TypeId) -> Option<u64> {
    let mut least = 1;
    for id in types.through(id) {
        let own = match types.get(id) {
            Type::Typedef { align: Some(bytes), .. } => power(*bytes),
            Type::Qualified { qualifier: "_Atomic", to: Some(to) } => {
                // One instruction must reach an atomic, so a type that fits into one is aligned to its size.
                let size = types.size(*to).unwrap_or(0);
                if size.is_power_of_two() && size <= 16 {
                    least = size;
                }
                continue;
            }
            Type::Typedef { .. } | Type::Qualified { .. } | Type::Array { .. } => continue,
            Type::Record(record) => power(record.align.bytes()),
            Type::Base { size, .. } | Type::Enum { size, .. } => scalar(types, *size),
            Type::Pointer { .. } => scalar(types, u64::from(types.pointer_size)),
            Type::Unknown { size } => scalar(types, (*size)?),
            Type::Function { .. } | Type::Declaration { .. } => return None,
        };
        return Some(own.max(least));
    }
    None
}

/// Returns the alignment of a number, at most the machine's limit. It is the size, or the largest power of two that
/// divides it: 12 bytes on i386 are aligned to 4.
fn scalar(types: &Types, size: u64) -> u64 {
    power(size).min(types.widest_scalar_align)
}

/// Returns the largest power of two that divides `bytes`; 1 for zero.
fn power(bytes: u64) -> u64 {
    if bytes == 0 { 1 } else { 1 << bytes.trailing_zeros() }
}

/// The records that have been visited, and those in work.
struct Seen {
    met: Vec<bool>,
    path: Vec<(TypeId, usize)>,
}

impl Seen {
    /// Works out the records that `root` contains, then `root`. It is a loop, so a file may nest to any depth.
    fn members_first(&mut self, types: &mut Types, root: TypeId) {
        self.enter(root);
        while let Some((id, next)) = self.path.last_mut() {
            let Type::Record(record) = types.get(*id) else {
                unreachable!("only records are entered")
            };
            if let Some(member) = record.members.get(*next) {
                *next += 1;
                if let Some(inner) = contained(types, member.ty) {
                    self.enter(inner);
                }
                continue;
            }
            let id = *id;
            self.path.pop();
            if let Align::Inferred(_) = record.align {
                let bytes = of_record(types, record);
                if let Type::Record(record) = types.get_mut(id) {
                    record.align = Align::Inferred(bytes);
                }
            }
        }
    }

    fn enter(&mut self, id: TypeId) {
        if !std::mem::replace(&mut self.met[id.0 as usize], true) {
            self.path.push((id, 0));
        }
    }
}

/// Returns the record that a member of type `id` consists of, if it consists of one.
fn contained(types: &Types, id: TypeId) -> Option<TypeId> {
    types.through(id).find(|&id| matches!(types.get(id), Type::Record(_)))
}

/// Returns the alignment of a record from its members, whose own alignments are known.
fn of_record(types: &Types, record: &Record) -> u64 {
    // In order: the alignment of the widest member; of the widest member that lies where it would without packing;
    // the limit that packing sets; the alignment that an attribute on a member asked for.
    let mut natural = 1;
    let mut placed = 1;
    let mut packed = u64::MAX;
    let mut asked = 1;
    let mut end = 0;
    for member in &record.members {
        if let Some(bytes) = member.align {
            asked = asked.max(power(bytes));
            end = end.max(member.offset.saturating_add(types.size(member.ty).unwrap_or(0)));
            continue;
        }
        let Some(bytes) = of(types, member.ty) else { continue };
        natural = natural.max(bytes);
        if !member.place_known() {
            continue;
        }
        end = end.max(end_of(types, member).div_ceil(8));
        let permitted = permitted(types, member, bytes);
        if permitted < bytes {
            packed = packed.min(permitted);
        } else {
            placed = placed.max(bytes);
        }
    }
    let mut bytes = natural.min(packed);
    // Padding after the last member is less than the alignment. If there is more, only one member was packed, and the
    // record still ends where the others need it to.
    let padding = record.size.saturating_sub(end);
    if record.kind != Kind::Union && padding >= bytes && padding < placed {
        bytes = placed;
    }
    // A size is a multiple of the alignment.
    bytes = bytes.max(asked);
    if record.size == 0 { bytes } else { bytes.min(power(record.size)) }
}

/// Returns the largest power of two up to `bytes` that the member's place allows.
fn permitted(types: &Types, member: &Member, bytes: u64) -> u64 {
    if let Some(bits) = member.bits {
        // A bitfield within its storage unit shows nothing. One across two units was packed.
        let unit = types.size(member.ty).unwrap_or(0).saturating_mul(8);
        if u64::from(bits.offset) + u64::from(bits.size) > unit {
            return 1;
        }
    }
    if member.offset == 0 { bytes } else { bytes.min(power(member.offset)) }
}

#[cfg(test)]
mod tests;
