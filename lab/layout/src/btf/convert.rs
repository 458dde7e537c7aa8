//! Converts the types of a section into the model's.
//!
//! The reader goes through the list twice: types refer to later ones, so it numbers them first. Types that have
//! neither size nor members (functions, variables, tags, which are two thirds of a kernel's) get no place in the
//! model.

use std::collections::HashMap;

use super::Machine;
use super::bits::{Field, Narrow};
use super::entries::{Entries, Entry, kind};
use super::fit;
use super::names::Names;
use super::section::Section;
use crate::error::Error;
use crate::model::{Align, Kind, Member, Name, Record, Role, Type, TypeId, Types};

/// Stands for void where a type cannot be left out.
const VOID: TypeId = TypeId(0);
/// Stands for what is no type (a variable, say), and for kinds that this reader does not know.
const OTHER: TypeId = TypeId(1);

/// The types that have been read, and the numbers that the file gives them.
pub(super) struct Reader {
    types: Types,
    /// The type of each number.
    ids: Vec<TypeId>,
    /// Numbers that do not fill their bytes. Bitfields were described by them before members had widths.
    narrow: HashMap<TypeId, Narrow>,
    /// The members whose place depends on the size of their type.
    fields: Vec<Field>,
    /// Whether the size of a pointer is known; otherwise the size of `long` tells it.
    machine_known: bool,
}

impl Reader {
    pub(super) fn new(machine: Option<Machine>) -> Reader {
        let mut types = Types::new(machine.map_or(8, |machine| machine.pointer_size));
        if let Some(machine) = machine {
            types.widest_scalar_align = machine.widest_scalar_align;
        }
        types.push(Type::Unknown { size: None });
        types.push(Type::Unknown { size: None });
        Reader {
            types,
            ids: vec![VOID],
            narrow: HashMap::new(),
            fields: Vec::new(),
            machine_known: machine.is_some(),
        }
    }

    /// Reads all types of a section, which continues its base if it has one.
    pub(super) fn add(&mut self, own: &Section, base: Option<&Section>) -> Result<(), Error> {
        let first = self.number();
        let start = self.types.len();
        self.give_numbers(own, first)?;
        let mut names = Names::new(own, base);
        for entry in Entries::new(own, first) {
            let entry = entry?;
            self.convert(own, &mut names, entry).map_err(|error| {
                let said = match names.intern(&mut self.types, entry.name) {
                    Ok(name) if name != Name::NONE => format!(" ({})", self.types.name(name)),
                    _ => String::new(),
                };
                error.within(format!("type {}{said} of its BTF", entry.number))
            })?;
        }
        let end = self.types.len();
        for field in std::mem::take(&mut self.fields) {
            field.place(&mut self.types, &self.narrow)?;
        }
        fit::fit(&mut self.types, start..end)
    }

    /// Notes that all types read so far belong to another file.
    pub(super) fn borrow_all(&mut self) {
        self.types.borrowed = self.number_of_types();
    }

    pub(super) fn finish(self) -> Types {
        self.types
    }

    /// The number of the type that comes next.
    fn number(&self) -> u32 {
        self.ids.len() as u32
    }

    fn number_of_types(&self) -> u32 {
        self.types.len() as u32
    }

    /// Decides which number will be which type.
    fn give_numbers(&mut self, section: &Section, first: u32) -> Result<(), Error> {
        let mut next = self.number_of_types();
        let mut tags = Vec::new();
        for entry in Entries::new(section, first) {
            let entry = entry?;
            let id = match entry.kind {
                kind::TYPE_TAG => {
                    tags.push((entry.number, entry.size_or_type));
                    OTHER
                }
                kind if is_converted(kind) => {
                    next += 1;
                    TypeId(next - 1)
                }
                _ => OTHER,
            };
            if entry.kind == kind::INT
                && let Some(narrow) = Narrow::of(entry.size_or_type, section.word(entry.rest, 0))
            {
                self.narrow.insert(id, narrow);
            }
            self.ids.push(id);
        }
        self.see_through(&tags)
    }

    /// Takes tags of types out. A tag says nothing about layout, so a reference to it means the type that is tagged.
    fn see_through(&mut self, tags: &[(u32, u32)]) -> Result<(), Error> {
        let mut targets: HashMap<u32, u32> = tags.iter().copied().collect();
        let mut path = Vec::new();
        for &(tag, _) in tags {
            let mut number = tag;
            // Each tag is taken out once, so neither long chains nor circles cost more.
            while let Some(target) = targets.remove(&number) {
                path.push(number);
                number = target;
            }
            let id = self.id(number)?;
            for tag in path.drain(..) {
                self.ids[tag as usize] = id;
            }
        }
        Ok(())
    }

    /// The type of a number.
    fn id(&self, number: u32) -> Result<TypeId, Error> {
        self.ids.get(number as usize).copied().ok_or_else(|| {
            Error::new(format!(
                "type {number} is referred to, and the last is {}",
                self.number() - 1
            ))
        })
    }

    /// The type of a number; `None` for void.
    fn to(&self, number: u32) -> Result<Option<TypeId>, Error> {
        Ok(Some(self.id(number)?).filter(|&id| id != VOID))
    }

    fn convert(&mut self, section: &Section, names: &mut Names, entry: Entry) -> Result<(), Error> {
        if !is_converted(entry.kind) {
            return Ok(());
        }
        let size = u64::from(entry.size_or_type);
        let converted = match entry.kind {
            kind::INT | kind::FLOAT => {
                let name = names.intern(&mut self.types, entry.name)?;
                self.learn_pointer_size(name, size);
                Type::Base { name, size }
            }
            kind::PTR => Type::Pointer { to: self.to(entry.size_or_type)?, name: Name::NONE },
            kind::ARRAY => Type::Array {
                element: self.id(section.word(entry.rest, 0))?,
                count: Some(section.word(entry.rest, 8).into()),
            },
            kind::FUNC_PROTO => self.function(section, entry)?,
            kind::STRUCT => self.record(section, names, entry, Kind::Struct)?,
            kind::UNION => self.record(section, names, entry, Kind::Union)?,
            kind::ENUM | kind::ENUM64 => {
                Type::Enum { name: names.intern(&mut self.types, entry.name)?, size }
            }
            kind::FWD => Type::Declaration {
                keyword: if entry.flag { "union" } else { "struct" },
                name: names.intern(&mut self.types, entry.name)?,
            },
            kind::TYPEDEF => Type::Typedef {
                name: names.intern(&mut self.types, entry.name)?,
                to: self.to(entry.size_or_type)?,
                align: None,
            },
            kind => Type::Qualified {
                qualifier: match kind {
                    kind::VOLATILE => "volatile",
                    kind::CONST => "const",
                    _ => "restrict",
                },
                to: self.to(entry.size_or_type)?,
            },
        };
        let id = self.types.push(converted);
        debug_assert_eq!(id, self.ids[entry.number as usize], "numbered as converted");
        Ok(())
    }

    /// Converts a function. A last parameter without a type says that more may follow.
    fn function(&self, section: &Section, entry: Entry) -> Result<Type, Error> {
        let numbers = entry.rest.chunks_exact(8).map(|part| section.word(part, 4));
        let mut parameters =
            numbers.map(|number| self.id(number)).collect::<Result<Vec<_>, _>>()?;
        let variadic = parameters.last() == Some(&VOID);
        if variadic {
            parameters.pop();
        }
        let result = self.to(entry.size_or_type)?;
        Ok(Type::Function { result, parameters: parameters.into(), variadic })
    }

    /// Learns the size of a pointer from `long`. BTF does not state it, but on Linux the two are equal.
    fn learn_pointer_size(&mut self, name: Name, size: u64) {
        let is_long = matches!(
            self.types.name(name),
            "long" | "long int" | "unsigned long" | "long unsigned int"
        );
        if !self.machine_known && is_long && (size == 4 || size == 8) {
            self.types.pointer_size = size as u8;
        }
    }

    fn record(
        &mut self,
        section: &Section,
        names: &mut Names,
        entry: Entry,
        kind: Kind,
    ) -> Result<Type, Error> {
        let id = self.ids[entry.number as usize];
        let mut places: Vec<[u32; 3]> = Vec::with_capacity(entry.rest.len() / 12);
        places.extend(
            entry.rest.chunks_exact(12).map(|part| [0, 4, 8].map(|at| section.word(part, at))),
        );
        // With the flag set, the upper eight bits are the width of a bitfield, or 0.
        let split =
            |place: u32| if entry.flag { (place & 0xff_ffff, place >> 24) } else { (place, 0) };
        let start = |place: &[u32; 3]| split(place[2]).0;
        if kind != Kind::Union && !places.is_sorted_by_key(start) {
            places.sort_by_key(start);
        }
        let mut members = Vec::with_capacity(places.len());
        for (index, [name, ty, place]) in (0..).zip(places) {
            let (start, width) = split(place);
            if width > 0 || !start.is_multiple_of(8) || !self.narrow.is_empty() {
                self.fields.push(Field { record: id, member: index, start, width: width as u8 });
            }
            members.push(Member {
                name: names.intern(&mut self.types, name)?,
                ty: self.id(ty)?,
                offset: u64::from(start / 8),
                bits: None,
                role: Role::Field,
                align: None,
            });
        }
        Ok(Type::Record(Record {
            name: names.intern(&mut self.types, entry.name)?,
            kind,
            size: entry.size_or_type.into(),
            align: Align::Inferred(1),
            members,
            declared: None,
        }))
    }
}

/// Whether types of this kind get a place in the model.
fn is_converted(kind: u8) -> bool {
    use kind::{DATASEC, DECL_TAG, ENUM64, FUNC, INT, TYPE_TAG, VAR};
    (INT..=ENUM64).contains(&kind) && !matches!(kind, FUNC | VAR | DATASEC | DECL_TAG | TYPE_TAG)
}
