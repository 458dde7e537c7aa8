//! Finds types of different units that are one type.
//!
//! A header's structures are in every unit that includes it. Two types are one when they have the same name, kind,
//! size, line of the source and members; types that members hold by value are compared all the way down. Types that
//! members only point to are compared by name, so that a list's node may point to itself, and a unit that only
//! declares a type agrees with one that defines it.
//!
//! Hashes of 64 bits are compared. The chance that two different types among a million are confused is one in thirty
//! million.

use super::parsed::{Parsed, ParsedType, Reference, Shape};
use foldhash::fast::FixedState;
use std::hash::{BuildHasher, Hash, Hasher};

/// The depth to which types are compared by value.
const DEEPEST: u32 = 200;

/// The hash of a type that has not been computed yet.
const UNSEEN: u64 = 0;

/// Hashes of the types of some units.
pub(super) struct Identities {
    /// For each type, the hash of its whole content.
    pub full: Vec<u64>,
    /// For each type, the hash of its name with its scopes.
    pub named: Vec<u64>,
}

/// The two hashes of a type.
#[derive(Clone, Copy)]
enum Which {
    Named = 1,
    Full = 2,
}

impl Identities {
    /// Computes all hashes in one pass over types and members. `parsed` must be resolved.
    pub(super) fn of(parsed: &Parsed<'_>) -> Identities {
        let count = parsed.types.len();
        let ids = Identities { full: vec![UNSEEN; count], named: vec![UNSEEN; count] };
        let mut work = Work { parsed, ids };
        for index in 0..count as u32 {
            work.hash(Which::Named, index, 0);
            work.hash(Which::Full, index, 0);
        }
        work.ids
    }

    fn slot(&mut self, which: Which, index: u32) -> &mut u64 {
        match which {
            Which::Named => &mut self.named[index as usize],
            Which::Full => &mut self.full[index as usize],
        }
    }
}

struct Work<'p, 'a> {
    parsed: &'p Parsed<'a>,
    ids: Identities,
}

impl Work<'_, '_> {
    /// Returns the hash of a type's name alone, or of the type with all types that it holds by value.
    fn hash(&mut self, which: Which, index: u32, depth: u32) -> u64 {
        let slot = self.ids.slot(which, index);
        if *slot != UNSEEN {
            return *slot;
        }
        // This value applies if a circle comes back to the type, or the type lies too deep.
        *slot = 1;
        if depth >= DEEPEST {
            return 1;
        }
        let ty = &self.parsed.types[index as usize];
        let mut state = FixedState::with_seed(which as u64).build_hasher();
        match which {
            Which::Named => self.named(ty, depth + 1, &mut state),
            Which::Full => self.full(ty, depth + 1, &mut state),
        }
        let hash = state.finish().max(2);
        *self.ids.slot(which, index) = hash;
        hash
    }

    fn named(&mut self, ty: &ParsedType<'_>, depth: u32, state: &mut impl Hasher) {
        let scope = self.parsed.scopes[ty.scope as usize].hash;
        match ty.shape {
            // The hash is the same whether the type is defined here or only declared.
            Shape::Record(_) | Shape::Enum | Shape::Declaration(_) if !ty.name.is_empty() => {
                (scope, ty.name).hash(state);
            }
            Shape::Record(_) | Shape::Enum | Shape::Declaration(_) => {
                (2, scope, ty.size, ty.place.1, ty.members.1 - ty.members.0).hash(state);
            }
            _ => {
                self.plain(ty, state);
                self.refer(Which::Named, ty.to, depth, state);
                self.parameters(ty, depth, state);
            }
        }
    }

    fn full(&mut self, ty: &ParsedType<'_>, depth: u32, state: &mut impl Hasher) {
        self.plain(ty, state);
        match ty.shape {
            Shape::Pointer
            | Shape::LvalueReference
            | Shape::RvalueReference
            | Shape::MemberPointer
            | Shape::Function { .. } => {
                self.refer(Which::Named, ty.to, depth, state);
                self.parameters(ty, depth, state);
            }
            Shape::Record(_) => {
                for member in self.parsed.members_of(ty) {
                    member.name.hash(state);
                    (member.offset, member.bits, member.align, member.rust_align).hash(state);
                    std::mem::discriminant(&member.role).hash(state);
                    self.refer(Which::Full, member.to, depth, state);
                }
            }
            _ => self.refer(Which::Full, ty.to, depth, state),
        }
    }

    /// Hashes the parameters of a function, or the class of a pointer to its members. They are not part of a record,
    /// so their names suffice.
    fn parameters(&mut self, ty: &ParsedType<'_>, depth: u32, state: &mut impl Hasher) {
        match ty.shape {
            Shape::Function { variadic } => variadic.hash(state),
            Shape::MemberPointer => {}
            _ => return,
        }
        for parameter in self.parsed.members_of(ty) {
            self.refer(Which::Named, parameter.to, depth, state);
        }
    }

    /// Hashes the entry's own attributes.
    fn plain(&self, ty: &ParsedType<'_>, state: &mut impl Hasher) {
        let scope = self.parsed.scopes[ty.scope as usize].hash;
        std::mem::discriminant(&ty.shape).hash(state);
        (scope, ty.name, ty.size, ty.align).hash(state);
        match ty.shape {
            Shape::Array { count, stride_bits, vector } => {
                (count, stride_bits, vector).hash(state);
            }
            Shape::Qualified(qualifier) => qualifier.hash(state),
            Shape::Record(kind) => {
                // A header has several paths, depending on where the compiler ran.
                let file = self.parsed.files[ty.place.0 as usize].name;
                let file = file.rsplit(|&byte| byte == b'/').next().unwrap_or(file);
                (kind as u8, file, ty.place.1).hash(state);
            }
            _ => {}
        }
    }

    /// Hashes a type that another refers to by its own hash.
    fn refer(&mut self, which: Which, to: Reference, depth: u32, state: &mut impl Hasher) {
        state.write_u64(to.get().map_or(3, |index| self.hash(which, index, depth)));
    }
}
