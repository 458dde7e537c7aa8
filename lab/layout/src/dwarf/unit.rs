//! Units: the place of each, its strings, and the files that it names.

use super::budget::Budget;
use super::parsed::{File, Reference};
use super::{Slice, broken};
use crate::Error;
use gimli::{
    Abbreviations, Attribute, AttributeValue, DebugAbbrev, DebugAbbrevOffset, DebugLine,
    DebugLineOffset, DebugStrOffsetsBase, Dwarf, DwarfFileType, DwoId, EntriesRaw, Reader, Section,
    SectionId, UnitHeader, UnitOffset, UnitType,
};
use std::borrow::Cow;
use std::collections::HashMap;
use std::rc::Rc;

/// A set of sections whose units may refer to each other by offset, with the data to read them.
pub(super) struct Universe<'d, 'a> {
    /// dwz's file, which several programs share.
    pub supplement: Option<&'d Dwarf<Slice<'a>>>,
    /// The units, in the order of their references.
    pub units: Vec<UnitAt<'d, 'a>>,
    /// The type of each type unit.
    pub signatures: HashMap<u64, Reference>,
    pub budget: &'d Budget,
    /// The starts of tables of abbreviations, with their sections; sorted.
    tables: Cow<'d, [(usize, usize)]>,
}

/// One unit's parts of a package's sections.
pub(super) struct Contribution<'a> {
    pub dwarf: Dwarf<Slice<'a>>,
    /// The starts of its parts of `.debug_info` and of `.debug_types`.
    pub starts: [usize; 2],
}

/// A unit's header, and the place of the unit.
#[derive(Clone, Copy)]
pub(super) struct UnitAt<'d, 'a> {
    pub header: UnitHeader<Slice<'a>>,
    pub dwarf: &'d Dwarf<Slice<'a>>,
    pub space: u8,
    pub start: usize,
    pub end: usize,
}

/// The number of `.debug_info` in references. These numbers distinguish sections.
pub(super) const INFO: u8 = 0;
pub(super) const TYPES: u8 = 1;
pub(super) const SUPPLEMENT: u8 = 2;

impl UnitAt<'_, '_> {
    /// Returns a reference to an entry of this unit.
    pub(super) fn reference(&self, offset: UnitOffset) -> Reference {
        Reference::entry(self.space, self.start.saturating_add(offset.0))
    }

    /// Returns whether a reference is to an entry of this unit.
    pub(super) fn contains(&self, reference: Reference) -> bool {
        (Reference::entry(self.space, self.start)..Reference::entry(self.space, self.end))
            .contains(&reference)
    }

    /// Returns the place in this unit of the entry that a reference leads to.
    pub(super) fn offset_of(&self, reference: Reference) -> Option<usize> {
        let start = self.reference(UnitOffset(0));
        self.contains(reference).then(|| reference.behind(start))
    }

    /// Returns the section of its table of abbreviations, and the table's place there.
    fn table(&self) -> (usize, usize) {
        let section = self.dwarf.debug_abbrev.reader().slice().as_ptr() as usize;
        (section, self.header.debug_abbrev_offset().0)
    }

    /// Returns the unit's place in the words of errors.
    pub(super) fn place(&self) -> String {
        let section = match self.space {
            TYPES => SectionId::DebugTypes,
            _ => SectionId::DebugInfo,
        };
        format!("{} unit at {:#x}", section.name(), self.start)
    }
}

impl<'d, 'a> Universe<'d, 'a> {
    fn empty(budget: &'d Budget) -> Universe<'d, 'a> {
        Universe {
            supplement: None,
            units: Vec::new(),
            signatures: HashMap::new(),
            budget,
            tables: Cow::default(),
        }
    }

    /// Returns the universe of a unit that refers to itself alone; `tables` has the starts of the tables of
    /// abbreviations of all units.
    pub(super) fn of_one(tables: &'d [(usize, usize)], budget: &'d Budget) -> Universe<'d, 'a> {
        Universe { tables: tables.into(), ..Universe::empty(budget) }
    }

    /// Lists the units of some sections.
    pub(super) fn new(
        dwarf: &'d Dwarf<Slice<'a>>,
        supplement: Option<&'d Dwarf<Slice<'a>>>,
        budget: &'d Budget,
    ) -> Result<Universe<'d, 'a>, Error> {
        let mut universe = Universe { supplement, ..Universe::empty(budget) };
        universe.list(dwarf, [0, 0])?;
        if let Some(supplement) = supplement {
            let mut units = supplement.units();
            while let Some(header) = next(SectionId::DebugInfo, || units.next())? {
                universe.unit(supplement, SUPPLEMENT, 0, header);
            }
        }
        Ok(universe.sorted())
    }

    /// Lists the units of a package; each has sections of its own.
    pub(super) fn of_package(
        dwarfs: &'d [Contribution<'a>],
        budget: &'d Budget,
    ) -> Result<Universe<'d, 'a>, Error> {
        let mut universe = Universe::empty(budget);
        for contribution in dwarfs {
            universe.list(&contribution.dwarf, contribution.starts)?;
        }
        Ok(universe.sorted())
    }

    fn sorted(mut self) -> Universe<'d, 'a> {
        self.tables.to_mut().sort_unstable();
        self.tables.to_mut().dedup();
        self.units.sort_by_key(|unit| (unit.space, unit.start));
        self
    }

    /// Lists the units of sections that begin at `starts` in the package's sections.
    fn list(&mut self, dwarf: &'d Dwarf<Slice<'a>>, starts: [usize; 2]) -> Result<(), Error> {
        let mut units = dwarf.units();
        while let Some(header) = next(SectionId::DebugInfo, || units.next())? {
            self.unit(dwarf, INFO, starts[0], header);
        }
        let mut units = dwarf.type_units();
        while let Some(header) = next(SectionId::DebugTypes, || units.next())? {
            self.unit(dwarf, TYPES, starts[1], header);
        }
        Ok(())
    }

    fn unit(
        &mut self,
        dwarf: &'d Dwarf<Slice<'a>>,
        space: u8,
        section: usize,
        header: UnitHeader<Slice<'a>>,
    ) {
        let start = header.offset().0.saturating_add(section);
        let end = start.saturating_add(header.length_including_self());
        let unit = UnitAt { header, dwarf, space, start, end };
        if let UnitType::Type { type_signature, type_offset }
        | UnitType::SplitType { type_signature, type_offset } = header.type_()
        {
            self.signatures.entry(type_signature.0).or_insert(unit.reference(type_offset));
        }
        self.units.push(unit);
        self.tables.to_mut().push(unit.table());
    }

    /// Parses a unit's abbreviations. Each table ends before the next begins, so units that share the tail of one
    /// table cost no more than the file has bytes.
    fn abbreviations(&self, unit: &UnitAt<'_, '_>) -> Result<Abbreviations, Error> {
        let (section, start) = unit.table();
        let next = self.tables.partition_point(|&table| table <= (section, start));
        let bytes = unit.dwarf.debug_abbrev.reader().slice();
        let end = match self.tables.get(next) {
            Some(&(same, end)) if same == section => end.min(bytes.len()),
            _ => bytes.len(),
        };
        let endian = unit.dwarf.debug_abbrev.reader().endian();
        let parse = |end: usize| {
            self.budget.spend(end.saturating_sub(start) as u64)?;
            let table = bytes.get(start..end).unwrap_or_default();
            let parsed = DebugAbbrev::new(table, endian).abbreviations(DebugAbbrevOffset(0));
            parsed.map_err(|error| broken(unit.place(), error))
        };
        parse(end).or_else(|_| parse(bytes.len()))
    }

    /// Returns the index of the unit that an entry is in.
    pub(super) fn unit_of(&self, reference: Reference) -> Option<usize> {
        let after = self
            .units
            .partition_point(|unit| Reference::entry(unit.space, unit.start) <= reference);
        after.checked_sub(1).filter(|&index| self.units[index].contains(reference))
    }
}

/// Returns the starts of tables of abbreviations for [`Universe::of_one`], from their offsets.
pub(super) fn tables(
    dwarf: &Dwarf<Slice<'_>>,
    offsets: impl Iterator<Item = usize>,
) -> Vec<(usize, usize)> {
    let section = dwarf.debug_abbrev.reader().slice().as_ptr() as usize;
    let mut tables: Vec<_> = offsets.map(|offset| (section, offset)).collect();
    tables.sort_unstable();
    tables.dedup();
    tables
}

fn next<T>(
    section: SectionId,
    mut next: impl FnMut() -> gimli::Result<Option<T>>,
) -> Result<Option<T>, Error> {
    next().map_err(|error| broken(section.name(), error))
}

/// The abbreviations that were parsed last, since neighbouring units share a table.
#[derive(Default)]
pub(super) struct Tables {
    last: Option<((usize, usize), Rc<Abbreviations>)>,
}

impl Tables {
    /// Returns a unit's abbreviations.
    fn of(
        &mut self,
        unit: &UnitAt<'_, '_>,
        universe: &Universe<'_, '_>,
    ) -> Result<Rc<Abbreviations>, Error> {
        if let Some((at, table)) = &self.last
            && *at == unit.table()
        {
            return Ok(table.clone());
        }
        let table = Rc::new(universe.abbreviations(unit)?);
        self.last = Some((unit.table(), table.clone()));
        Ok(table)
    }
}

/// A unit, with the contents of its root entry.
pub(super) struct Unit<'d, 'a> {
    pub at: UnitAt<'d, 'a>,
    pub universe: &'d Universe<'d, 'a>,
    pub abbreviations: Rc<Abbreviations>,
    pub language: u16,
    pub split: Option<Split<'a>>,
    pub strings: DebugStrOffsetsBase<usize>,
    /// The place of its table of lines.
    pub lines: Option<DebugLineOffset>,
}

/// The place of the rest of a skeleton unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Split<'a> {
    pub id: Option<DwoId>,
    pub name: &'a [u8],
    pub directory: &'a [u8],
}

impl<'d, 'a> Unit<'d, 'a> {
    /// Reads the root entry.
    pub(super) fn new(
        at: UnitAt<'d, 'a>,
        universe: &'d Universe<'d, 'a>,
        tables: &mut Tables,
    ) -> Result<Unit<'d, 'a>, Error> {
        let encoding = at.header.encoding();
        let mut unit = Unit {
            at,
            universe,
            abbreviations: tables.of(&at, universe)?,
            language: 0,
            split: None,
            strings: DebugStrOffsetsBase::default_for_encoding_and_file(
                encoding,
                at.dwarf.file_type,
            ),
            lines: None,
        };
        unit.read_root().map_err(|error| broken(unit.at.place(), error))?;
        Ok(unit)
    }

    fn read_root(&mut self) -> gimli::Result<()> {
        let abbreviations = self.abbreviations.clone();
        let mut entries = self.at.header.entries_raw(&abbreviations, None)?;
        let Some(root) = entries.read_abbreviation()? else { return Ok(()) };
        let mut id = match self.at.header.type_() {
            UnitType::Skeleton(id) => Some(id),
            _ => None,
        };
        let (mut split, mut directory) = (None, None);
        for &specification in root.attributes() {
            let attribute = entries.read_attribute(specification)?;
            let value = attribute.raw_value();
            match attribute.name() {
                gimli::DW_AT_language => {
                    self.language = attribute.udata_value().unwrap_or(0) as u16;
                }
                gimli::DW_AT_str_offsets_base => {
                    if let Some(base) = attribute.offset_value() {
                        self.strings = DebugStrOffsetsBase(base);
                    }
                }
                gimli::DW_AT_stmt_list => {
                    let offset = attribute.offset_value();
                    let short =
                        attribute.udata_value().and_then(|value| usize::try_from(value).ok());
                    self.lines = offset.or(short).map(DebugLineOffset);
                }
                gimli::DW_AT_comp_dir => directory = Some(value),
                gimli::DW_AT_dwo_name | gimli::DW_AT_GNU_dwo_name => split = Some(value),
                gimli::DW_AT_GNU_dwo_id => id = attribute.udata_value().map(DwoId).or(id),
                _ => {}
            }
        }
        // Strings are read only now, when their start is known.
        if let Some(name) = split.and_then(|value| self.string(value))
            && self.at.dwarf.file_type != DwarfFileType::Dwo
        {
            let directory = directory.and_then(|value| self.string(value)).unwrap_or_default();
            self.split = Some(Split { id, name, directory });
        }
        if self.lines.is_none() && self.at.dwarf.file_type == DwarfFileType::Dwo {
            // A split file has at most one table.
            self.lines = Some(DebugLineOffset(0));
        }
        Ok(())
    }

    /// Returns the entries from `offset` on, or all entries.
    pub(super) fn entries<'u>(
        &'u self,
        offset: Option<UnitOffset>,
    ) -> Result<EntriesRaw<'u, Slice<'a>>, Error> {
        self.at.header.entries_raw(&self.abbreviations, offset).map_err(|error| self.broken(error))
    }

    /// Returns the string of an attribute; `None` if it cannot be found.
    pub(super) fn string(&self, value: AttributeValue<Slice<'a>>) -> Option<&'a [u8]> {
        let dwarf = self.at.dwarf;
        let found = match value {
            AttributeValue::String(string) => Ok(string),
            AttributeValue::DebugStrRef(offset) => dwarf.debug_str.get_str(offset),
            AttributeValue::DebugLineStrRef(offset) => dwarf.debug_line_str.get_str(offset),
            AttributeValue::DebugStrOffsetsIndex(index) => dwarf
                .debug_str_offsets
                .get_str_offset(self.at.header.format(), self.strings, index)
                .and_then(|offset| dwarf.debug_str.get_str(offset)),
            AttributeValue::DebugStrRefSup(offset) => {
                self.universe.supplement?.debug_str.get_str(offset)
            }
            _ => return None,
        };
        found.ok().map(|string| string.slice())
    }

    /// Returns the entry that an attribute refers to.
    pub(super) fn reference(&self, attribute: &Attribute<Slice<'a>>) -> Reference {
        match attribute.raw_value() {
            AttributeValue::UnitRef(offset) => self.at.reference(offset),
            AttributeValue::DebugInfoRef(offset) => {
                let space = if self.at.space == SUPPLEMENT { SUPPLEMENT } else { INFO };
                Reference::entry(space, offset.0)
            }
            AttributeValue::DebugInfoRefSup(offset) => Reference::entry(SUPPLEMENT, offset.0),
            AttributeValue::DebugTypesRef(signature) => {
                // A signature without a type unit here leads nowhere.
                let found = self.universe.signatures.get(&signature.0);
                found.copied().unwrap_or(Reference::entry(u8::MAX >> 1, 0))
            }
            _ => Reference::NONE,
        }
    }

    /// Returns the source files of its lines; the first stands for none. Without a readable table there is only that
    /// one.
    pub(super) fn files(&self) -> Result<Vec<File<'a>>, Error> {
        match self.lines {
            Some(offset) => self.files_of(&self.at.dwarf.debug_line, offset),
            None => Ok(vec![File::default()]),
        }
    }

    /// Like [`Unit::files`], but for a table at `offset` of `lines`.
    pub(super) fn files_of(
        &self,
        lines: &DebugLine<Slice<'a>>,
        offset: DebugLineOffset,
    ) -> Result<Vec<File<'a>>, Error> {
        let mut files = vec![File::default()];
        let size = self.at.header.address_size();
        let Ok(program) = lines.program(offset, size, None, None) else {
            return Ok(files);
        };
        let header = program.header();
        self.universe.budget.spend(16 * header.file_names().len() as u64)?;
        for entry in header.file_names() {
            let string = |value| self.string(value).unwrap_or_default();
            let name = string(entry.path_name());
            // Directory 0 is the compiler's working directory.
            let directory = match entry.directory_index() {
                0 => b"",
                _ => entry.directory(header).map(string).unwrap_or_default(),
            };
            files.push(File { directory, name });
        }
        Ok(files)
    }

    /// Returns the index in [`Unit::files`] of the file that an attribute names.
    ///
    /// DWARF 5 counts from 0, older versions from 1.
    pub(super) fn file_index(&self, named: u64) -> u32 {
        let index = if self.at.header.version() < 5 { named } else { named.saturating_add(1) };
        u32::try_from(index).unwrap_or(0)
    }

    /// Returns the error for an unreadable part of this unit.
    pub(super) fn broken(&self, error: gimli::Error) -> Error {
        broken(self.at.place(), error)
    }
}
