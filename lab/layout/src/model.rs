//! What every reader produces and everything else reads: the types of one file.
//!
//! A table of types that refer to each other by index. Names are interned, because a kernel has a hundred
//! thousand members and few thousand spellings.

use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::BuildHasher;

/// A type in a [`Types`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeId(pub u32);

/// A name in a [`Types`]; [`Types::name`] spells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(pub u32);

impl Name {
    /// What an anonymous type or member is called: nothing.
    pub const NONE: Name = Name(0);
}

/// The types of one file, and where they were read.
#[derive(Debug)]
pub struct Types {
    types: Vec<Type>,
    spellings: Spellings,
    /// Bytes of a pointer on the machine the file is for.
    pub pointer_size: u8,
    /// The largest alignment that a number has there, in bytes: 16, if the reader knows no better
    /// (4 on i386, where eight bytes are aligned to four).
    pub widest_scalar_align: u64,
    /// How many of the types, the first ones, belong to another file that this one builds on (the kernel's,
    /// for a module's BTF). They are referred to; [`Types::records`] leaves them out.
    pub borrowed: u32,
}

/// One type.
#[derive(Clone, Debug, PartialEq)]
pub enum Type {
    /// A structure, class, union or Rust enum: what has members.
    Record(Record),
    /// `count` elements in a row; `None` is a flexible array, which has no size.
    Array {
        /// What is repeated.
        element: TypeId,
        /// How often.
        count: Option<u64>,
    },
    /// A pointer or reference.
    Pointer {
        /// To what; `None` is void.
        to: Option<TypeId>,
        /// As Rust calls it (`&str`, `*const T`, `fn(u32)`); [`Name::NONE`] for other languages.
        name: Name,
    },
    /// A number, character or truth value.
    Base {
        /// As the file calls it.
        name: Name,
        /// In bytes.
        size: u64,
    },
    /// An enumeration without payload (C, C++; a Rust enum with variant parts is a [`Record`]).
    Enum {
        /// [`Name::NONE`] when anonymous.
        name: Name,
        /// In bytes.
        size: u64,
    },
    /// Another name.
    Typedef {
        /// The new name.
        name: Name,
        /// `None` is void.
        to: Option<TypeId>,
        /// What `alignas` or an attribute on the typedef asked for.
        align: Option<u64>,
    },
    /// `const`, `volatile`, `_Atomic`, `restrict`, a type tag.
    Qualified {
        /// As C spells it.
        qualifier: &'static str,
        /// `None` is void.
        to: Option<TypeId>,
    },
    /// A function: only ever pointed to.
    Function {
        /// What it returns; `None` is void.
        result: Option<TypeId>,
        /// What it is called with.
        parameters: Box<[TypeId]>,
        /// Whether more may follow.
        variadic: bool,
    },
    /// Declared and never defined in this file.
    Declaration {
        /// `struct`, `union`, `class`, `enum`; empty for what has none.
        keyword: &'static str,
        /// Its name.
        name: Name,
    },
    /// What the file refers to and the reader could not understand, with its size if that is known.
    Unknown {
        /// In bytes.
        size: Option<u64>,
    },
}

/// What sort of [`Record`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `struct`
    Struct,
    /// `class`
    Class,
    /// `union`
    Union,
    /// A Rust enum, which has variants.
    Enum,
    /// One variant of a Rust enum: a record that lies at its enum's start.
    Variant,
}

/// How sure an alignment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// The file says so (`DW_AT_alignment`, Rust).
    Known(u64),
    /// Worked out from the alignment of the members, the largest of theirs: what was asked for with an
    /// attribute may be more.
    Inferred(u64),
}

impl Align {
    /// In bytes.
    pub fn bytes(self) -> u64 {
        match self {
            Align::Known(bytes) | Align::Inferred(bytes) => bytes,
        }
    }
}

/// A type with members.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// With its namespaces and generic arguments (`alloc::vec::Vec<u8, alloc::alloc::Global>`);
    /// [`Name::NONE`] when anonymous.
    pub name: Name,
    /// Which keyword.
    pub kind: Kind,
    /// In bytes.
    pub size: u64,
    /// Of the base.
    pub align: Align,
    /// By offset; in a union by declaration.
    pub members: Vec<Member>,
    /// Where it was declared, if the file says.
    pub declared: Option<Place>,
}

/// A line of a source file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file, as the compiler was told.
    pub file: Name,
    /// From 1.
    pub line: u32,
}

/// One member of a [`Record`].
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// [`Name::NONE`] when anonymous.
    pub name: Name,
    /// Of what type.
    pub ty: TypeId,
    /// From the record's start, in bytes; for a bitfield, of the storage unit that it is declared in.
    pub offset: u64,
    /// Its bits, when it is a bitfield.
    pub bits: Option<Bits>,
    /// What sort of member.
    pub role: Role,
    /// What `alignas` or an attribute on the member asked for.
    pub align: Option<u64>,
}

/// A bitfield's place within the storage unit at [`Member::offset`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bits {
    /// From the unit's start in memory, so that `8 * Member::offset + offset` is where the field lies in the
    /// record whatever the machine: from the least significant bit on a little-endian one, from the most
    /// significant on a big-endian one. With the size it is more than the unit has where a packed record lets
    /// the field cross into the next.
    pub offset: u8,
    /// How many; 0 is never recorded.
    pub size: u8,
}

/// What sort of [`Member`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A field.
    Field,
    /// A base class.
    Base,
    /// A virtual base class: the offset is the one in the complete object, if `known`.
    VirtualBase {
        /// Whether the file gave a constant offset, or only one is possible.
        known: bool,
    },
    /// The table pointer of a class with virtual functions.
    VirtualTable,
    /// What tells the variants of a Rust enum apart.
    Discriminant,
    /// A variant of a Rust enum; its type is a record of [`Kind::Variant`].
    Variant,
}

impl Types {
    /// No types yet.
    pub fn new(pointer_size: u8) -> Types {
        let mut types = Types {
            types: Vec::new(),
            spellings: Spellings::default(),
            pointer_size,
            widest_scalar_align: 16,
            borrowed: 0,
        };
        types.intern("");
        types
    }

    /// The number of a spelling.
    pub fn intern(&mut self, spelling: &str) -> Name {
        self.spellings.intern(spelling)
    }

    /// How a name is spelled; empty for [`Name::NONE`].
    pub fn name(&self, name: Name) -> &str {
        self.spellings.get(name)
    }

    /// Adds a type.
    pub fn push(&mut self, ty: Type) -> TypeId {
        let id = TypeId(u32::try_from(self.types.len()).expect("fewer than 2^32 types"));
        self.types.push(ty);
        id
    }

    /// Replaces a type, for readers that meet a reference before what it refers to.
    pub fn set(&mut self, id: TypeId, ty: Type) {
        self.types[id.0 as usize] = ty;
    }

    /// A type.
    pub fn get(&self, id: TypeId) -> &Type {
        &self.types[id.0 as usize]
    }

    /// A type, to change.
    pub fn get_mut(&mut self, id: TypeId) -> &mut Type {
        &mut self.types[id.0 as usize]
    }

    /// How many types there are: every [`TypeId`] is less.
    pub fn len(&self) -> usize {
        self.types.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.types.is_empty()
    }

    /// All records of the file itself, in its order.
    pub fn records(&self) -> impl Iterator<Item = (TypeId, &Record)> {
        (0..).zip(&self.types).skip(self.borrowed as usize).filter_map(|(index, ty)| match ty {
            Type::Record(record) => Some((TypeId(index), record)),
            _ => None,
        })
    }

    /// A type without its typedefs and qualifiers.
    ///
    /// A file that lies may have a circle of them: after a hundred steps the walk ends where it is.
    pub fn resolve(&self, mut id: TypeId) -> TypeId {
        for _ in 0..100 {
            match self.get(id) {
                Type::Typedef { to: Some(to), .. } | Type::Qualified { to: Some(to), .. } => {
                    id = *to
                }
                _ => break,
            }
        }
        id
    }

    /// The size in bytes; `None` for what has none (void, a function, a flexible array, a declaration) and
    /// for an array that would not fit in 64 bits.
    pub fn size(&self, id: TypeId) -> Option<u64> {
        let mut times = 1u64;
        let mut id = self.resolve(id);
        // As deep as arrays of arrays may be; a file that lies may have a circle.
        for _ in 0..100 {
            let size = match self.get(id) {
                Type::Record(record) => record.size,
                Type::Base { size, .. } | Type::Enum { size, .. } => *size,
                Type::Pointer { .. } => u64::from(self.pointer_size),
                Type::Unknown { size } => (*size)?,
                Type::Array { element, count } => {
                    times = times.checked_mul((*count)?)?;
                    id = self.resolve(*element);
                    continue;
                }
                _ => return None,
            };
            return times.checked_mul(size);
        }
        None
    }
}

/// All spellings in one text, each once. A name is found by its hash, so that none is stored twice.
#[derive(Debug, Default)]
struct Spellings {
    text: String,
    /// Where in `text` each ends; the next begins there.
    ends: Vec<usize>,
    names: HashTable<Name>,
    hasher: DefaultHashBuilder,
}

impl Spellings {
    fn intern(&mut self, spelling: &str) -> Name {
        let Spellings { text, ends, names, hasher } = self;
        let hash = hasher.hash_one(spelling);
        if let Some(&name) = names.find(hash, |&name| spelled(text, ends, name) == spelling) {
            return name;
        }
        let name = Name(u32::try_from(ends.len()).expect("fewer than 2^32 names"));
        text.push_str(spelling);
        ends.push(text.len());
        names.insert_unique(hash, name, |&name| hasher.hash_one(spelled(text, ends, name)));
        name
    }

    fn get(&self, name: Name) -> &str {
        spelled(&self.text, &self.ends, name)
    }
}

fn spelled<'a>(text: &'a str, ends: &[usize], Name(index): Name) -> &'a str {
    let index = index as usize;
    let start = if index == 0 { 0 } else { ends[index - 1] };
    &text[start..ends[index]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_spelling_has_one_name_and_each_name_one_spelling() {
        let mut types = Types::new(8);
        assert_eq!(types.intern(""), Name::NONE);
        let spellings: Vec<String> =
            (0..1000).map(|n| "x".repeat(n % 7) + &n.to_string()).collect();
        let names: Vec<Name> = spellings.iter().map(|s| types.intern(s)).collect();
        for (spelling, &name) in spellings.iter().zip(&names) {
            assert_eq!(types.intern(spelling), name);
            assert_eq!(types.name(name), spelling);
        }
        assert_eq!(types.name(Name::NONE), "");
    }
}
