//! Merges the types of units into the model, each type once.

use super::bits::{self, Within};
use super::budget::Budget;
use super::identity::Identities;
use super::parsed::{Parsed, ParsedType, RawBits, Reference, Shape};
use super::{unsized_tails, virtual_bases};
use crate::Error;
use crate::align;
use crate::model::{Align, Kind, Member, Name, Place, Points, Record, Role, Type, TypeId, Types};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map whose keys are already hashes.
type ByHash<T> = HashMap<u64, T, BuildHasherDefault<Already>>;

#[derive(Default)]
struct Already(u64);

impl Hasher for Already {
    fn write(&mut self, _: &[u8]) {
        unreachable!("only keys of 64 bits");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The model while units are added.
pub(super) struct Merger<'b> {
    types: Types,
    budget: &'b Budget,
    big_endian: bool,
    known: ByHash<TypeId>,
    /// The declared types by name; next, the defined ones.
    declared: ByHash<TypeId>,
    defined: ByHash<TypeId>,
    /// Bitfields; next, the other members that wait until all sizes are known.
    bitfields: Vec<(TypeId, usize, RawBits)>,
    strides: Vec<(TypeId, u64)>,
    vectors: Vec<TypeId>,
    /// The classes that name virtual bases.
    virtual_bases: Vec<TypeId>,
    /// The bases of classes that have several, in the order of the source, by which virtual ones are placed.
    bases: HashMap<TypeId, Vec<TypeId>>,
}

impl<'b> Merger<'b> {
    /// Returns an empty model of a machine's types.
    pub(super) fn new(
        pointer_size: u8,
        widest_scalar_align: u64,
        big_endian: bool,
        budget: &'b Budget,
    ) -> Merger<'b> {
        let mut types = Types::new(pointer_size);
        types.widest_scalar_align = widest_scalar_align;
        Merger {
            types,
            budget,
            big_endian,
            known: ByHash::default(),
            declared: ByHash::default(),
            defined: ByHash::default(),
            bitfields: Vec::new(),
            strides: Vec::new(),
            vectors: Vec::new(),
            virtual_bases: Vec::new(),
            bases: HashMap::new(),
        }
    }

    /// Adds those types of some units that are new. `parsed` must be resolved.
    pub(super) fn add(
        &mut self,
        parsed: &Parsed<'_>,
        identities: &Identities,
    ) -> Result<(), Error> {
        let mut ids = Vec::with_capacity(parsed.types.len());
        let mut new = Vec::new();
        for (index, ty) in parsed.types.iter().enumerate() {
            let (id, is_new) = self.id(ty, identities.full[index], identities.named[index]);
            ids.push(id);
            if is_new {
                new.push(index);
            }
        }
        let mut unit = Unit { merger: self, parsed, ids, files: HashMap::new() };
        new.into_iter().try_for_each(|index| unit.make(index))
    }

    /// Returns the number of a type, and whether it is new. A definition replaces a declaration of the same name.
    fn id(&mut self, ty: &ParsedType<'_>, full: u64, named: u64) -> (TypeId, bool) {
        let placeholder = Type::Unknown { size: None };
        match ty.shape {
            // No type refers to it any more.
            Shape::Alias => return (TypeId(0), false),
            Shape::Declaration(_) if !ty.name.is_empty() => {
                let known = self.defined.get(&named).or(self.declared.get(&named));
                if let Some(&id) = known {
                    return (id, false);
                }
                let id = self.types.push(placeholder);
                self.declared.insert(named, id);
                return (id, true);
            }
            _ => {}
        }
        if let Some(&id) = self.known.get(&full) {
            return (id, false);
        }
        let named = (matches!(ty.shape, Shape::Record(_) | Shape::Enum) && !ty.name.is_empty())
            .then_some(named);
        let id = named.and_then(|named| self.declared.remove(&named));
        let id = id.unwrap_or_else(|| self.types.push(placeholder));
        self.known.insert(full, id);
        if let Some(named) = named {
            self.defined.entry(named).or_insert(id);
        }
        (id, true)
    }

    /// Completes the parts of the model that had to wait for all sizes.
    pub(super) fn finish(mut self) -> Types {
        self.place_strides();
        self.align_vectors();
        self.place_bitfields();
        unsized_tails::open(&mut self.types);
        align::infer(&mut self.types);
        let changed = virtual_bases::place(&mut self.types, &self.virtual_bases, &self.bases);
        changed.into_iter().for_each(|id| sort(&mut self.types, id));
        self.types
    }

    /// Sets the sizes of arrays whose elements lie further apart than they are long.
    fn place_strides(&mut self) {
        for &(id, stride) in &self.strides {
            let Type::Array { element, count } = *self.types.get(id) else { continue };
            if self.types.size(element).is_some_and(|size| size.saturating_mul(8) == stride) {
                continue;
            }
            let replaced = match count {
                _ if stride % 8 == 0 => {
                    let element = self.types.push(Type::Unknown { size: Some(stride / 8) });
                    Type::Array { element, count }
                }
                // Each element has some bits. The model cannot say so, but the size is known.
                Some(count) => {
                    Type::Unknown { size: count.checked_mul(stride).map(|bits| bits.div_ceil(8)) }
                }
                None => Type::Unknown { size: None },
            };
            self.types.set(id, replaced);
        }
    }

    /// Aligns vectors to their size; their elements are aligned to less.
    fn align_vectors(&mut self) {
        for &id in &self.vectors {
            let Type::Typedef { to: Some(array), .. } = *self.types.get(id) else { continue };
            let Type::Array { element, count } = *self.types.get(array) else { continue };
            let element = match self.types.get(self.types.resolve(element)) {
                Type::Base { name, .. } | Type::Enum { name, .. } => self.types.name(*name),
                _ => "",
            };
            let spelling = format!("__vector({}) {element}", count.unwrap_or(0));
            let name = self.types.intern(spelling.trim_end());
            let align = self.types.size(array).filter(|size| size.is_power_of_two());
            self.types.set(id, Type::Typedef { name, to: Some(array), align });
        }
    }

    fn place_bitfields(&mut self) {
        for &(id, index, raw) in &self.bitfields {
            let Type::Record(Record { size, members, .. }) = self.types.get(id) else { continue };
            let member = &members[index];
            let declared = self.types.size(member.ty).unwrap_or(0);
            let within = Within { record: *size, declared, big_endian: self.big_endian };
            let Some((offset, bits)) = bits::place(raw, member.offset, within) else { continue };
            if let Type::Record(Record { members, .. }) = self.types.get_mut(id) {
                members[index].offset = offset;
                members[index].bits = Some(bits);
            }
        }
        // Only now is the order of a record's members known.
        for of_one in self.bitfields.chunk_by(|one, next| one.0 == next.0) {
            sort(&mut self.types, of_one[0].0);
        }
    }
}

fn sort(types: &mut Types, id: TypeId) {
    if let Type::Record(record) = types.get_mut(id) {
        sort_members(record);
    }
}

fn sort_members(record: &mut Record) {
    if record.kind != Kind::Union {
        record.members.sort_by_key(|member| {
            let bits = member.bits.map_or(0, |bits| u64::from(bits.offset));
            u128::from(member.offset) * 8 + u128::from(bits)
        });
    }
}

/// The types of some units, while they are added to the model.
struct Unit<'m, 'b, 'p, 'a> {
    merger: &'m mut Merger<'b>,
    parsed: &'p Parsed<'a>,
    ids: Vec<TypeId>,
    files: HashMap<u32, Name>,
}

impl Unit<'_, '_, '_, '_> {
    fn make(&mut self, index: usize) -> Result<(), Error> {
        let id = self.ids[index];
        let ty = &self.parsed.types[index];
        let to = self.id(ty.to);
        let pointer_size = u64::from(self.merger.types.pointer_size);
        let made = match ty.shape {
            Shape::Record(kind) => Type::Record(self.record(id, index, kind)?),
            Shape::Array { count, stride_bits, vector } => {
                let element = self.or_unknown(to);
                let array = Type::Array { element, count };
                if vector {
                    let array = self.merger.types.push(array);
                    self.merger.vectors.push(id);
                    Type::Typedef { name: Name::NONE, to: Some(array), align: None }
                } else {
                    if let Some(stride) = stride_bits {
                        self.merger.strides.push((id, stride));
                    }
                    array
                }
            }
            Shape::MemberPointer if self.is_function(ty.to) => {
                // The function, and the offset to add to `this`.
                let types = &mut self.merger.types;
                let pointer = types.push(Type::pointer(None));
                let pair = types.push(Type::Array { element: pointer, count: Some(2) });
                let name = types.intern("pointer to member function");
                Type::Typedef { name, to: Some(pair), align: None }
            }
            Shape::Pointer
            | Shape::LvalueReference
            | Shape::RvalueReference
            | Shape::MemberPointer => match ty.size {
                // The pointer belongs to another address space.
                Some(size) if size != pointer_size => {
                    Type::Base { name: self.merger.types.intern("pointer"), size }
                }
                _ => Type::Pointer { to, points: self.points(ty) },
            },
            Shape::Base => {
                let name = self.name(ty)?;
                let void = ty.name.ends_with(b"nullptr_t") || ty.name == b"decltype(nullptr)";
                match ty.size {
                    Some(size) => Type::Base { name, size },
                    None if void => Type::Base { name, size: pointer_size },
                    None => Type::Declaration { keyword: "", name },
                }
            }
            Shape::Complex => {
                // A complex number is two numbers in a row, with the alignment of one.
                let name = self.name(ty)?;
                let types = &mut self.merger.types;
                let part =
                    String::from_utf8_lossy(ty.name.strip_prefix(b"complex ").unwrap_or(b""));
                let part = types.intern(&part);
                let part = types.push(Type::Base { name: part, size: ty.size.unwrap_or(0) / 2 });
                let pair = types.push(Type::Array { element: part, count: Some(2) });
                Type::Typedef { name, to: Some(pair), align: None }
            }
            Shape::Enum => {
                let underlying = ty.to.get().and_then(|to| self.parsed.types[to as usize].size);
                Type::Enum { name: self.name(ty)?, size: ty.size.or(underlying).unwrap_or(0) }
            }
            Shape::Typedef => Type::Typedef { name: self.name(ty)?, to, align: some(ty.align) },
            Shape::Qualified(qualifier) => Type::Qualified { qualifier, to },
            Shape::Function { variadic } => {
                let from = self.parsed.members_of(ty).iter();
                let parameters: Option<_> = from.map(|member| self.id(member.to)).collect();
                let parameters = parameters.unwrap_or_default();
                Type::Function { result: to, parameters, variadic }
            }
            Shape::Declaration(keyword) => Type::Declaration { keyword, name: self.name(ty)? },
            Shape::Unknown | Shape::Alias => Type::Unknown { size: ty.size },
        };
        self.merger.types.set(id, made);
        Ok(())
    }

    fn record(&mut self, id: TypeId, index: usize, kind: Kind) -> Result<Record, Error> {
        let parsed = self.parsed;
        let ty = &parsed.types[index];
        let from = parsed.members_of(ty);
        let mut members = Vec::with_capacity(from.len());
        let mut has_bits = false;
        for (index, member) in from.iter().enumerate() {
            let ty = match member.to.get().map(|to| &parsed.types[to as usize]) {
                // Rust describes a function item by its type, as a pointer. It has no size, as its alignment shows.
                Some(of) if member.rust_align == 1 && of.shape == Shape::Pointer => {
                    let name = self.name(of)?;
                    self.merger.types.push(Type::Base { name, size: 0 })
                }
                _ => self.or_unknown(self.id(member.to)),
            };
            has_bits |= member.bits != RawBits::None;
            let types = &mut self.merger.types;
            members.push(Member {
                name: types.intern(&String::from_utf8_lossy(member.name)),
                ty,
                offset: member.offset,
                bits: None,
                role: member.role,
                align: some(member.align),
            });
            if member.bits != RawBits::None {
                self.merger.bitfields.push((id, index, member.bits));
            }
        }
        let is_virtual = |member: &Member| matches!(member.role, Role::VirtualBase { .. });
        if members.iter().any(is_virtual) {
            self.merger.virtual_bases.push(id);
        }
        let bases = members.iter().filter(|member| member.role == Role::Base || is_virtual(member));
        let bases: Vec<TypeId> = bases.map(|member| member.ty).collect();
        if bases.len() > 1 {
            self.merger.bases.insert(id, bases);
        }
        let align = some(ty.align).map_or(Align::Inferred(1), Align::Known);
        let name = self.name(ty)?;
        let declared = self.declared(ty);
        let size = ty.size.unwrap_or(0);
        let mut record = Record { name, kind, size, align, members, declared };
        if !has_bits {
            sort_members(&mut record);
        }
        Ok(record)
    }

    fn declared(&mut self, ty: &ParsedType<'_>) -> Option<Place> {
        let (file, line) = ty.place;
        if file == 0 || line == 0 {
            return None;
        }
        let types = &mut self.merger.types;
        let from = &self.parsed.files[file as usize];
        let file = *self.files.entry(file).or_insert_with(|| {
            let mut path = String::from_utf8_lossy(from.directory).into_owned();
            let name = String::from_utf8_lossy(from.name);
            if path.is_empty() || name.starts_with('/') {
                path.clear();
            } else if !path.ends_with('/') {
                path.push('/');
            }
            path.push_str(&name);
            types.intern(&path)
        });
        Some(Place { file, line })
    }

    /// Returns a type's name, with the names of the scopes that it is in.
    fn name(&mut self, ty: &ParsedType<'_>) -> Result<Name, Error> {
        if ty.name.is_empty() {
            return Ok(Name::NONE);
        }
        let mut path = vec![String::from_utf8_lossy(ty.name)];
        let mut scope = ty.scope;
        while scope != 0 {
            let this = &self.parsed.scopes[scope as usize];
            if !this.name.is_empty() {
                path.push(String::from_utf8_lossy(this.name));
            }
            scope = this.parent;
        }
        path.reverse();
        let spelling = path.join("::");
        self.merger.budget.spend(spelling.len() as u64)?;
        Ok(self.merger.types.intern(&spelling))
    }

    /// Returns the number of the type of a reference.
    fn id(&self, to: Reference) -> Option<TypeId> {
        to.get().map(|index| self.ids[index as usize])
    }

    /// Returns the type of a member or element; a missing one becomes an unknown type.
    fn or_unknown(&mut self, id: Option<TypeId>) -> TypeId {
        id.unwrap_or_else(|| self.merger.types.push(Type::Unknown { size: None }))
    }

    /// Returns the way in which a pointer or similar type points.
    fn points(&mut self, ty: &ParsedType<'_>) -> Points {
        match ty.shape {
            Shape::LvalueReference => Points::Lvalue,
            Shape::RvalueReference => Points::Rvalue,
            _ => {
                // Only a pointer to members has a class, stored as its member.
                let class = self.parsed.members_of(ty).first().and_then(|class| self.id(class.to));
                class.map_or_else(
                    || Points::Pointer(self.merger.types.intern(&String::from_utf8_lossy(ty.name))),
                    Points::Member,
                )
            }
        }
    }

    fn is_function(&self, mut to: Reference) -> bool {
        for _ in 0..10 {
            match to.get().map(|index| &self.parsed.types[index as usize]) {
                Some(ParsedType { shape: Shape::Function { .. }, .. }) => return true,
                Some(ty) if matches!(ty.shape, Shape::Typedef | Shape::Qualified(_)) => to = ty.to,
                _ => break,
            }
        }
        false
    }
}

fn some(bytes: u64) -> Option<u64> {
    (bytes != 0).then_some(bytes)
}
