//! Reads the properties of an entry that the choice needs, by a recipe that is made once for all entries with one
//! abbreviation.
//!
//! A recipe also gives the entry's *digest*, a hash of everything that a layout depends on except the entry's
//! references. Entries with the same digest have the same meaning. The reverse does not hold: an entry may have as
//! text a name that another has in the section of strings.
//!
//! Not every abbreviation has a recipe. An entry that refers in a way that C does not use, or has an attribute that
//! must be evaluated, is read attribute by attribute and has no digest.

use super::super::Slice;
use super::super::attributes::Attributes;
use super::super::entries::shape_of;
use super::super::parsed::{Reference, Shape};
use super::super::unit::Unit;
use super::steps::Steps;
use crate::Error;
use foldhash::fast::FixedState;
use gimli::{
    Abbreviation, AttributeSpecification, DebugStrOffsetsIndex, DwAt, DwForm, Reader as _, Section,
    UnitOffset,
};
use std::hash::{BuildHasher, Hash, Hasher};

/// The reason why a unit cannot be read in part.
pub(super) enum Stopped {
    /// It refers to another unit.
    Linked,
    Broken,
}

impl From<Error> for Stopped {
    fn from(_: Error) -> Stopped {
        Stopped::Broken
    }
}

/// The properties of an entry that the choice needs.
#[derive(Default)]
pub(super) struct Says<'a> {
    /// `None` if it is not a type.
    pub shape: Option<Shape>,
    pub name: Name<'a>,
    pub to: Reference,
    pub specification: Reference,
    pub signature: Reference,
    /// The class of a pointer to its members.
    pub class: Reference,
    pub declaration: bool,
    /// Whether a member belongs to the whole class.
    pub is_static: bool,
    /// The number of the source file, as the entry has it.
    pub file: u64,
    /// See the module's documentation.
    pub digest: Option<u64>,
}

/// An entry's name.
#[derive(Clone, Copy, Hash, PartialEq, Eq)]
pub(super) enum Name<'a> {
    Text(&'a [u8]),
    /// Its place in `.debug_str`.
    At(u32),
}

impl Default for Name<'_> {
    fn default() -> Self {
        Name::Text(b"")
    }
}

impl<'a> Name<'a> {
    pub(super) fn is_empty(self, unit: &Unit<'_, 'a>) -> bool {
        self.text(unit).is_empty()
    }

    pub(super) fn text(self, unit: &Unit<'_, 'a>) -> &'a [u8] {
        match self {
            Name::Text(text) => text,
            Name::At(place) => {
                let place = gimli::DebugStrOffset(place as usize);
                unit.string(gimli::AttributeValue::DebugStrRef(place)).unwrap_or_default()
            }
        }
    }
}

/// The way to read the attributes of an entry, one after the other.
#[derive(Default)]
struct Recipe {
    shape: Option<Shape>,
    parts: Vec<Part>,
    declaration: bool,
    is_static: bool,
    /// The source file, if all entries have the same.
    file: u64,
    /// A hash of the properties that all entries with the abbreviation share.
    common: u64,
}

/// An attribute, or several adjacent ones that do not matter.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    /// Bytes that do not matter; the number of them.
    Passed(u32),
    /// A number of variable length that does not matter.
    PassedNumber,
    /// A number that matters: with this number of bytes, or the same for all entries.
    Number(DwAt, Meaning, u32),
    /// A number of variable length that matters.
    LongNumber(DwAt, Meaning),
    Constant(DwAt, i64),
    /// The name, in `.debug_str`.
    NamePlace,
    /// The name, as a number of this many bytes in the unit's table of places.
    NameIndex(u32),
    NameText,
    /// A text that does not matter.
    Text,
    /// The type that the entry refers to.
    To,
    /// The source file, as a number of this many bytes.
    File(u32),
    /// The source file, as a number of variable length.
    FileNumber,
}

/// The meaning of a number's bytes for `Attributes`.
#[derive(Clone, Copy, PartialEq)]
enum Meaning {
    Unsigned,
    Signed,
    /// An upper bound: the largest number of four or eight bytes stands for -1.
    Bound,
}

impl Meaning {
    /// Returns the value; `None` for a number that no compiler writes.
    fn value(self, number: u64, size: u32) -> Option<i64> {
        match (self, size) {
            (Meaning::Bound, 4) if number == u64::from(u32::MAX) => Some(-1),
            (Meaning::Bound, 8) if number == u64::MAX => Some(-1),
            (Meaning::Signed, _) => {
                let unused = 64 - 8 * size;
                Some((number << unused) as i64 >> unused)
            }
            _ => i64::try_from(number).ok(),
        }
    }
}

/// Reads entries of a unit.
pub(super) struct Reading<'u, 'a> {
    unit: &'u Unit<'u, 'a>,
    /// By the abbreviation's code: the recipe, or that there is none.
    recipes: Vec<Option<Option<Recipe>>>,
}

impl<'u, 'a> Reading<'u, 'a> {
    pub(super) fn new(unit: &'u Unit<'u, 'a>) -> Reading<'u, 'a> {
        Reading { unit, recipes: Vec::new() }
    }

    /// Returns the properties of the entry at `start`.
    pub(super) fn says(
        &mut self,
        start: usize,
        steps: &Steps<'_, 'a>,
    ) -> Result<Says<'a>, Stopped> {
        let (code, attributes) = steps.code(start)?;
        // A code may be any number. Compilers count from one.
        let slot = code.min(u16::MAX.into()) as usize;
        if self.recipes.len() <= slot {
            self.recipes.resize_with(slot + 1, || None);
        }
        let recipe = self.recipes[slot].get_or_insert_with(|| {
            let known = slot < usize::from(u16::MAX);
            let abbreviation = self.unit.abbreviations.get(code).filter(|_| known)?;
            Recipe::of(self.unit, abbreviation)
        });
        match recipe {
            Some(recipe) => {
                recipe.read(self.unit, &steps.bytes()[attributes..]).ok_or(Stopped::Broken)
            }
            None => attribute_by_attribute(self.unit, start),
        }
    }
}

fn attribute_by_attribute<'a>(unit: &Unit<'_, 'a>, start: usize) -> Result<Says<'a>, Stopped> {
    let mut entries = unit.entries(Some(UnitOffset(start)))?;
    let abbreviation = entries.read_abbreviation().map_err(|_| Stopped::Broken)?;
    let (shape, says) = match abbreviation {
        Some(abbreviation) => {
            (shape_of(abbreviation.tag()), Attributes::read(unit, &mut entries, abbreviation)?)
        }
        None => (None, Attributes::default()),
    };
    Ok(Says {
        shape,
        name: Name::Text(says.name),
        to: says.to,
        specification: says.specification,
        signature: says.signature,
        class: says.class,
        declaration: says.declaration,
        is_static: says.is_static(),
        file: says.file,
        digest: None,
    })
}

/// Returns the place in `.debug_str` of a text of the unit's table.
fn place(unit: &Unit<'_, '_>, index: usize) -> Option<u32> {
    let (at, index) = (&unit.at, DebugStrOffsetsIndex(index));
    let format = at.header.format();
    let place = at.dwarf.debug_str_offsets.get_str_offset(format, unit.strings, index);
    u32::try_from(place.ok()?.0).ok()
}

/// The use of an attribute that `Attributes` reads.
enum Use {
    Nothing,
    Number(Meaning),
    Name,
    To,
    File,
    Flag,
    /// It needs more than a recipe.
    Evaluated,
}

fn used(name: gimli::DwAt) -> Use {
    match name {
        gimli::DW_AT_name => Use::Name,
        gimli::DW_AT_type => Use::To,
        gimli::DW_AT_decl_file => Use::File,
        gimli::DW_AT_declaration
        | gimli::DW_AT_external
        | gimli::DW_AT_artificial
        | gimli::DW_AT_GNU_vector => Use::Flag,
        gimli::DW_AT_byte_size
        | gimli::DW_AT_bit_size
        | gimli::DW_AT_data_bit_offset
        | gimli::DW_AT_alignment
        | gimli::DW_AT_data_member_location
        | gimli::DW_AT_decl_line
        | gimli::DW_AT_encoding
        | gimli::DW_AT_count
        | gimli::DW_AT_lower_bound
        | gimli::DW_AT_byte_stride
        | gimli::DW_AT_bit_stride => Use::Number(Meaning::Unsigned),
        gimli::DW_AT_bit_offset => Use::Number(Meaning::Signed),
        gimli::DW_AT_upper_bound => Use::Number(Meaning::Bound),
        // These belong to C++, and to members without a place.
        gimli::DW_AT_specification
        | gimli::DW_AT_signature
        | gimli::DW_AT_containing_type
        | gimli::DW_AT_virtuality
        | gimli::DW_AT_const_value => Use::Evaluated,
        _ => Use::Nothing,
    }
}

impl Recipe {
    /// Returns the recipe; `None` if entries with the abbreviation must be read attribute by attribute.
    fn of(unit: &Unit<'_, '_>, abbreviation: &Abbreviation) -> Option<Recipe> {
        let tag = abbreviation.tag();
        let mut common = FixedState::with_seed(0).build_hasher();
        tag.0.hash(&mut common);
        let mut recipe = Recipe { shape: shape_of(tag), ..Recipe::default() };
        for specification in abbreviation.attributes() {
            let (name, form) = (specification.name(), specification.form());
            let part = match used(name) {
                Use::Nothing => Part::passed(unit, specification)?,
                Use::Name => match form {
                    gimli::DW_FORM_strp if unit.at.header.format() == gimli::Format::Dwarf32 => {
                        Part::NamePlace
                    }
                    gimli::DW_FORM_string => Part::NameText,
                    gimli::DW_FORM_strx1 => Part::NameIndex(1),
                    gimli::DW_FORM_strx2 => Part::NameIndex(2),
                    gimli::DW_FORM_strx3 => Part::NameIndex(3),
                    gimli::DW_FORM_strx4 => Part::NameIndex(4),
                    _ => return None,
                },
                Use::To if form == gimli::DW_FORM_ref4 => Part::To,
                Use::To => return None,
                Use::File => match form {
                    gimli::DW_FORM_implicit_const => {
                        recipe.file = u64::try_from(specification.implicit_const_value()?).ok()?;
                        continue;
                    }
                    gimli::DW_FORM_udata => Part::FileNumber,
                    _ => Part::File(fixed(form)?),
                },
                Use::Flag if form == gimli::DW_FORM_flag_present => {
                    name.0.hash(&mut common);
                    recipe.declaration |= name == gimli::DW_AT_declaration;
                    recipe.is_static |=
                        matches!(name, gimli::DW_AT_declaration | gimli::DW_AT_external);
                    continue;
                }
                Use::Flag | Use::Evaluated => return None,
                Use::Number(meaning) => match form {
                    gimli::DW_FORM_implicit_const => {
                        let value = specification.implicit_const_value()?;
                        if value < 0 && meaning == Meaning::Unsigned {
                            return None;
                        }
                        Part::Constant(name, value)
                    }
                    // clang writes alignments in this form.
                    gimli::DW_FORM_udata if meaning != Meaning::Signed => {
                        Part::LongNumber(name, meaning)
                    }
                    _ => Part::Number(name, meaning, fixed(form)?),
                },
            };
            recipe.add(part);
        }
        recipe.common = common.finish();
        Some(recipe)
    }

    /// Reads an entry, given its attributes at the start of `bytes`; `None` if they end too early.
    fn read<'a>(&self, unit: &Unit<'_, 'a>, bytes: &'a [u8]) -> Option<Says<'a>> {
        let endian = unit.at.dwarf.debug_abbrev.reader().endian();
        let mut rest = Slice::new(bytes, endian);
        let mut state = FixedState::with_seed(self.common).build_hasher();
        let mut told = true;
        let Recipe { shape, declaration, is_static, file, .. } = *self;
        let mut says = Says { shape, declaration, is_static, file, ..Says::default() };
        for &part in &self.parts {
            match part {
                Part::Passed(size) => rest.skip(size as usize).ok()?,
                Part::PassedNumber => rest.skip_leb128().ok()?,
                Part::Number(what, meaning, size) => {
                    let number = rest.read_uint(size as usize).ok()?;
                    match meaning.value(number, size) {
                        Some(value) => (what.0, value).hash(&mut state),
                        None => told = false,
                    }
                }
                Part::LongNumber(what, meaning) => {
                    match meaning.value(rest.read_uleb128().ok()?, 8) {
                        Some(value) => (what.0, value).hash(&mut state),
                        None => told = false,
                    }
                }
                Part::Constant(what, value) => (what.0, value).hash(&mut state),
                Part::NamePlace => says.name = Name::At(rest.read_u32().ok()?),
                Part::NameIndex(size) => {
                    let index = usize::try_from(rest.read_uint(size as usize).ok()?).ok()?;
                    // The name is empty, as for one that cannot be found.
                    says.name = place(unit, index).map_or_else(Name::default, Name::At);
                }
                Part::NameText => {
                    says.name = Name::Text(rest.read_null_terminated_slice().ok()?.slice())
                }
                Part::Text => drop(rest.read_null_terminated_slice().ok()?),
                Part::To => says.to = unit.at.reference(UnitOffset(rest.read_u32().ok()? as usize)),
                Part::File(size) => says.file = rest.read_uint(size as usize).ok()?,
                Part::FileNumber => says.file = rest.read_uleb128().ok()?,
            }
        }
        says.name.hash(&mut state);
        says.digest = told.then(|| state.finish());
        Some(says)
    }

    fn add(&mut self, part: Part) {
        match (self.parts.last_mut(), part) {
            (_, Part::Passed(0)) => {}
            (Some(Part::Passed(before)), Part::Passed(size)) => *before += size,
            _ => self.parts.push(part),
        }
    }
}

impl Part {
    /// Returns an attribute that does not matter.
    fn passed(unit: &Unit<'_, '_>, specification: &AttributeSpecification) -> Option<Part> {
        Some(match (specification.size(&unit.at.header), specification.form()) {
            (Some(size), _) => Part::Passed(u32::try_from(size).ok()?),
            (None, gimli::DW_FORM_udata | gimli::DW_FORM_sdata) => Part::PassedNumber,
            (None, gimli::DW_FORM_string) => Part::Text,
            _ => return None,
        })
    }
}

/// Returns the bytes of a number, if their number is constant.
fn fixed(form: DwForm) -> Option<u32> {
    Some(match form {
        gimli::DW_FORM_data1 => 1,
        gimli::DW_FORM_data2 => 2,
        gimli::DW_FORM_data4 => 4,
        gimli::DW_FORM_data8 => 8,
        _ => return None,
    })
}
