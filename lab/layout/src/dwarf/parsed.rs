//! The types of one unit in the terms of its entries, before they are compared with other units' types.
//!
//! Names are still bytes of the file, and references are still offsets, which [`Parsed::resolve`] turns into indices.
//! Units that refer to each other are joined before that.

use crate::model::{Kind, Role};
use foldhash::fast::FixedState;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};

/// Returns a hash that is the same for the same value in every run.
fn hash(value: &impl Hash) -> u64 {
    FixedState::with_seed(0x6c65_6467_6572).hash_one(value)
}

/// The target of a reference: an offset in a section, or an index in [`Parsed::types`] if it has been resolved or was
/// made by the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Reference(u64);

impl Default for Reference {
    fn default() -> Reference {
        Reference::NONE
    }
}

impl Reference {
    /// A reference to nothing, which is void.
    pub(super) const NONE: Reference = Reference(u64::MAX);
    const INDEX: u64 = 1 << 63;
    const SPACE: u32 = 56;

    /// Returns a reference to the entry at `offset` of a section; `space` distinguishes sections.
    pub(super) fn entry(space: u8, offset: usize) -> Reference {
        debug_assert!(space < 128);
        Reference(u64::from(space) << Self::SPACE | offset as u64 & ((1 << Self::SPACE) - 1))
    }

    /// Returns the number of bytes of a section between another entry and this one, which comes later.
    pub(super) fn behind(self, before: Reference) -> usize {
        self.0.saturating_sub(before.0) as usize
    }

    /// Returns a reference to `types[index]`.
    pub(super) fn index(index: u32) -> Reference {
        Reference(Self::INDEX | u64::from(index))
    }

    /// Returns the index, if this is one.
    pub(super) fn get(self) -> Option<u32> {
        (self != Self::NONE && self.0 & Self::INDEX != 0).then_some(self.0 as u32)
    }

    /// Returns whether it is an offset, which must be looked up.
    pub(super) fn is_entry(self) -> bool {
        self.0 & Self::INDEX == 0
    }

    fn shift(&mut self, types: u32) {
        if let Some(index) = self.get() {
            *self = Self::index(index + types);
        }
    }
}

/// The sort of a type.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Shape {
    Record(Kind),
    Array {
        count: Option<u64>,
        stride_bits: Option<u64>,
        vector: bool,
    },
    Pointer,
    LvalueReference,
    RvalueReference,
    /// Its class is its only member, if the file states it.
    MemberPointer,
    Base,
    Complex,
    Enum,
    Typedef,
    Qualified(&'static str),
    /// Its parameters are its members.
    Function {
        variadic: bool,
    },
    /// A declaration, with its keyword.
    Declaration(&'static str),
    #[default]
    Unknown,
    /// An entry that stands for another: a type unit's type, or a definition in the same unit as the declaration.
    Alias,
}

/// One type.
#[derive(Clone, Debug, Default)]
pub(super) struct ParsedType<'a> {
    pub shape: Shape,
    pub name: &'a [u8],
    /// Its index in [`Parsed::scopes`].
    pub scope: u32,
    /// Its index in [`Parsed::files`], and its line; zero if the file does not state them.
    pub place: (u32, u32),
    /// Its size in bytes, if the file states it.
    pub size: Option<u64>,
    /// Its alignment in bytes; zero if the file does not state it.
    pub align: u64,
    /// The type that it points to, repeats, qualifies or renames; of an enumeration, the type of its numbers.
    pub to: Reference,
    /// The declaration that it defines.
    pub specification: Reference,
    /// The range of its members in [`Parsed::members`]; filled in by [`Parsed::group_members`].
    pub members: (u32, u32),
}

/// The place of a bitfield's bits, in the file's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum RawBits {
    /// The member is not a bitfield.
    None,
    /// DWARF 4 and 5 count from the record's start, in the order of memory.
    FromStart { first: u64, size: u64 },
    /// DWARF 2 and 3 count from the most significant bit of a storage unit at the member's offset. The unit has the
    /// member's type if `storage` is zero.
    FromTop { skipped: i64, size: u64, storage: u64 },
}

/// One member.
#[derive(Clone, Debug)]
pub(super) struct ParsedMember<'a> {
    pub owner: u32,
    pub role: Role,
    pub name: &'a [u8],
    pub to: Reference,
    pub offset: u64,
    pub bits: RawBits,
    /// The alignment that the source asked for, in bytes; zero if the file does not state it.
    pub align: u64,
    /// The alignment that Rust states of every member, asked for or not; zero for other languages.
    pub rust_align: u64,
}

/// A namespace, class or function in which names are declared.
#[derive(Clone, Debug, Default)]
pub(super) struct Scope<'a> {
    pub parent: u32,
    pub name: &'a [u8],
    /// The declaration whose name and scope count, for a class that is defined elsewhere.
    pub specification: Reference,
    /// The hash of the path from the outermost scope; [`Parsed::resolve`] fills it in.
    pub hash: u64,
    depth: u32,
}

/// A source file: its directory as passed to the compiler, and its name.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct File<'a> {
    pub directory: &'a [u8],
    pub name: &'a [u8],
}

/// The depth to which scopes are distinguished.
const DEEPEST_SCOPE: u32 = 100;

/// The most aliases that are followed to a type.
const LONGEST_ALIAS: usize = 8;

/// The types of a unit, or of units that refer to each other.
#[derive(Debug, Default)]
pub(super) struct Parsed<'a> {
    pub types: Vec<ParsedType<'a>>,
    pub members: Vec<ParsedMember<'a>>,
    /// The scopes. The first is the outermost, and parents come before the scopes inside them.
    pub scopes: Vec<Scope<'a>>,
    /// The source files. The first stands for none.
    pub files: Vec<File<'a>>,
    /// The entries and the types that they became, in the order of the file.
    pub entries: Vec<(Reference, u32)>,
    /// The references to other units.
    pub outward: Vec<Reference>,
}

impl<'a> Parsed<'a> {
    pub(super) fn new() -> Parsed<'a> {
        let (scopes, files) = (vec![Scope::default()], vec![File::default()]);
        Parsed { scopes, files, ..Parsed::default() }
    }

    /// Adds a scope. Scopes nested deeper than a hundred are not distinguished.
    pub(super) fn scope(&mut self, parent: u32, name: &'a [u8], specification: Reference) -> u32 {
        let depth = self.scopes[parent as usize].depth + 1;
        if depth > DEEPEST_SCOPE {
            return parent;
        }
        self.scopes.push(Scope { parent, name, specification, hash: 0, depth });
        (self.scopes.len() - 1) as u32
    }

    /// Puts the members of each type next to each other.
    pub(super) fn group_members(&mut self) {
        self.members.sort_by_key(|member| member.owner);
        let mut start = 0;
        for group in self.members.chunk_by(|one, next| one.owner == next.owner) {
            let end = start + group.len() as u32;
            self.types[group[0].owner as usize].members = (start, end);
            start = end;
        }
    }

    /// Returns the members of a type.
    pub(super) fn members_of(&self, ty: &ParsedType<'_>) -> &[ParsedMember<'a>] {
        &self.members[ty.members.0 as usize..ty.members.1 as usize]
    }

    /// Takes in the types of another unit.
    pub(super) fn append(&mut self, other: Parsed<'a>) {
        let types = self.types.len() as u32;
        let members = self.members.len() as u32;
        let scopes = self.scopes.len() as u32;
        let files = self.files.len() as u32;
        self.types.extend(other.types.into_iter().map(|mut ty| {
            ty.scope += scopes;
            ty.place.0 += if ty.place.0 == 0 { 0 } else { files };
            ty.members.0 += members;
            ty.members.1 += members;
            ty.to.shift(types);
            ty.specification.shift(types);
            ty
        }));
        self.members.extend(other.members.into_iter().map(|mut member| {
            member.owner += types;
            member.to.shift(types);
            member
        }));
        self.scopes.extend(other.scopes.into_iter().enumerate().map(|(index, mut scope)| {
            // Their outermost scope has no parent here either.
            scope.parent = if index == 0 { 0 } else { scope.parent + scopes };
            scope
        }));
        self.files.extend(other.files);
        self.entries.extend(other.entries.into_iter().map(|(at, index)| (at, index + types)));
        self.outward.extend(other.outward);
    }

    /// Replaces offsets by indices, gives definitions the names of their declarations, and lets declarations stand
    /// for their definitions.
    ///
    /// A reference to a missing type becomes [`Shape::Unknown`].
    pub(super) fn resolve(&mut self) {
        if !self.entries.is_sorted() {
            self.entries.sort_unstable();
        }
        let missing = self.types.len() as u32;
        self.types.push(ParsedType::default());
        let entries = std::mem::take(&mut self.entries);
        let find = |reference: Reference| {
            if !reference.is_entry() {
                return reference;
            }
            let found = entries.binary_search_by_key(&reference, |&(at, _)| at);
            Reference::index(found.map_or(missing, |index| entries[index].1))
        };
        for ty in &mut self.types {
            ty.to = find(ty.to);
            ty.specification = find(ty.specification);
        }
        for member in &mut self.members {
            member.to = find(member.to);
        }
        for scope in &mut self.scopes {
            scope.specification = find(scope.specification);
        }
        self.name_definitions();
        self.hash_scopes();
        self.define_declarations();
        self.follow_aliases();
        self.tell_variants();
    }

    /// Sets the names and scopes of classes that are defined outside of the namespace that declares them, and so have
    /// neither of their own.
    fn name_definitions(&mut self) {
        for index in 0..self.types.len() {
            let Some(declaration) = self.types[index].specification.get() else { continue };
            let ParsedType { name, scope, .. } = self.types[declaration as usize];
            let ty = &mut self.types[index];
            if ty.name.is_empty() {
                ty.name = name;
            }
            ty.scope = scope;
        }
    }

    fn hash_scopes(&mut self) {
        for index in 1..self.scopes.len() {
            if let Some(declaration) = self.scopes[index].specification.get() {
                let ParsedType { name, scope, .. } = self.types[declaration as usize];
                let this = &mut self.scopes[index];
                if this.name.is_empty() {
                    this.name = name;
                }
                // Only scopes that stand before this one have their hashes already; this also cuts circles.
                if (scope as usize) < index {
                    this.parent = scope;
                }
            }
            let Scope { parent, name, .. } = self.scopes[index];
            let parent = &self.scopes[parent as usize];
            let (above, depth) = (parent.hash, parent.depth);
            let this = &mut self.scopes[index];
            this.hash = if name.is_empty() { above } else { hash(&(above, name)) };
            this.depth = (depth + 1).min(DEEPEST_SCOPE);
        }
    }

    fn define_declarations(&mut self) {
        let declared =
            |ty: &ParsedType| matches!(ty.shape, Shape::Declaration(_)) && !ty.name.is_empty();
        if !self.types.iter().any(declared) {
            return;
        }
        let qualified =
            |ty: &ParsedType, scopes: &[Scope]| hash(&(scopes[ty.scope as usize].hash, ty.name));
        let mut definitions = HashMap::new();
        for (index, ty) in self.types.iter().enumerate() {
            if matches!(ty.shape, Shape::Record(_) | Shape::Enum) && !ty.name.is_empty() {
                definitions.entry(qualified(ty, &self.scopes)).or_insert(index as u32);
            }
        }
        for ty in &mut self.types {
            if declared(ty)
                && let Some(&definition) = definitions.get(&qualified(ty, &self.scopes))
            {
                ty.shape = Shape::Alias;
                ty.to = Reference::index(definition);
            }
        }
    }

    fn follow_aliases(&mut self) {
        let aliases: Vec<Option<u32>> = self
            .types
            .iter()
            .map(|ty| if ty.shape == Shape::Alias { ty.to.get() } else { None })
            .collect();
        let follow = |reference: &mut Reference| {
            for _ in 0..LONGEST_ALIAS {
                match reference.get().and_then(|index| aliases[index as usize]) {
                    Some(next) => *reference = Reference::index(next),
                    None => return,
                }
            }
            // An alias that is still an alias is part of a circle, and stands for no known type.
            *reference = Reference::index(aliases.len() as u32 - 1);
        };
        self.types.iter_mut().for_each(|ty| follow(&mut ty.to));
        self.members.iter_mut().for_each(|member| follow(&mut member.to));
    }

    /// Distinguishes the records of variants by the enums that they belong to.
    fn tell_variants(&mut self) {
        for member in &self.members {
            if member.role == Role::Variant
                && let Some(record) = member.to.get()
                && let Shape::Record(kind) = &mut self.types[record as usize].shape
            {
                *kind = Kind::Variant;
            }
        }
    }
}
