//! The types of one file, which every reader produces and everything else reads.
//!
//! They are a table of types that refer to each other by index. Names are interned, because a kernel has a hundred
//! thousand members and a few thousand spellings.

use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::BuildHasher;

/// A type in a [`Types`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeId(pub u32);

/// A name in a [`Types`]; [`Types::name`] spells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(pub u32);

impl Name {
    /// The empty name of an anonymous type or member.
    pub const NONE: Name = Name(0);
}

/// The types of one file, with what is known of the machine that it is for.
#[derive(Debug)]
pub struct Types {
    types: Vec<Type>,
    spellings: Spellings,
    /// The size of a pointer in bytes, on the machine that the file is for.
    pub pointer_size: u8,
    /// The largest alignment of a number on that machine, in bytes: 16 where the reader does not know (4 on i386,
    /// where eight bytes are aligned to four).
    pub widest_scalar_align: u64,
    /// How many of the first types belong to another file that this one builds on (the kernel's, for a module's BTF).
    /// Other types may refer to them; [`Types::records`] leaves them out.
    pub borrowed: u32,
}

/// One type.
#[derive(Clone, Debug, PartialEq)]
pub enum Type {
    /// A type with members: a structure, class, union or Rust enum.
    Record(Record),
    /// `count` elements in a row; `None` is a flexible array, which has no size.
    Array {
        /// The type that is repeated.
        element: TypeId,
        /// How often it is repeated.
        count: Option<u64>,
    },
    /// A pointer, or what has a pointer's size and leads to a type as one does.
    Pointer {
        /// The type that it points to; `None` is void.
        to: Option<TypeId>,
        /// How it does.
        points: Points,
    },
    /// A number, character or truth value.
    Base {
        /// The file's name for it.
        name: Name,
        /// Its size in bytes.
        size: u64,
    },
    /// An enumeration without payload (C, C++; a Rust enum with variant parts is a [`Record`]).
    Enum {
        /// Its name; [`Name::NONE`] when it is anonymous.
        name: Name,
        /// Its size in bytes.
        size: u64,
    },
    /// Another name for a type.
    Typedef {
        /// The new name.
        name: Name,
        /// The type that it names; `None` is void.
        to: Option<TypeId>,
        /// The alignment that `alignas` or an attribute on the typedef asked for.
        align: Option<u64>,
    },
    /// `const`, `volatile`, `_Atomic`, `restrict`, a type tag.
    Qualified {
        /// C's spelling of it.
        qualifier: &'static str,
        /// The type that is qualified; `None` is void.
        to: Option<TypeId>,
    },
    /// A function, to which other types only point.
    Function {
        /// The type that it returns; `None` is void.
        result: Option<TypeId>,
        /// The types of its parameters.
        parameters: Box<[TypeId]>,
        /// Whether more parameters may follow.
        variadic: bool,
    },
    /// A type that this file declares and never defines.
    Declaration {
        /// `struct`, `union`, `class` or `enum`; empty for a type without a keyword.
        keyword: &'static str,
        /// Its name.
        name: Name,
    },
    /// A type that the file refers to and the reader could not understand.
    Unknown {
        /// Its size in bytes, if that is known.
        size: Option<u64>,
    },
}

impl Type {
    /// A pointer of C.
    pub fn pointer(to: Option<TypeId>) -> Type {
        Type::Pointer { to, points: Points::Pointer(Name::NONE) }
    }

    /// The type that a typedef or a qualifier is about.
    pub fn renamed(&self) -> Option<TypeId> {
        match *self {
            Type::Typedef { to, .. } | Type::Qualified { to, .. } => to,
            _ => None,
        }
    }

    /// The same, or the type that an array repeats.
    pub fn inner(&self) -> Option<TypeId> {
        if let Type::Array { element, .. } = self { Some(*element) } else { self.renamed() }
    }
}

/// How a [`Type::Pointer`] points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Points {
    /// As a pointer, or a reference of Rust: with Rust's name for it (`&str`, `*const T`, `fn(u32)`); [`Name::NONE`] for
    /// other languages.
    Pointer(Name),
    /// `T &`.
    Lvalue,
    /// `T &&`.
    Rvalue,
    /// `T C::*`: a pointer to a member of the class, which is a record or a declaration.
    Member(TypeId),
}

/// The sort of a [`Record`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A `struct`.
    Struct,
    /// A `class`.
    Class,
    /// A `union`.
    Union,
    /// A Rust enum, which has variants.
    Enum,
    /// One variant of a Rust enum: a record that lies at its enum's start.
    Variant,
    /// A `struct` with virtual bases as it lies in a class derived from it: without them, since the derived class has
    /// them elsewhere. Its name is that of the `struct`.
    StructPart,
    /// The same of a `class`.
    ClassPart,
}

/// An alignment, and whether it is certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// The file says so (`DW_AT_alignment`, Rust).
    Known(u64),
    /// It was inferred as the largest alignment of the members. An attribute may have asked for more.
    Inferred(u64),
}

impl Align {
    /// The alignment in bytes.
    pub fn bytes(self) -> u64 {
        match self {
            Align::Known(bytes) | Align::Inferred(bytes) => bytes,
        }
    }
}

/// A type with members.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Its name with namespaces and generic arguments (`alloc::vec::Vec<u8, alloc::alloc::Global>`); [`Name::NONE`]
    /// when it is anonymous.
    pub name: Name,
    /// Its sort.
    pub kind: Kind,
    /// Its size in bytes.
    pub size: u64,
    /// The alignment of its base.
    pub align: Align,
    /// Its members in the order of their offsets; those of a union in the order of declaration.
    pub members: Vec<Member>,
    /// Where it was declared, if the file says.
    pub declared: Option<Place>,
}

/// A line of a source file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file, as the compiler was given it.
    pub file: Name,
    /// The line, counted from 1.
    pub line: u32,
}

/// One member of a [`Record`].
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// Its name; [`Name::NONE`] when it is anonymous.
    pub name: Name,
    /// Its type.
    pub ty: TypeId,
    /// Its offset from the record's start in bytes; of a bitfield, the offset of the storage unit.
    pub offset: u64,
    /// Its bits, when it is a bitfield.
    pub bits: Option<Bits>,
    /// Its sort.
    pub role: Role,
    /// The alignment that `alignas` or an attribute on the member asked for.
    pub align: Option<u64>,
}

/// A bitfield's place within the storage unit at [`Member::offset`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bits {
    /// The first bit, counted from the unit's start in memory, so that `8 * Member::offset + offset` is where the
    /// field lies in the record on every machine. That is from the least significant bit on a little-endian machine,
    /// and from the most significant bit on a big-endian one. Offset and size together exceed the unit where a packed
    /// record lets the field cross into the next unit.
    pub offset: u8,
    /// How many bits there are; 0 is never recorded.
    pub size: u8,
}

/// The sort of a [`Member`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A field.
    Field,
    /// A base class.
    Base,
    /// A virtual base class. If `known`, the offset is the one in the complete object.
    VirtualBase {
        /// Whether the file gave a constant offset, or only one is possible.
        known: bool,
    },
    /// The table pointer of a class with virtual functions.
    VirtualTable,
    /// The field that tells the variants of a Rust enum apart.
    Discriminant,
    /// A variant of a Rust enum; its type is a record of [`Kind::Variant`].
    Variant,
}

impl Member {
    /// Whether the offset is known for certain.
    pub fn place_known(&self) -> bool {
        self.role != Role::VirtualBase { known: false }
    }
}

impl Types {
    /// A table without types.
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

    /// The name with a spelling.
    pub fn intern(&mut self, spelling: &str) -> Name {
        self.spellings.intern(spelling)
    }

    /// The spelling of a name; empty for [`Name::NONE`].
    pub fn name(&self, name: Name) -> &str {
        spelled(&self.spellings.text, &self.spellings.ends, name)
    }

    /// Adds a type.
    pub fn push(&mut self, ty: Type) -> TypeId {
        let id = TypeId(u32::try_from(self.types.len()).expect("fewer than 2^32 types"));
        self.types.push(ty);
        id
    }

    /// Replaces a type. Readers need it that meet a reference before the type that it refers to.
    pub fn set(&mut self, id: TypeId, ty: Type) {
        self.types[id.0 as usize] = ty;
    }

    /// A type.
    pub fn get(&self, id: TypeId) -> &Type {
        &self.types[id.0 as usize]
    }

    /// A type that may be changed.
    pub fn get_mut(&mut self, id: TypeId) -> &mut Type {
        &mut self.types[id.0 as usize]
    }

    /// How many types there are; every [`TypeId`] is less.
    pub fn len(&self) -> usize {
        self.types.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.types.is_empty()
    }

    /// All types with their numbers, in the order of the file.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (TypeId, &Type)> {
        (0..self.types.len() as u32).map(TypeId).zip(&self.types)
    }

    /// All records of the file itself, in its order. The parts of classes are left out, which are
    /// found as bases alone.
    pub fn records(&self) -> impl Iterator<Item = (TypeId, &Record)> {
        self.iter().skip(self.borrowed as usize).filter_map(|(id, ty)| match ty {
            Type::Record(Record { kind: Kind::StructPart | Kind::ClassPart, .. }) => None,
            Type::Record(record) => Some((id, record)),
            _ => None,
        })
    }

    /// A type without its typedefs and qualifiers.
    ///
    /// A file that lies may have a circle of them, so after a hundred steps the walk ends where it is.
    pub fn resolve(&self, mut id: TypeId) -> TypeId {
        for _ in 0..100 {
            let Some(to) = self.get(id).renamed() else { break };
            id = to;
        }
        id
    }

    /// A type, and what it is or repeats: typedefs, qualifiers and arrays are looked through, one after the other.
    ///
    /// A file that lies may have a circle of them, so the walk ends after two hundred steps.
    pub fn through(&self, id: TypeId) -> impl Iterator<Item = TypeId> {
        std::iter::successors(Some(id), |&id| self.get(id).inner()).take(200)
    }

    /// The size in bytes; `None` for a type that has none (void, a function, a flexible array, a declaration), and
    /// for an array whose size does not fit in 64 bits.
    pub fn size(&self, id: TypeId) -> Option<u64> {
        let mut times = 1u64;
        let mut id = self.resolve(id);
        // The bound is how deep arrays of arrays may be, since a file that lies may have a circle.
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
    /// Where in `text` each spelling ends and the next one begins.
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
