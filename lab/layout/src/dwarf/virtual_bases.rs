//! Finds the places of the virtual bases of a class in a complete object.
//!
//! Compilers describe the way in which a program finds a virtual base: through the object's table. They describe it
//! for the class that names the base, not for the classes derived from that one. In an object of exactly one class,
//! the C++ ABI of Itanium fixes the places, and every compiler here follows it. The virtual bases lie behind all that
//! is not virtual, each once, aligned, in the order in which a walk over the bases meets them. One that has a table
//! and no data may lend its table to a class that has none. A place counts as known if the class then ends at the
//! size in the file, and if no other rule for padding gives another place.
//!
//! A class within a derived one lacks its virtual bases, which lie elsewhere there. So the derived class gets all of
//! them as members, and its bases become parts ([`Kind::StructPart`]).

use crate::align;
use crate::model::{Align, Kind, Member, Name, Record, Role, Type, TypeId, Types};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::rc::Rc;

/// The depth to which bases are followed.
const DEEPEST: u32 = 50;
/// The most bases, and the most virtual ones, of a class whose places are computed.
const MOST: usize = 64;
/// The most records whose padding may matter. With more, places stay unknown: each doubles the number of variants.
const DOUBTFUL: usize = 6;
/// The most bases that are examined to find those that lend tables.
const LOOKS: usize = 1000;

/// The virtual bases of a class in the order of the ABI, with the places that are known.
type Places = Vec<(TypeId, Option<u64>)>;

/// Finds the places of virtual bases. Alignments must be known already. `classes` name virtual bases of their own;
/// `declared` has the bases of classes with more than one, in the order of the source. Returns the classes whose
/// members changed, which are no longer in order.
pub(super) fn place(
    types: &mut Types,
    classes: &[TypeId],
    declared: &HashMap<TypeId, Vec<TypeId>>,
) -> Vec<TypeId> {
    if classes.is_empty() {
        return Vec::new();
    }
    let affected = derived(types, classes);
    let mut shapes = Shapes { types, declared, known: HashMap::new() };
    let found: Vec<_> = affected
        .iter()
        .map(|&class| (shapes.places(class), shapes.of(class, 0).map(|shape| shape.ends[0])))
        .collect();
    for (&class, (places, _)) in affected.iter().zip(&found) {
        for &(base, offset) in places.iter().flatten() {
            put(types, class, base, offset);
        }
    }
    let ends: Vec<Option<u64>> = found.into_iter().map(|(_, end)| end).collect();
    split(types, &affected, &ends);
    affected
}

/// Returns the classes, and all that are derived from them.
fn derived(types: &Types, classes: &[TypeId]) -> Vec<TypeId> {
    let mut from: HashMap<TypeId, Vec<TypeId>> = HashMap::new();
    for (id, record) in types.records() {
        for member in record.members.iter().filter(|member| is_base(member)) {
            from.entry(types.resolve(member.ty)).or_default().push(id);
        }
    }
    let mut seen: HashSet<TypeId> = HashSet::new();
    let mut found: Vec<TypeId> = classes.iter().copied().filter(|&id| seen.insert(id)).collect();
    let mut next = 0;
    while let Some(class) = found.get(next) {
        let further = from.get(class).into_iter().flatten();
        let further: Vec<TypeId> = further.copied().filter(|&id| seen.insert(id)).collect();
        found.extend(further);
        next += 1;
    }
    found
}

/// Puts a virtual base at its place, or at an unknown one.
fn put(types: &mut Types, class: TypeId, base: TypeId, offset: Option<u64>) {
    let Type::Record(record) = types.get(class) else { return };
    let own = record.members.iter().position(|member| {
        matches!(member.role, Role::VirtualBase { .. }) && types.resolve(member.ty) == base
    });
    let role = Role::VirtualBase { known: offset.is_some() };
    let Type::Record(record) = types.get_mut(class) else { return };
    match (own, offset) {
        (Some(own), Some(offset)) if record.members[own].role != role => {
            (record.members[own].offset, record.members[own].role) = (offset, role);
        }
        (Some(_), _) => {}
        (None, offset) => record.members.push(Member {
            name: Name::NONE,
            ty: base,
            offset: offset.unwrap_or(0),
            bits: None,
            role,
            align: None,
        }),
    }
}

/// Reduces bases that have virtual bases to the parts of themselves that lie in a derived class. Each part ends at
/// its entry of `ends`.
fn split(types: &mut Types, classes: &[TypeId], ends: &[Option<u64>]) {
    let parts: HashMap<TypeId, TypeId> =
        classes.iter().map(|&class| (class, types.push(Type::Unknown { size: None }))).collect();
    for &class in classes {
        let Type::Record(record) = types.get(class) else { continue };
        let part = |member: &Member| match parts.get(&types.resolve(member.ty)) {
            Some(&part) if is_base(member) => part,
            _ => member.ty,
        };
        let new: Vec<TypeId> = record.members.iter().map(part).collect();
        let Type::Record(record) = types.get_mut(class) else { continue };
        record.members.iter_mut().zip(new).for_each(|(member, new)| member.ty = new);
    }
    for (&class, end) in classes.iter().zip(ends) {
        let Type::Record(record) = types.get(class) else { continue };
        let mut part = record.clone();
        part.members.retain(|member| !matches!(member.role, Role::VirtualBase { .. }));
        part.members.sort_by_key(|member| member.offset);
        let is_class = record.kind == Kind::Class;
        part.kind = if is_class { Kind::ClassPart } else { Kind::StructPart };
        part.size = end.unwrap_or(record.size);
        types.set(parts[&class], Type::Record(part));
    }
}

fn is_base(member: &Member) -> bool {
    matches!(member.role, Role::Base | Role::VirtualBase { .. })
}

/// The properties of a class that matter when it is a base of another.
#[derive(Default)]
struct Shape {
    /// End of the part that is not virtual: first if the tail padding of all its bases is reused, then if bases that
    /// may be as simple as structures of C keep theirs.
    ends: [u64; 2],
    /// The alignment of that part.
    align: u64,
    /// Whether it has a table, and so is not as simple as a structure of C.
    table: bool,
    /// Whether it has a table and no data.
    nearly_empty: bool,
    /// The virtual base whose table is also that of the class.
    primary: Option<TypeId>,
    /// The primary bases of the class and of all its bases.
    primaries: Vec<TypeId>,
    /// The bases that are not virtual, and their places.
    bases: Vec<(TypeId, u64)>,
    /// All virtual bases, including those of its bases, in the order of the ABI.
    virtuals: Vec<TypeId>,
}

struct Shapes<'t> {
    types: &'t Types,
    declared: &'t HashMap<TypeId, Vec<TypeId>>,
    known: HashMap<TypeId, Option<Rc<Shape>>>,
}

impl Shapes<'_> {
    /// Returns the shape of a class; `None` if it cannot be determined.
    fn of(&mut self, class: TypeId, depth: u32) -> Option<Rc<Shape>> {
        if let Some(known) = self.known.get(&class) {
            return known.clone();
        }
        // A malformed file may have a class that is a base of itself.
        self.known.insert(class, None);
        let shape = if depth > DEEPEST { None } else { self.make(class, depth).map(Rc::new) };
        self.known.insert(class, shape.clone());
        shape
    }

    fn make(&mut self, class: TypeId, depth: u32) -> Option<Shape> {
        let types = self.types;
        let Type::Record(record) = types.get(class) else { return None };
        let pointer = u64::from(types.pointer_size);
        let field = |member: &&Member| !is_base(member);
        let mut shape = Shape {
            align: 1,
            table: record.members.iter().any(|member| member.role == Role::VirtualTable),
            nearly_empty: !record.members.iter().any(|member| member.role == Role::Field),
            ..Shape::default()
        };
        for member in record.members.iter().filter(field) {
            let end = member.offset.checked_add(size(types, member)?)?;
            shape.ends = shape.ends.map(|before| before.max(end));
            shape.align = shape.align.max(align::of(types, member.ty).unwrap_or(1));
        }
        let mut lends = shape.table;
        let mut tables = u32::from(shape.table);
        for member in self.bases(class, record)? {
            let id = types.resolve(member.ty);
            let (Type::Record(base), of) = (types.get(id), self.of(id, depth + 1)?) else {
                return None;
            };
            let met = matches!(member.role, Role::VirtualBase { .. }).then_some(&id);
            met.into_iter().chain(&of.virtuals).for_each(|&id| add(&mut shape.virtuals, id));
            of.primaries.iter().for_each(|&id| add(&mut shape.primaries, id));
            if met.is_some() {
                shape.table = true;
                continue;
            }
            lends |= of.table && member.offset == 0;
            shape.table |= of.table;
            shape.nearly_empty &= of.nearly_empty || base.members.is_empty();
            tables += u32::from(of.nearly_empty);
            shape.align = shape.align.max(of.align);
            shape.bases.push((id, member.offset));
            let at = |size: u64| member.offset.saturating_add(size);
            let kept = !of.table && !begins_within(record, at(of.ends[1])..at(base.size));
            let padded = if kept { base.size } else { of.ends[1] };
            for (end, own) in shape.ends.iter_mut().zip([of.ends[0], padded]) {
                *end = (*end).max(member.offset.checked_add(own)?);
            }
        }
        if shape.virtuals.len() > MOST {
            return None;
        }
        shape.nearly_empty &= shape.table && tables <= 1;
        if let Align::Known(bytes) = record.align {
            shape.align = shape.align.max(bytes);
        }
        if !lends && !shape.virtuals.is_empty() {
            let mut able = Vec::new();
            for &id in &shape.virtuals {
                if self.of(id, depth + 1)?.nearly_empty {
                    able.push(id);
                }
            }
            let free = able.iter().find(|id| !shape.primaries.contains(id));
            let primary = *free.or(able.first())?;
            shape.primary = Some(primary);
            shape.align = shape.align.max(pointer);
            shape.ends = shape.ends.map(|end| end.max(pointer));
            add(&mut shape.primaries, primary);
        }
        Some(shape)
    }

    /// Returns the bases of a class in the order of the source.
    fn bases<'r>(&self, class: TypeId, record: &'r Record) -> Option<Vec<&'r Member>> {
        let mut bases: Vec<&Member> =
            record.members.iter().filter(|member| is_base(member)).collect();
        if bases.len() > MOST {
            return None;
        }
        if let Some(order) = self.declared.get(&class) {
            bases.sort_by_key(|member| order.iter().position(|&ty| ty == member.ty));
        }
        Some(bases)
    }

    /// Returns the virtual bases of a class, with the places that are known.
    fn places(&mut self, class: TypeId) -> Option<Places> {
        let shape = self.of(class, 0)?;
        let unknown = || shape.virtuals.iter().map(|&id| (id, None)).collect();
        Some(self.only_places(class, &shape).unwrap_or_else(unknown))
    }

    fn only_places(&mut self, class: TypeId, shape: &Shape) -> Option<Places> {
        let Type::Record(record) = self.types.get(class) else { return None };
        let mut placed = HashMap::new();
        let mut looks = LOOKS;
        if let Some(primary) = shape.primary {
            placed.insert(primary, 0);
            self.lend(primary, 0, &mut placed, &mut looks)?;
        }
        for &(base, offset) in &shape.bases {
            self.lend(base, offset, &mut placed, &mut looks)?;
        }
        // Each is the end of some part, by both rules for padding.
        let mut doubtful = vec![shape.ends];
        for &id in &shape.virtuals {
            let of = self.of(id, 0)?;
            let padded = if of.table { of.ends[0] } else { self.types.size(id)? };
            doubtful.push([of.ends[0], padded]);
        }
        let open: Vec<usize> =
            (0..doubtful.len()).filter(|&index| doubtful[index][0] != doubtful[index][1]).collect();
        if open.len() > DOUBTFUL {
            return None;
        }
        let mut found: Option<Places> = None;
        for ways in 0..1u32 << open.len() {
            let ends: Vec<u64> = (0..doubtful.len())
                .map(|index| {
                    let bit = open.iter().position(|&one| one == index);
                    doubtful[index][bit.map_or(0, |bit| (ways >> bit & 1) as usize)]
                })
                .collect();
            let (places, end) = self.one_way(shape, &ends, placed.clone(), &mut { LOOKS })?;
            if end.checked_next_multiple_of(record.align.bytes()) != Some(record.size) {
                continue;
            }
            match &mut found {
                None => found = Some(places),
                Some(found) => {
                    for (one, other) in found.iter_mut().zip(places) {
                        one.1 = one.1.filter(|_| one.1 == other.1);
                    }
                }
            }
        }
        found
    }

    /// Returns the places of the virtual bases if the parts end at `ends`, and the end of the last.
    fn one_way(
        &mut self,
        shape: &Shape,
        ends: &[u64],
        mut placed: HashMap<TypeId, u64>,
        looks: &mut usize,
    ) -> Option<(Places, u64)> {
        let mut end = ends[0];
        let mut places = Vec::with_capacity(shape.virtuals.len());
        for (&id, own) in shape.virtuals.iter().zip(&ends[1..]) {
            if let Some(&offset) = placed.get(&id) {
                places.push((id, Some(offset)));
                continue;
            }
            let of = self.of(id, 0)?;
            if of.ends[0] == 0 {
                // Without data and table it may share its place with others.
                places.push((id, None));
                continue;
            }
            let offset = end.checked_next_multiple_of(of.align)?;
            placed.insert(id, offset);
            self.lend(id, offset, &mut placed, looks)?;
            places.push((id, Some(offset)));
            end = offset.checked_add(*own)?;
        }
        Some((places, end))
    }

    /// Places the virtual bases that lend their tables to a class at `offset`, or to bases of it.
    fn lend(
        &mut self,
        class: TypeId,
        offset: u64,
        placed: &mut HashMap<TypeId, u64>,
        looks: &mut usize,
    ) -> Option<()> {
        let shape = self.of(class, 0)?;
        *looks = looks.checked_sub(1)?;
        if let Some(primary) = shape.primary
            && !placed.contains_key(&primary)
        {
            placed.insert(primary, offset);
            self.lend(primary, offset, placed, looks)?;
        }
        for &(base, within) in &shape.bases {
            self.lend(base, offset.checked_add(within)?, placed, looks)?;
        }
        Some(())
    }
}

/// Adds a type to a list without duplicates.
fn add(list: &mut Vec<TypeId>, id: TypeId) {
    if !list.contains(&id) {
        list.push(id);
    }
}

/// Returns whether a member of the class begins in a range.
fn begins_within(class: &Record, range: Range<u64>) -> bool {
    class.members.iter().any(|member| match member.role {
        Role::VirtualBase { .. } => false,
        _ => range.contains(&member.offset),
    })
}

fn size(types: &Types, member: &Member) -> Option<u64> {
    match member.bits {
        Some(bits) => Some((u64::from(bits.offset) + u64::from(bits.size)).div_ceil(8)),
        None => types.size(member.ty),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_that_inherit_each_other_twice_and_in_a_circle_end() {
        let mut types = Types::new(8);
        let member =
            |ty, role| Member { name: Name::NONE, ty, offset: 0, bits: None, role, align: None };
        let mut class = |members: Vec<Member>| {
            let (name, kind, align) = (Name::NONE, Kind::Class, Align::Inferred(8));
            types.push(Type::Record(Record { name, kind, size: 8, align, members, declared: None }))
        };
        let root = class(vec![]);
        let unknown = Role::VirtualBase { known: false };
        let first = class(vec![member(root, unknown), member(TypeId(3), Role::Base)]);
        let mut last = first;
        for _ in 0..45 {
            last = class(vec![member(last, Role::Base), member(last, Role::Base)]);
        }
        let changed = place(&mut types, &[first], &HashMap::new());
        assert_eq!(changed.len(), 46);
        assert_eq!(types.records().count(), 47, "parts are no records of their own");
    }
}
