//! Flattens a record into a list of its fields, each with the path that names it in the source.

use crate::model::{Kind, Member, Record, Role, Type, TypeId, Types};

/// The depth to which records are opened, since a malformed file may nest one in itself.
const DEEPEST: usize = 64;
/// The length of a list beyond which no more records are opened.
const MOST: usize = 1 << 16;

/// The records that are opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expand {
    /// Only anonymous records are opened, so that the fields are those that the record's own source names.
    Anonymous,
    /// All records are opened, down to numbers, pointers and arrays, and to records that only wrap one of these
    /// (`atomic_long_t`).
    All,
}

/// A field and its place from the start of the record that was flattened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Its path within the record, as in `memory.usage`.
    pub path: String,
    /// Its type.
    pub ty: TypeId,
    /// Its first bit.
    pub start: u64,
    /// The number of its bits; 0 for a field without a size.
    pub bits: u64,
    /// Whether it is a bitfield.
    pub bitfield: bool,
}

impl Leaf {
    fn of(types: &Types, member: &Member, path: &str, start: u64) -> Leaf {
        let (bits, bitfield) = (bits_of(types, member), member.bits.is_some());
        Leaf { path: path.to_owned(), ty: member.ty, start, bits, bitfield }
    }

    /// Returns its first byte.
    pub fn offset(&self) -> u64 {
        self.start / 8
    }

    /// Returns the number of bytes that it touches.
    pub fn size(&self) -> u64 {
        if self.bits == 0 { 0 } else { self.end().div_ceil(8) - self.offset() }
    }

    /// Returns the bit after its last one.
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.bits)
    }
}

/// Returns the first bit of a member, from the start of its record.
pub fn start_of(member: &Member) -> u64 {
    let within = member.bits.map_or(0, |bits| u64::from(bits.offset));
    member.offset.saturating_mul(8).saturating_add(within)
}

/// Returns the first bit after a member, or its start if its type has no size.
pub(crate) fn end_of(types: &Types, member: &Member) -> u64 {
    start_of(member).saturating_add(bits_of(types, member))
}

/// Returns the number of bits of a member. It is 0 for a member without a size, and for one of unknown place, which
/// covers no known bits.
pub fn bits_of(types: &Types, member: &Member) -> u64 {
    match member.bits {
        _ if !member.place_known() => 0,
        Some(bits) => bits.size.into(),
        None => types.size(member.ty).unwrap_or(0).saturating_mul(8),
    }
}

/// Returns the name of a member; one without a name in the source is called by its role.
pub fn name_of<'t>(types: &'t Types, member: &Member) -> &'t str {
    let name = types.name(member.name);
    if !name.is_empty() {
        return name;
    }
    match member.role {
        Role::Base | Role::VirtualBase { .. } | Role::Variant => {
            record(types, member.ty).map_or("", |(_, record)| types.name(record.name))
        }
        Role::VirtualTable => "virtual table",
        Role::Discriminant => "discriminant",
        Role::Field => "",
    }
}

/// Returns the record behind a type's typedefs and qualifiers.
pub fn record(types: &Types, ty: TypeId) -> Option<(TypeId, &Record)> {
    let id = types.resolve(ty);
    match types.get(id) {
        Type::Record(record) => Some((id, record)),
        _ => None,
    }
}

/// Returns the record of a member that is opened. That is a record with members, if it is anonymous or all are
/// opened.
pub fn opens<'t>(types: &'t Types, member: &Member, expand: Expand) -> Option<&'t Record> {
    let anonymous = name_of(types, member).is_empty();
    if member.bits.is_some() || !member.place_known() || (!anonymous && expand == Expand::Anonymous)
    {
        return None;
    }
    let (_, record) = record(types, member.ty)?;
    let empty = record.members.is_empty() || (!anonymous && wraps_one(types, record));
    (!empty).then_some(record)
}

/// Returns whether a record is one number, pointer or array, however often it is wrapped.
fn wraps_one(types: &Types, outer: &Record) -> bool {
    let mut inner = outer;
    for _ in 0..DEEPEST {
        let [only] = &inner.members[..] else { return false };
        if only.offset != 0 || only.bits.is_some() || types.size(only.ty) != Some(outer.size) {
            return false;
        }
        match record(types, only.ty) {
            Some((_, next)) => inner = next,
            None => return true,
        }
    }
    false
}

/// Returns the fields of a record, in the order of its members.
///
/// An array stays one field. Fields of a union overlap. This costs a pass over the opened records.
pub fn leaves(types: &Types, id: TypeId, expand: Expand) -> Vec<Leaf> {
    let mut list = Vec::new();
    if let Some((_, record)) = record(types, id) {
        flatten(types, record, 0, &mut String::new(), expand, DEEPEST, &mut list);
    }
    list
}

fn flatten(
    types: &Types,
    record: &Record,
    base: u64,
    path: &mut String,
    expand: Expand,
    depth: usize,
    list: &mut Vec<Leaf>,
) {
    for member in &record.members {
        let length = path.len();
        let name = name_of(types, member);
        if !name.is_empty() {
            if length > 0 {
                path.push('.');
            }
            path.push_str(name);
        }
        let start = base.saturating_add(start_of(member));
        match opens(types, member, expand) {
            Some(inner) if depth > 0 && list.len() < MOST => {
                flatten(types, inner, start, path, expand, depth - 1, list);
            }
            _ => list.push(Leaf::of(types, member, path, start)),
        }
        path.truncate(length);
    }
}

/// Returns the field that a path names, as in `memory.usage`. Anonymous records on the way need no step.
pub fn find(types: &Types, id: TypeId, path: &str) -> Option<Leaf> {
    let (_, record) = record(types, id)?;
    let mut leaf = within(types, record, 0, path, DEEPEST, &mut { MOST })?;
    leaf.path = path.to_owned();
    Some(leaf)
}

/// Finds the field of a path within a record. `looks` is the number of members that may still be examined, since the
/// records of a malformed file may be endless.
fn within(
    types: &Types,
    outer: &Record,
    base: u64,
    path: &str,
    depth: usize,
    looks: &mut usize,
) -> Option<Leaf> {
    outer.members.iter().find_map(|member| {
        *looks = looks.checked_sub(1)?;
        let name = name_of(types, member);
        let start = base.saturating_add(start_of(member));
        let rest = match path.strip_prefix(name)? {
            "" => return Some(Leaf::of(types, member, "", start)),
            _ if name.is_empty() => path,
            rest => rest.strip_prefix('.')?,
        };
        let (_, inner) = record(types, member.ty)?;
        if depth == 0 { None } else { within(types, inner, start, rest, depth - 1, looks) }
    })
}

/// Returns the keyword of a record.
pub fn keyword(kind: Kind) -> &'static str {
    match kind {
        Kind::Struct | Kind::StructPart => "struct",
        Kind::Class | Kind::ClassPart => "class",
        Kind::Union => "union",
        Kind::Enum => "enum",
        Kind::Variant => "variant",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Align, Name};

    #[test]
    fn a_record_that_contains_itself_twice_ends() {
        let mut types = Types::new(8);
        let id = types.push(Type::Function {
            result: None,
            parameters: Box::default(),
            variadic: false,
        });
        let member = |offset| Member {
            name: Name::NONE,
            ty: id,
            offset,
            bits: None,
            role: Role::Field,
            align: None,
        };
        let record = Record {
            name: Name::NONE,
            kind: Kind::Struct,
            size: 8,
            align: Align::Inferred(1),
            members: vec![member(0), member(4)],
            declared: None,
        };
        types.set(id, Type::Record(record));
        assert!(leaves(&types, id, Expand::All).len() <= MOST + DEEPEST);
        assert_eq!(find(&types, id, "nowhere"), None);
    }
}
