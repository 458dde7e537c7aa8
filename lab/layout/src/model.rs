//! The types of one file. Every reader produces them, and all other code reads them.
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

/// The types of one file, with the known properties of its machine.
#[derive(Debug)]
pub struct Types {
    types: Vec<Type>,
    spellings: Spellings,
    /// The size of a pointer in bytes, on the machine that the file is for.
    pub pointer_size: u8,
    /// The largest alignment of a number on that machine, in bytes: 16 if the reader does not know it, 4 on i386,
    /// where eight bytes are aligned to four.
    pub widest_scalar_align: u64,
    /// The number of the first types that belong to another file, which this one builds on: the kernel's, for a
    /// module's BTF. Other types may refer to them; [`Types::records`] leaves them out.
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
        /// The number of repetitions.
        count: Option<u64>,
    },
    /// A pointer, or a type that has a pointer's size and leads to another type like a pointer.
    Pointer {
        /// The type that it points to; `None` is void.
        to: Option<TypeId>,
        /// Its way of pointing.
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
    /// A type that the file refers to and the reader could not interpret.
    Unknown {
        /// Its size in bytes, if that is known.
        size: Option<u64>,
    },
}

impl Type {
    /// Returns a pointer of C.
    pub fn pointer(to: Option<TypeId>) -> Type {
        Type::Pointer { to, points: Points::Pointer(Name::NONE) }
    }

    /// Returns the type that a typedef or a qualifier is about.
    pub fn renamed(&self) -> Option<TypeId> {
        match *self {
            Type::Typedef { to, .. } | Type::Qualified { to, .. } => to,
            _ => None,
        }
    }

    /// Returns the same, or the element type of an array.
    pub fn inner(&self) -> Option<TypeId> {
        if let Type::Array { element, .. } = self { Some(*element) } else { self.renamed() }
    }
}

/// The way of pointing of a [`Type::Pointer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Points {
    /// As a pointer, or a reference of Rust. It has Rust's name (`&str`, `*const T`, `fn(u32)`); [`Name::NONE`] for
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
    /// Like `StructPart`, for a `class`.
    ClassPart,
}

/// An alignment, and whether it is certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// The file states it (`DW_AT_alignment`, Rust).
    Known(u64),
    /// It was inferred as the largest alignment of the members. An attribute may have asked for more.
    Inferred(u64),
}

impl Align {
    /// Returns the alignment in bytes.
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
    /// The place of its declaration, if the file states it.
    pub declared: Option<Place>,
}

/// A line of a source file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file, as passed to the compiler.
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
    /// Its bits, if it is a bitfield.
    pub bits: Option<Bits>,
    /// Its sort.
    pub role: Role,
    /// The alignment that `alignas` or an attribute on the member asked for.
    pub align: Option<u64>,
}

/// A bitfield's place within the storage unit at [`Member::offset`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bits {
    /// The first bit, counted from the unit's start in memory, so that `8 * Member::offset + offset` is the field's
    /// place in the record on every machine. That is from the least significant bit on a little-endian machine, and
    /// from the most significant bit on a big-endian one. Offset and size together exceed the unit if a packed record
    /// lets the field cross into the next unit.
    pub offset: u8,
    /// The number of bits; 0 is never recorded.
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
    /// The field that distinguishes the variants of a Rust enum.
    Discriminant,
    /// A variant of a Rust enum; its type is a record of [`Kind::Variant`].
    Variant,
}

impl Member {
    /// Returns whether the offset is certain.
    pub fn place_known(&self) -> bool {
        self.role != Role::VirtualBase { known: false }
    }
}

impl Types {
    /// Returns a table without types.
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

    /// Returns the name of a spelling, which it adds if it is new.
    pub fn intern(&mut self, spelling: &str) -> Name {
        self.spellings.intern(spelling)
    }

    /// Returns the spelling of a name; empty for [`Name::NONE`].
    pub fn name(&self, name: Name) -> &str {
        spelled(&self.spellings.text, &self.spellings.ends, name)
    }

    /// Adds a type.
    pub fn push(&mut self, ty: Type) -> TypeId {
        let id = TypeId(u32::try_from(self.types.len()).expect("fewer than 2^32 types"));
        self.types.push(ty);
        id
    }

    /// Replaces a type, for readers that meet a reference before its target.
    pub fn set(&mut self, id: TypeId, ty: Type) {
        self.types[id.0 as usize] = ty;
    }

    /// Returns a type.
    pub fn get(&self, id: TypeId) -> &Type {
        &self.types[id.0 as usize]
    }

    /// Returns a type for changing.
    pub fn get_mut(&mut self, id: TypeId) -> &mut Type {
        &mut self.types[id.0 as usize]
    }

    /// Returns the number of types; every [`TypeId`] is less.
    pub fn len(&self) -> usize {
        self.types.len()
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.types.is_empty()
    }

    /// Returns all types with their numbers, in the order of the file.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (TypeId, &Type)> {
        (0..self.types.len() as u32).map(TypeId).zip(&self.types)
    }

    /// Returns all records of the file itself, in its order. It leaves out parts of classes, which occur only as
    /// bases.
    pub fn records(&self) -> impl Iterator<Item = (TypeId, &Record)> {
        self.iter().skip(self.borrowed as usize).filter_map(|(id, ty)| match ty {
            Type::Record(Record { kind: Kind::StructPart | Kind::ClassPart, .. }) => None,
            Type::Record(record) => Some((id, record)),
            _ => None,
        })
    }

    /// Returns a type without its typedefs and qualifiers.
    ///
    /// A malformed file may have a circle of them, so the walk ends after a hundred steps.
    pub fn resolve(&self, mut id: TypeId) -> TypeId {
        for _ in 0..100 {
            let Some(to) = self.get(id).renamed() else { break };
            id = to;
        }
        id
    }

    /// Returns a type, and the types behind it: typedefs, qualifiers and arrays are looked through, one after the
    /// other.
    ///
    /// A malformed file may have a circle of them, so the walk ends after two hundred steps.
    pub fn through(&self, id: TypeId) -> impl Iterator<Item = TypeId> {
        std::iter::successors(Some(id), |&id| self.get(id).inner()).take(200)
    }

    /// Returns the size in bytes; `None` for a type that has none (void, a function, a flexible array, a
    /// declaration), and for an array whose size does not fit in 64 bits.
    pub fn size(&self, id: TypeId) -> Option<u64> {
        let mut times = 1u64;
        let mut id = self.resolve(id);
        // The bound is the depth of arrays of arrays, since a malformed file may have a circle.
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
    /// The end of each spelling in `text`, which is the start of the next.
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
