//! Converts the types of a section into the model's.
//!
//! The reader goes through the list twice: types refer to later ones, so it numbers them first. Types that have
//! neither size nor members (functions, variables, tags, which are two thirds of a kernel's) get no place in the
//! model.
//!
//! BTF states the first bit of each bitfield from the start of the record, in memory order. The storage unit has the
//! type that the field is declared with, and lies at a multiple of that type's size, as compilers place it.

use std::collections::HashMap;
use std::ops::Range;

use super::Machine;
use super::section::{Entries, Entry, Names, Section, kind};
use crate::align;
use crate::error::Error;
use crate::leaf::end_of;
use crate::model::{Align, Bits, Kind, Member, Name, Record, Role, Type, TypeId, Types};

/// Stands for void if a type cannot be left out.
const VOID: TypeId = TypeId(0);
/// Stands for entries that are not types, such as variables, and for kinds that this reader does not know.
const OTHER: TypeId = TypeId(1);

/// The types that have been read, and the numbers that the file gives them.
pub(super) struct Reader {
    types: Types,
    /// The type of each number.
    ids: Vec<TypeId>,
    /// Integers that do not fill their bytes. They described bitfields before members had widths.
    narrow: HashMap<TypeId, Narrow>,
    /// The members whose place depends on the size of their type.
    fields: Vec<Field>,
    /// Whether the size of a pointer is known; otherwise it is that of `long`.
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
        let first = self.ids.len() as u32;
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
        fit(&mut self.types, start..end)
    }

    /// Notes that all types read so far belong to another file.
    pub(super) fn borrow_all(&mut self) {
        self.types.borrowed = self.types.len() as u32;
    }

    pub(super) fn finish(mut self) -> Types {
        align::infer(&mut self.types);
        self.types
    }

    /// Assigns a type to each number.
    fn give_numbers(&mut self, section: &Section, first: u32) -> Result<(), Error> {
        let mut next = self.types.len() as u32;
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

    /// Removes tags of types. A tag does not affect layout, so a reference to it means the tagged type.
    fn see_through(&mut self, tags: &[(u32, u32)]) -> Result<(), Error> {
        let mut targets: HashMap<u32, u32> = tags.iter().copied().collect();
        let mut path = Vec::new();
        for &(tag, _) in tags {
            let mut number = tag;
            // Each tag is removed once, so neither long chains nor circles cost more.
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

    /// Returns the type of a number.
    fn id(&self, number: u32) -> Result<TypeId, Error> {
        self.ids.get(number as usize).copied().ok_or_else(|| {
            let last = self.ids.len() - 1;
            Error::new(format!("type {number} is referred to, and the last is {last}"))
        })
    }

    /// Returns the type of a number; `None` for void.
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
            kind::PTR => Type::pointer(self.to(entry.size_or_type)?),
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

    /// Converts a function. A last parameter without a type means that more may follow.
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
        let parts = entry.rest.chunks_exact(12);
        let mut places: Vec<_> =
            parts.map(|part| [0, 4, 8].map(|at| section.word(part, at))).collect();
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

/// Returns whether types of this kind get a place in the model.
fn is_converted(kind: u8) -> bool {
    use kind::{DATASEC, DECL_TAG, ENUM64, FUNC, INT, TYPE_TAG, VAR};
    (INT..=ENUM64).contains(&kind) && !matches!(kind, FUNC | VAR | DATASEC | DECL_TAG | TYPE_TAG)
}

/// The largest type that a bitfield may be declared with, in bytes.
const LARGEST_UNIT: u64 = 16;

/// A number that does not fill its bytes; a member of such a type is a bitfield.
#[derive(Clone, Copy, Debug)]
struct Narrow {
    /// The first of its bits within its bytes.
    offset: u32,
    /// The number of its bits.
    width: u8,
}

impl Narrow {
    /// Reads an integer's encoding; `None` if the integer fills its bytes.
    fn of(size: u32, encoding: u32) -> Option<Narrow> {
        let (offset, width) = (encoding >> 16 & 0xff, encoding as u8);
        let fills = offset == 0 && u64::from(width) == 8 * u64::from(size);
        (width > 0 && !fills).then_some(Narrow { offset, width })
    }
}

/// A member that is or may be a bitfield.
#[derive(Clone, Copy, Debug)]
struct Field {
    record: TypeId,
    /// The index of the member in that record.
    member: usize,
    /// Its first bit.
    start: u32,
    /// The number of its bits; 0 if only its type determines it.
    width: u8,
}

impl Field {
    /// Enters the place of the field in the model, now that all types are known.
    fn place(self, types: &mut Types, narrow: &HashMap<TypeId, Narrow>) -> Result<(), Error> {
        let Type::Record(record) = types.get(self.record) else {
            unreachable!("only records have fields")
        };
        let member = &record.members[self.member];
        let wrong = |why: String| {
            Err(Error::new(format!(
                "member `{}` of {} in its BTF {why}",
                types.name(member.name),
                described(types, record)
            )))
        };
        let unit = types.resolve(member.ty);
        let (start, width) = match narrow.get(&unit) {
            _ if self.width > 0 => (u64::from(self.start), self.width),
            Some(narrow) => (u64::from(self.start) + u64::from(narrow.offset), narrow.width),
            None if self.start.is_multiple_of(8) => return Ok(()),
            None => {
                let start = self.start;
                return wrong(format!("begins at bit {start}, within a byte, and is no bitfield"));
            }
        };
        let size = match types.get(unit) {
            Type::Base { size, .. } | Type::Enum { size, .. } => *size,
            _ => return wrong("is a bitfield, and its type is no number".into()),
        };
        let size = size.next_power_of_two();
        if size > LARGEST_UNIT || u64::from(width) > 8 * size {
            return wrong(format!("has {width} bits of a type of {size} bytes"));
        }
        let offset = start / (8 * size) * size;
        let bits = Bits { offset: (start - 8 * offset) as u8, size: width };
        if let Type::Record(record) = types.get_mut(self.record) {
            let member = &mut record.members[self.member];
            (member.offset, member.bits) = (offset, Some(bits));
        }
        Ok(())
    }
}

/// Makes arrays of no elements flexible if a flexible array may stand there, and checks that no member of the records
/// in `ids` ends after its record.
fn fit(types: &mut Types, ids: Range<usize>) -> Result<(), Error> {
    let mut flexible = HashMap::new();
    for id in ids {
        let id = TypeId(id as u32);
        let Type::Record(record) = types.get(id) else { continue };
        if let Some(member) =
            record.members.iter().find(|member| end_of(types, member) > 8 * record.size)
        {
            return Err(Error::new(format!(
                "member `{}` of {} in its BTF ends beyond its {} bytes",
                types.name(member.name),
                described(types, record),
                record.size
            )));
        }
        let may_be_flexible = match record.kind {
            Kind::Union => 0..record.members.len(),
            _ => record.members.len().saturating_sub(1)..record.members.len(),
        };
        for index in may_be_flexible {
            let Type::Record(record) = types.get(id) else { continue };
            let ty = record.members[index].ty;
            let Type::Array { element, count: Some(0) } = *types.get(ty) else { continue };
            // A copy of the type, since other members may share it.
            let endless = Type::Array { element, count: None };
            let endless = *flexible.entry(ty).or_insert_with(|| types.push(endless));
            if let Type::Record(record) = types.get_mut(id) {
                record.members[index].ty = endless;
            }
        }
    }
    Ok(())
}

/// Returns a record's name in errors.
fn described(types: &Types, record: &Record) -> String {
    let keyword = if record.kind == Kind::Union { "union" } else { "struct" };
    match types.name(record.name) {
        "" => format!("an anonymous {keyword}"),
        name => format!("{keyword} {name}"),
    }
}
