//! Finds out which types of different units are one type.
//!
//! A header's structures are in every unit that includes it. Two types are one when they have the same name, kind,
//! size, line of the source and members; types that members hold by value are compared all the way down. Types that
//! members only point to are compared by name, so that a list's node may point to itself, and a unit that only
//! declares a type agrees with one that defines it.
//!
//! Hashes of 64 bits are compared. The chance that two different types among a million are taken for one is one in
//! thirty million.

use super::parsed::{Parsed, ParsedType, Reference, Shape};
use foldhash::fast::FixedState;
use std::hash::{BuildHasher, Hash, Hasher};

/// How deep types are compared by value.
const DEEPEST: u32 = 200;

/// The hash of a type that has not been worked out yet.
const UNSEEN: u64 = 0;

/// Hashes of the types of some units.
pub(super) struct Identities {
    /// For each type, the hash of all that is in it.
    pub full: Vec<u64>,
    /// For each type, the hash of its name with its scopes.
    pub named: Vec<u64>,
}

impl Identities {
    /// Works out all hashes in one pass over types and members. `parsed` must be resolved.
    pub(super) fn of(parsed: &Parsed<'_>) -> Identities {
        let count = parsed.types.len();
        let mut work = Work {
            parsed,
            ids: Identities { full: vec![UNSEEN; count], named: vec![UNSEEN; count] },
        };
        for index in 0..count as u32 {
            work.named(index, 0);
            work.full(index, 0);
        }
        work.ids
    }
}

struct Work<'p, 'a> {
    parsed: &'p Parsed<'a>,
    ids: Identities,
}

impl Work<'_, '_> {
    /// The hash of a type's name alone.
    fn named(&mut self, index: u32, depth: u32) -> u64 {
        let slot = index as usize;
        if self.ids.named[slot] != UNSEEN {
            return self.ids.named[slot];
        }
        // This counts where a circle comes back to the type, and where it lies too deep.
        self.ids.named[slot] = 1;
        if depth >= DEEPEST {
            return 1;
        }
        let parsed = self.parsed;
        let ty = &parsed.types[slot];
        let scope = parsed.scopes[ty.scope as usize].hash;
        let mut state = FixedState::with_seed(1).build_hasher();
        match ty.shape {
            // It counts the same whether it is defined here or only declared.
            Shape::Record(_) | Shape::Enum | Shape::Declaration(_) if !ty.name.is_empty() => {
                (scope, ty.name).hash(&mut state);
            }
            Shape::Record(_) | Shape::Enum | Shape::Declaration(_) => {
                (2, scope, ty.size, ty.place.1, ty.members.1 - ty.members.0).hash(&mut state);
            }
            _ => {
                self.plain(ty, &mut state);
                let to = self.referred(ty.to, |work, to| work.named(to, depth + 1));
                state.write_u64(to);
                self.parameters(ty, depth, &mut state);
            }
        }
        self.ids.named[slot] = state.finish().max(2);
        self.ids.named[slot]
    }

    /// The hash of a type with all that it holds by value.
    fn full(&mut self, index: u32, depth: u32) -> u64 {
        let slot = index as usize;
        if self.ids.full[slot] != UNSEEN {
            return self.ids.full[slot];
        }
        self.ids.full[slot] = 1;
        if depth >= DEEPEST {
            return 1;
        }
        let parsed = self.parsed;
        let ty = &parsed.types[slot];
        let mut state = FixedState::with_seed(2).build_hasher();
        self.plain(ty, &mut state);
        match ty.shape {
            Shape::Pointer | Shape::LvalueReference | Shape::RvalueReference => {
                let to = self.referred(ty.to, |work, to| work.named(to, depth + 1));
                state.write_u64(to);
            }
            Shape::MemberPointer | Shape::Function { .. } => {
                let to = self.referred(ty.to, |work, to| work.named(to, depth + 1));
                state.write_u64(to);
                self.parameters(ty, depth, &mut state);
            }
            Shape::Record(_) => {
                let (start, end) = ty.members;
                for member in &parsed.members[start as usize..end as usize] {
                    member.name.hash(&mut state);
                    (member.offset, member.bits, member.align, member.rust_align).hash(&mut state);
                    std::mem::discriminant(&member.role).hash(&mut state);
                    let to = self.referred(member.to, |work, to| work.full(to, depth + 1));
                    state.write_u64(to);
                }
            }
            _ => {
                let to = self.referred(ty.to, |work, to| work.full(to, depth + 1));
                state.write_u64(to);
            }
        }
        self.ids.full[slot] = state.finish().max(2);
        self.ids.full[slot]
    }

    /// Hashes the parameters of a function, or the class of a pointer to its members. They lie in no record, so their
    /// names suffice.
    fn parameters(&mut self, ty: &ParsedType<'_>, depth: u32, state: &mut impl Hasher) {
        match ty.shape {
            Shape::Function { variadic } => variadic.hash(state),
            Shape::MemberPointer => {}
            _ => return,
        }
        let (start, end) = ty.members;
        let parsed = self.parsed;
        for parameter in &parsed.members[start as usize..end as usize] {
            let to = self.referred(parameter.to, |work, to| work.named(to, depth + 1));
            state.write_u64(to);
        }
    }

    /// Hashes what the entry itself says.
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

    fn referred(&mut self, to: Reference, hash: impl FnOnce(&mut Self, u32) -> u64) -> u64 {
        to.get().map_or(3, |index| hash(self, index))
    }
}
