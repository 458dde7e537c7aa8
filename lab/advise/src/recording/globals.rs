//! Finds global variables of wanted types: the variables that debug information places at an address, and the values
//! within them.

use crate::recording::program::Program;
use gimli::{
    AttributeValue, DebuggingInformationEntry, Dwarf, DwarfSections, EndianSlice, Operation,
    RunTimeEndian, Unit, UnitOffset, constants as dw,
};
use ledgerline_layout::Error;
use ledgerline_layout::leaf::record;
use ledgerline_layout::model::{Type, TypeId, Types};
use ledgerline_layout::pick::{last_part, named};
use object::{Object, ObjectSection};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

/// Most names and arrays between a variable and its record.
const DEEPEST: usize = 32;
/// Most objects that are found within globals.
const MOST: usize = 1 << 20;

type Slice<'a> = EndianSlice<'a, RunTimeEndian>;
type Entry<'a> = DebuggingInformationEntry<Slice<'a>>;

/// Returns the values of wanted types in global and static variables: addresses within the file, ascending, with the
/// type of each. A value within another wanted one is left out.
///
/// Costs a pass over the file's debug information.
///
/// # Errors
/// If the debug information is damaged, or lies in other files, in which variables are not looked for.
pub fn find(
    program: &Program,
    types: &Types,
    wanted: &[TypeId],
) -> Result<Vec<(u64, TypeId)>, Error> {
    let file = program.file()?;
    let endian = if file.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big };
    if file.section_by_name(".debug_info").is_none_or(|section| section.size() == 0) {
        return Err(elsewhere());
    }
    let sections = DwarfSections::load(|id| -> Result<_, object::Error> {
        match file.section_by_name(id.name()) {
            Some(section) => section.uncompressed_data(),
            None => Ok(Cow::Borrowed(&[][..])),
        }
    });
    let sections = sections.map_err(|error| damaged(&error))?;
    let dwarf = sections.borrow(|bytes| EndianSlice::new(bytes, endian));
    let mut inside = Inside { types, wanted, by_name: by_name(types), known: HashMap::new() };
    let mut found = BTreeMap::new();
    let mut units = dwarf.units();
    while let Some(header) = units.next().map_err(|error| damaged(&error))? {
        let unit = dwarf.unit(header).map_err(|error| damaged(&error))?;
        if unit.dwo_id.is_some() {
            return Err(elsewhere());
        }
        let (inside, found) = (&mut inside, &mut found);
        let mut variables = Variables { dwarf: &dwarf, unit: &unit, inside, found };
        variables.add_all().map_err(|error| damaged(&error))?;
    }
    Ok(found.into_iter().collect())
}

fn elsewhere() -> Error {
    Error::new("has no debug information of its own, by which its variables are found")
        .advise("build it with -g and without -gsplit-dwarf, and do not strip it")
}

fn damaged(error: &dyn std::fmt::Display) -> Error {
    Error::new(format!("its variables cannot be read ({error})")).advise("build the file again")
}

/// A record, and the number of its elements in a row.
struct Shape {
    /// Its name, or that of its typedef.
    name: Option<String>,
    /// Its entry, if it has no name of its own.
    unnamed: Option<UnitOffset>,
    size: u64,
    count: u64,
}

/// Adds the objects within the variables of a unit.
struct Variables<'s, 'd, 't> {
    dwarf: &'s Dwarf<Slice<'d>>,
    unit: &'s Unit<Slice<'d>>,
    inside: &'s mut Inside<'t>,
    found: &'s mut BTreeMap<u64, TypeId>,
}

impl Variables<'_, '_, '_> {
    fn add_all(&mut self) -> gimli::Result<()> {
        let mut entries = self.unit.entries();
        while let Some(entry) = entries.next_dfs()? {
            if entry.tag() != dw::DW_TAG_variable {
                continue;
            }
            let Some(address) = self.address(entry)? else { continue };
            if let Some(ty) = self.type_of(entry)? {
                self.within(ty, address, DEEPEST)?;
            }
        }
        Ok(())
    }

    /// Adds the objects within a value of a type at an address.
    fn within(&mut self, ty: UnitOffset, address: u64, deep: usize) -> gimli::Result<()> {
        let Some(shape) = self.shape(ty)? else { return Ok(()) };
        let Shape { name, unnamed, size, count } = shape;
        let known = name.and_then(|name| Some(self.inside.of(&name, size)?.to_vec()));
        // A record without a name of its own can only be found through its members.
        let members = match unnamed.filter(|_| known.is_none() && deep > 0) {
            Some(entry) => self.members(entry)?,
            None => Vec::new(),
        };
        let known = known.unwrap_or_default();
        let before = self.found.len();
        for index in 0..count {
            let Some(start) = index.checked_mul(size).and_then(|at| at.checked_add(address)) else {
                return Ok(());
            };
            for &(offset, ty) in &known {
                self.found.extend(start.checked_add(offset).map(|at| (at, ty)));
            }
            for &(offset, ty) in &members {
                if let Some(at) = start.checked_add(offset) {
                    self.within(ty, at, deep - 1)?;
                }
            }
            // If the first element has no object, no element has.
            if self.found.len() >= MOST || self.found.len() == before {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Returns the members of a record, with their offsets and types.
    fn members(&self, record: UnitOffset) -> gimli::Result<Vec<(u64, UnitOffset)>> {
        let mut members = Vec::new();
        self.children(record, |entry| {
            if entry.tag() != dw::DW_TAG_member {
                return;
            }
            // A union's members have no location: they begin with the union.
            let place = entry.attr_value(dw::DW_AT_data_member_location);
            let place = place.map_or(Some(0), |place| place.udata_value());
            members.extend(place.zip(reference(entry, dw::DW_AT_type)));
        })?;
        Ok(members)
    }

    /// Calls `show` for the direct children of an entry.
    fn children(&self, of: UnitOffset, mut show: impl FnMut(&Entry<'_>)) -> gimli::Result<()> {
        let mut tree = self.unit.entries_tree(Some(of))?;
        let mut children = tree.root()?.children();
        while let Some(child) = children.next()? {
            show(child.entry());
        }
        Ok(())
    }

    /// Returns the address of a variable that has one for the whole run.
    fn address(&self, entry: &Entry<'_>) -> gimli::Result<Option<u64>> {
        let Some(AttributeValue::Exprloc(expression)) = entry.attr_value(dw::DW_AT_location) else {
            return Ok(None);
        };
        let mut operations = expression.operations(self.unit.encoding());
        let address = match operations.next()? {
            Some(Operation::Address { address }) => address,
            Some(Operation::AddressIndex { index }) => self.dwarf.address(self.unit, index)?,
            _ => return Ok(None),
        };
        // The expression is more than an address: the variable is thread-local, or computed.
        Ok(operations.next()?.is_none().then_some(address))
    }

    /// Returns the type of a variable.
    fn type_of(&self, entry: &Entry<'_>) -> gimli::Result<Option<UnitOffset>> {
        if let Some(ty) = reference(entry, dw::DW_AT_type) {
            return Ok(Some(ty));
        }
        // A definition that is separate from its declaration has its type there.
        let declaration = reference(entry, dw::DW_AT_specification)
            .or_else(|| reference(entry, dw::DW_AT_abstract_origin));
        let declaration =
            declaration.map(|declaration| self.unit.entry(declaration)).transpose()?;
        Ok(declaration.and_then(|declaration| reference(&declaration, dw::DW_AT_type)))
    }

    /// Returns the records that a type consists of, if it does.
    fn shape(&self, ty: UnitOffset) -> gimli::Result<Option<Shape>> {
        let mut next = Some(ty);
        let (mut count, mut name) = (1u64, None);
        for _ in 0..DEEPEST {
            let Some(offset) = next else { return Ok(None) };
            let entry = self.unit.entry(offset)?;
            if let Some(value) = entry.attr_value(dw::DW_AT_name) {
                name =
                    Some(self.dwarf.attr_string(self.unit, value)?.to_string_lossy().into_owned());
            }
            match entry.tag() {
                dw::DW_TAG_structure_type | dw::DW_TAG_class_type | dw::DW_TAG_union_type => {
                    let size = number(&entry, dw::DW_AT_byte_size).filter(|&size| size > 0);
                    let unnamed = entry.attr_value(dw::DW_AT_name).is_none().then_some(offset);
                    return Ok(size.map(|size| Shape { name, unnamed, size, count }));
                }
                dw::DW_TAG_array_type => {
                    count = count.saturating_mul(self.elements(offset)?).min(MOST as u64);
                }
                dw::DW_TAG_typedef
                | dw::DW_TAG_const_type
                | dw::DW_TAG_volatile_type
                | dw::DW_TAG_atomic_type => {}
                _ => return Ok(None),
            }
            next = reference(&entry, dw::DW_AT_type);
        }
        Ok(None)
    }

    /// Returns the number of elements of an array, over all dimensions.
    fn elements(&self, array: UnitOffset) -> gimli::Result<u64> {
        let mut count = 1u64;
        self.children(array, |entry| {
            let length = number(entry, dw::DW_AT_count)
                .or_else(|| number(entry, dw::DW_AT_upper_bound)?.checked_add(1));
            count = count.saturating_mul(length.unwrap_or(0));
        })?;
        Ok(count)
    }
}

fn number(entry: &Entry<'_>, name: gimli::DwAt) -> Option<u64> {
    entry.attr_value(name)?.udata_value()
}

fn reference(entry: &Entry<'_>, name: gimli::DwAt) -> Option<UnitOffset> {
    match entry.attr_value(name) {
        Some(AttributeValue::UnitRef(offset)) => Some(offset),
        _ => None,
    }
}

/// Returns records by the last part of their name and their size, the form in which a variable's entry names its type.
fn by_name(types: &Types) -> HashMap<(&str, u64), TypeId> {
    let mut map = HashMap::new();
    for (name, id) in named(types) {
        if let Some(size) = types.size(id) {
            map.entry((last_part(name), size)).or_insert(id);
        }
    }
    map
}

/// The places of wanted types in records.
struct Inside<'t> {
    types: &'t Types,
    wanted: &'t [TypeId],
    by_name: HashMap<(&'t str, u64), TypeId>,
    known: HashMap<TypeId, Vec<(u64, TypeId)>>,
}

impl Inside<'_> {
    /// Returns the offsets of wanted values in a record of a name and size; `None` if no such record is known.
    fn of(&mut self, name: &str, size: u64) -> Option<&[(u64, TypeId)]> {
        let &id = self.by_name.get(&(name, size))?;
        let (types, wanted) = (self.types, self.wanted);
        let known = self.known.entry(id).or_insert_with(|| {
            let mut list = Vec::new();
            look(types, wanted, id, 0, DEEPEST, &mut list);
            list
        });
        Some(known)
    }
}

fn look(
    types: &Types,
    wanted: &[TypeId],
    id: TypeId,
    base: u64,
    depth: usize,
    list: &mut Vec<(u64, TypeId)>,
) {
    let id = types.resolve(id);
    if list.len() >= MOST || depth == 0 {
        return;
    }
    if wanted.contains(&id) {
        list.push((base, id));
        return;
    }
    if let Type::Array { element, count: Some(count) } = *types.get(id) {
        let (Some(size), true) = (types.size(element), holds(types, element)) else { return };
        for index in 0..count.min(MOST as u64) {
            let at = base.saturating_add(index.saturating_mul(size));
            look(types, wanted, element, at, depth - 1, list);
        }
    } else if let Some((_, record)) = record(types, id) {
        for member in record.members.iter().filter(|member| member.bits.is_none()) {
            look(types, wanted, member.ty, base.saturating_add(member.offset), depth - 1, list);
        }
    }
}

/// Returns whether a type, or the element of an array type, is a record.
fn holds(types: &Types, id: TypeId) -> bool {
    types.through(id).any(|id| matches!(types.get(id), Type::Record(_)))
}
