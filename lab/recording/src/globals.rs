//! Global variables of wanted types: the variables that debug information places at an address, and what lies
//! within them.

use crate::program::Program;
use gimli::{
    AttributeValue, DebuggingInformationEntry, Dwarf, DwarfSections, EndianSlice, Operation,
    RunTimeEndian, Unit, UnitOffset, constants as dw,
};
use ledgerline_layout::Error;
use ledgerline_layout::leaf::record;
use ledgerline_layout::model::{Type, TypeId, Types};
use ledgerline_layout::pick::named;
use object::{Object, ObjectSection};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

/// The most names and arrays through which a variable's type is followed.
const DEEPEST: usize = 32;
/// The most objects that are looked for within globals.
const MOST: usize = 1 << 20;

type Slice<'a> = EndianSlice<'a, RunTimeEndian>;

/// Values of wanted types that lie in global and static variables: addresses within the file, ascending, with the
/// type of each. A value within another wanted one is left out.
///
/// Costs a pass over the file's debug information.
///
/// # Errors
/// When the debug information is damaged, or lies in other files, where variables are not looked for.
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
        variables(&dwarf, &unit, &mut inside, &mut found).map_err(|error| damaged(&error))?;
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

/// Adds the objects within a unit's variables.
fn variables(
    dwarf: &Dwarf<Slice<'_>>,
    unit: &Unit<Slice<'_>>,
    inside: &mut Inside<'_>,
    found: &mut BTreeMap<u64, TypeId>,
) -> gimli::Result<()> {
    let mut entries = unit.entries();
    while let Some(entry) = entries.next_dfs()? {
        if entry.tag() != dw::DW_TAG_variable {
            continue;
        }
        let Some(address) = address(dwarf, unit, entry)? else { continue };
        if let Some(ty) = type_of(unit, entry)? {
            within(dwarf, unit, inside, (ty, address), DEEPEST, found)?;
        }
    }
    Ok(())
}

/// Adds the objects within a value of a type at an address.
fn within(
    dwarf: &Dwarf<Slice<'_>>,
    unit: &Unit<Slice<'_>>,
    inside: &mut Inside<'_>,
    (ty, address): (UnitOffset, u64),
    deep: usize,
    found: &mut BTreeMap<u64, TypeId>,
) -> gimli::Result<()> {
    let Some(shape) = shape(dwarf, unit, ty)? else { return Ok(()) };
    let Shape { name, unnamed, size, count } = shape;
    let known = name.and_then(|name| inside.of(&name, size));
    // A record without a name of its own is found by nothing but what lies in it.
    let members = match unnamed.filter(|_| known.is_none() && deep > 0) {
        Some(entry) => members(unit, entry)?,
        None => Vec::new(),
    };
    let known = known.map_or(Vec::new(), <[_]>::to_vec);
    let before = found.len();
    for index in 0..count {
        let Some(start) = index.checked_mul(size).and_then(|at| at.checked_add(address)) else {
            return Ok(());
        };
        for &(offset, ty) in &known {
            found.extend(start.checked_add(offset).map(|at| (at, ty)));
        }
        for &(offset, ty) in &members {
            if let Some(at) = start.checked_add(offset) {
                within(dwarf, unit, inside, (ty, at), deep - 1, found)?;
            }
        }
        // What the first has none of, none has.
        if found.len() >= MOST || found.len() == before {
            return Ok(());
        }
    }
    Ok(())
}

/// The members of a record, each with where it lies and its type.
fn members(unit: &Unit<Slice<'_>>, record: UnitOffset) -> gimli::Result<Vec<(u64, UnitOffset)>> {
    let mut members = Vec::new();
    let mut tree = unit.entries_tree(Some(record))?;
    let mut children = tree.root()?.children();
    while let Some(child) = children.next()? {
        let entry = child.entry();
        if entry.tag() != dw::DW_TAG_member {
            continue;
        }
        // A union's members have no place: they begin it.
        let place = entry.attr_value(dw::DW_AT_data_member_location);
        let place = place.map_or(Some(0), |place| place.udata_value());
        if let (Some(place), Some(ty)) = (place, reference(entry, dw::DW_AT_type)) {
            members.push((place, ty));
        }
    }
    Ok(members)
}

/// Where a variable lies for as long as the program runs.
fn address(
    dwarf: &Dwarf<Slice<'_>>,
    unit: &Unit<Slice<'_>>,
    entry: &DebuggingInformationEntry<Slice<'_>>,
) -> gimli::Result<Option<u64>> {
    let Some(AttributeValue::Exprloc(expression)) = entry.attr_value(dw::DW_AT_location) else {
        return Ok(None);
    };
    let mut operations = expression.operations(unit.encoding());
    let address = match operations.next()? {
        Some(Operation::Address { address }) => address,
        Some(Operation::AddressIndex { index }) => dwarf.address(unit, index)?,
        _ => return Ok(None),
    };
    // It is more than an address: thread-local, or computed.
    Ok(operations.next()?.is_none().then_some(address))
}

/// A record, and how many lie one behind the other.
struct Shape {
    /// Its name, or that of a typedef of it.
    name: Option<String>,
    /// Its entry, where it has no name of its own.
    unnamed: Option<UnitOffset>,
    size: u64,
    count: u64,
}

/// The type of a variable.
fn type_of(
    unit: &Unit<Slice<'_>>,
    entry: &DebuggingInformationEntry<Slice<'_>>,
) -> gimli::Result<Option<UnitOffset>> {
    if let Some(ty) = reference(entry, dw::DW_AT_type) {
        return Ok(Some(ty));
    }
    // A definition apart from its declaration has its type there.
    let declaration = reference(entry, dw::DW_AT_specification)
        .or_else(|| reference(entry, dw::DW_AT_abstract_origin));
    match declaration {
        Some(declaration) => Ok(reference(&unit.entry(declaration)?, dw::DW_AT_type)),
        None => Ok(None),
    }
}

/// The records that a type is made of, if it is.
fn shape(
    dwarf: &Dwarf<Slice<'_>>,
    unit: &Unit<Slice<'_>>,
    ty: UnitOffset,
) -> gimli::Result<Option<Shape>> {
    let mut next = Some(ty);
    let (mut count, mut name) = (1u64, None);
    for _ in 0..DEEPEST {
        let Some(offset) = next else { return Ok(None) };
        let entry = unit.entry(offset)?;
        if let Some(value) = entry.attr_value(dw::DW_AT_name) {
            name = Some(dwarf.attr_string(unit, value)?.to_string_lossy().into_owned());
        }
        match entry.tag() {
            dw::DW_TAG_structure_type | dw::DW_TAG_class_type | dw::DW_TAG_union_type => {
                let size =
                    entry.attr_value(dw::DW_AT_byte_size).and_then(|size| size.udata_value());
                let unnamed = entry.attr_value(dw::DW_AT_name).is_none().then_some(offset);
                return Ok(match size {
                    Some(size @ 1..) => Some(Shape { name, unnamed, size, count }),
                    _ => None,
                });
            }
            dw::DW_TAG_array_type => {
                count = count.saturating_mul(elements(unit, offset)?).min(MOST as u64);
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

fn reference(
    entry: &DebuggingInformationEntry<Slice<'_>>,
    name: gimli::DwAt,
) -> Option<UnitOffset> {
    match entry.attr_value(name) {
        Some(AttributeValue::UnitRef(offset)) => Some(offset),
        _ => None,
    }
}

/// How many elements an array has, all its dimensions together.
fn elements(unit: &Unit<Slice<'_>>, array: UnitOffset) -> gimli::Result<u64> {
    let mut count = 1u64;
    let mut tree = unit.entries_tree(Some(array))?;
    let mut dimensions = tree.root()?.children();
    while let Some(dimension) = dimensions.next()? {
        let number =
            |name| dimension.entry().attr_value(name).and_then(|value| value.udata_value());
        let length = number(dw::DW_AT_count)
            .or_else(|| number(dw::DW_AT_upper_bound).and_then(|last| last.checked_add(1)));
        count = count.saturating_mul(length.unwrap_or(0));
    }
    Ok(count)
}

/// Records by the last part of their name and their size, which is how a variable's entry names its type.
fn by_name(types: &Types) -> HashMap<(&str, u64), TypeId> {
    let mut map = HashMap::new();
    for (name, id) in named(types) {
        if let Some(size) = types.size(id) {
            map.entry((last_part(name), size)).or_insert(id);
        }
    }
    map
}

/// A name without its namespaces: `pool<a::b>` of `cache::pool<a::b>`.
fn last_part(name: &str) -> &str {
    let (mut depth, mut start) = (0usize, 0);
    let bytes = name.as_bytes();
    for (at, &byte) in bytes.iter().enumerate() {
        match byte {
            b'<' => depth += 1,
            b'>' => depth = depth.saturating_sub(1),
            b':' if depth == 0 && at > 0 && bytes[at - 1] == b':' => start = at + 1,
            _ => {}
        }
    }
    &name[start..]
}

/// Where wanted types lie in records.
struct Inside<'t> {
    types: &'t Types,
    wanted: &'t [TypeId],
    by_name: HashMap<(&'t str, u64), TypeId>,
    known: HashMap<TypeId, Vec<(u64, TypeId)>>,
}

impl Inside<'_> {
    /// The offsets of wanted values in a record of a name and size; `None` where no such record is known.
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
            look(
                types,
                wanted,
                element,
                base.saturating_add(index.saturating_mul(size)),
                depth - 1,
                list,
            );
        }
    } else if let Some((_, record)) = record(types, id) {
        for member in record.members.iter().filter(|member| member.bits.is_none()) {
            look(types, wanted, member.ty, base.saturating_add(member.offset), depth - 1, list);
        }
    }
}

/// Whether a type, or what it is an array of, is a record.
fn holds(types: &Types, id: TypeId) -> bool {
    let mut id = types.resolve(id);
    for _ in 0..DEEPEST {
        match types.get(id) {
            Type::Array { element, .. } => id = types.resolve(*element),
            Type::Record(_) => return true,
            _ => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::last_part;

    #[test]
    fn namespaces_are_left_away_and_arguments_stay() {
        assert_eq!(last_part("counter"), "counter");
        assert_eq!(last_part("a::b::counter"), "counter");
        assert_eq!(last_part("a::pool<b::c>"), "pool<b::c>");
        assert_eq!(last_part(""), "");
    }
}
