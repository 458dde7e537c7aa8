//! Steps from entry to entry, over attributes that are not needed.

use super::super::Slice;
use super::super::entries::{FORMAL_PARAMETER, is_dimension, shape_of};
use super::super::unit::Unit;
use super::wanted::Wanted;
use crate::Error;
use gimli::{Abbreviation, DwTag, Endianity, Reader, RunTimeEndian, Section, UnitOffset};

/// The largest code of an abbreviation that has its properties in a table.
const TABULATED: usize = 1 << 14;

/// The properties of all entries with one abbreviation.
#[derive(Clone, Copy)]
struct Known {
    tag: DwTag,
    children: bool,
    /// The bytes of the attributes, if their number is constant.
    size: Option<u32>,
    /// The place among them of the offset of the next sibling, in four bytes.
    sibling: Option<u32>,
    sort: Sort,
    /// Whether it is a type that completes another entry.
    completes: bool,
    /// The place among the attributes of the name, as an offset of four bytes in `.debug_str`.
    name: Option<u32>,
}

/// The sort of an entry in a survey.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    /// The end of a list of children.
    End,
    /// A type that others may be in.
    Record,
    /// Another type.
    Type,
    /// An entry that may enclose types.
    Container,
    Other,
}

/// An entry, or the end of a list of children.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub start: usize,
    /// The end of its attributes.
    pub next: usize,
    pub tag: DwTag,
    pub sort: Sort,
    pub children: bool,
    /// The start of its next sibling, if it states it.
    pub sibling: Option<usize>,
    /// Whether it is a type that completes another entry.
    pub completes: bool,
    /// The position at which the place of its name in `.debug_str` is written in four bytes, if it is.
    name: Option<usize>,
}

impl Step {
    /// Returns whether it ends a list of children.
    pub(super) fn is_end(&self) -> bool {
        self.sort == Sort::End
    }
}

/// An entry that a walk over the members of a type meets.
pub(super) enum Met {
    Member(Step),
    /// The end of the members of the innermost type, which in the end is the type itself.
    End,
}

/// Walks over the entries of a unit.
pub(super) struct Steps<'u, 'a> {
    unit: &'u Unit<'u, 'a>,
    bytes: &'a [u8],
    endian: RunTimeEndian,
    known: Vec<Option<Known>>,
    /// The number of entries that were stepped over.
    pub count: u64,
}

impl<'u, 'a> Steps<'u, 'a> {
    /// Returns the steps of a unit; `bytes` are those of the unit, from its header on.
    pub(super) fn new(unit: &'u Unit<'u, 'a>, bytes: &'a [u8]) -> Steps<'u, 'a> {
        let endian = unit.at.dwarf.debug_abbrev.reader().endian();
        Steps { unit, bytes, endian, known: Vec::new(), count: 0 }
    }

    /// Returns whether types of the unit may refer to other units.
    pub(super) fn leads_out(&self) -> bool {
        let abbreviations = (1..).map_while(|code| self.unit.abbreviations.get(code));
        let concerned = |tag| shape_of(tag).is_some() || is_member(tag) && tag != FORMAL_PARAMETER;
        abbreviations.filter(|abbreviation| concerned(abbreviation.tag())).any(|abbreviation| {
            abbreviation.attributes().iter().any(|attribute| {
                matches!(
                    attribute.name(),
                    gimli::DW_AT_type
                        | gimli::DW_AT_specification
                        | gimli::DW_AT_signature
                        | gimli::DW_AT_containing_type
                ) && matches!(
                    attribute.form(),
                    gimli::DW_FORM_ref_addr
                        | gimli::DW_FORM_ref_sig8
                        | gimli::DW_FORM_ref_sup4
                        | gimli::DW_FORM_ref_sup8
                        | gimli::DW_FORM_GNU_ref_alt
                        | gimli::DW_FORM_indirect
                )
            })
        })
    }

    /// Returns the place of the first entry.
    pub(super) fn first(&self) -> Result<usize, Error> {
        Ok(self.unit.entries(None)?.next_offset().0)
    }

    /// Returns the bytes of the unit, from its header on.
    pub(super) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    pub(super) fn end(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the entry at `start`.
    pub(super) fn step(&mut self, start: usize) -> Result<Step, Error> {
        self.count += 1;
        let (code, attributes) = self.code(start)?;
        if code == 0 {
            return Ok(Step {
                start,
                next: attributes,
                tag: gimli::DW_TAG_null,
                sort: Sort::End,
                children: false,
                sibling: None,
                completes: false,
                name: None,
            });
        }
        let known = self.known(code)?;
        let next = match known.size {
            Some(size) => attributes + size as usize,
            None => {
                let mut entries = self.unit.entries(Some(UnitOffset(start)))?;
                let skipped = entries.read_abbreviation().and_then(|abbreviation| {
                    let attributes = abbreviation.map_or(&[][..], Abbreviation::attributes);
                    entries.skip_attributes(attributes)
                });
                skipped.map_err(|error| self.unit.broken(error))?;
                entries.next_offset().0
            }
        };
        if next > self.bytes.len() {
            let error = gimli::Error::UnexpectedEof(gimli::ReaderOffsetId(start as u64));
            return Err(self.unit.broken(error));
        }
        let Known { tag, sort, children, completes, .. } = known;
        let name = known.name.map(|at| attributes + at as usize);
        let sibling = known.sibling.and_then(|at| {
            let at = attributes + at as usize;
            let sibling = self.endian.read_u32(self.bytes.get(at..at + 4)?) as usize;
            (next < sibling && sibling < self.bytes.len()).then_some(sibling)
        });
        Ok(Step { start, next, tag, sort, children, sibling, completes, name })
    }

    /// Returns the code of the abbreviation of an entry, and the start of its attributes.
    pub(super) fn code(&self, start: usize) -> Result<(u64, usize), Error> {
        // Nearly all codes are short.
        match self.bytes.get(start..start + 2) {
            Some(&[first @ ..0x80, _]) => return Ok((first.into(), start + 1)),
            Some(&[first, second @ ..0x80]) => {
                return Ok((u64::from(first & 0x7f) | u64::from(second) << 7, start + 2));
            }
            _ => {}
        }
        let mut rest = Slice::new(self.bytes.get(start..).unwrap_or_default(), self.endian);
        let code = rest.read_uleb128().map_err(|error| self.unit.broken(error))?;
        Ok((code, self.bytes.len() - rest.len()))
    }

    /// Returns the properties of the entries with an abbreviation.
    fn known(&mut self, code: u64) -> Result<Known, Error> {
        let slot = usize::try_from(code).unwrap_or(usize::MAX);
        if let Some(Some(known)) = self.known.get(slot) {
            return Ok(*known);
        }
        let abbreviation = self.unit.abbreviations.get(code);
        let unknown = || self.unit.broken(gimli::Error::InvalidAbbreviationCode(code));
        let known = self.learn(abbreviation.ok_or_else(unknown)?);
        if slot < TABULATED {
            if self.known.len() <= slot {
                self.known.resize(slot + 1, None);
            }
            self.known[slot] = Some(known);
        }
        Ok(known)
    }

    fn learn(&self, abbreviation: &Abbreviation) -> Known {
        let (mut size, mut sibling, mut name, mut completes) = (Some(0u32), None, None, false);
        let wide = self.unit.at.header.format() == gimli::Format::Dwarf64;
        for attribute in abbreviation.attributes() {
            if attribute.name() == gimli::DW_AT_sibling && attribute.form() == gimli::DW_FORM_ref4 {
                sibling = size;
            }
            if attribute.name() == gimli::DW_AT_name
                && attribute.form() == gimli::DW_FORM_strp
                && !wide
            {
                name = size;
            }
            completes |= attribute.name() == gimli::DW_AT_specification;
            let own = attribute.size(&self.unit.at.header);
            size = size.zip(own).and_then(|(sum, own)| sum.checked_add(u32::try_from(own).ok()?));
        }
        let tag = abbreviation.tag();
        let sort = match (shape_of(tag), is_container(tag)) {
            (Some(_), true) => Sort::Record,
            (Some(_), false) => Sort::Type,
            (None, true) => Sort::Container,
            (None, false) => Sort::Other,
        };
        completes &= matches!(sort, Sort::Record | Sort::Type);
        let children = abbreviation.has_children();
        Known { tag, children, size, sibling, sort, completes, name }
    }

    /// Returns whether the name of an entry is wanted.
    pub(super) fn is_wanted(&self, step: &Step, wanted: &Wanted) -> Result<bool, Error> {
        match step.name.and_then(|at| self.bytes.get(at..at + 4)) {
            Some(place) => Ok(wanted.is_at(self.endian.read_u32(place) as usize)),
            None => Ok(wanted.has(self.name(step.start)?)),
        }
    }

    /// Returns the name of the entry at `start`, empty if it has none.
    fn name(&self, start: usize) -> Result<&'a [u8], Error> {
        let broken = |error| self.unit.broken(error);
        let mut entries = self.unit.entries(Some(UnitOffset(start)))?;
        let Some(abbreviation) = entries.read_abbreviation().map_err(broken)? else {
            return Ok(b"");
        };
        for &specification in abbreviation.attributes() {
            let attribute = entries.read_attribute(specification).map_err(broken)?;
            if attribute.name() == gimli::DW_AT_name {
                return Ok(self.unit.string(attribute.raw_value()).unwrap_or_default());
            }
        }
        Ok(b"")
    }

    /// Returns the first entry behind the children of `step`.
    pub(super) fn beyond(&mut self, step: &Step) -> Result<usize, Error> {
        if !step.children {
            return Ok(step.next);
        }
        if let Some(sibling) = step.sibling {
            return Ok(sibling);
        }
        let (mut at, mut depth) = (step.next, 1usize);
        while depth > 0 && at < self.end() {
            let step = self.step(at)?;
            at = step.next;
            match step {
                step if step.is_end() => depth -= 1,
                step if step.children => match step.sibling {
                    Some(sibling) => at = sibling,
                    None => depth += 1,
                },
                _ => {}
            }
        }
        Ok(at)
    }

    /// Visits the parts of the type at `start`: members, bases, variants, dimensions, parameters. Types within it are
    /// skipped.
    pub(super) fn members(
        &mut self,
        start: usize,
        mut meet: impl FnMut(Met) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let whole = self.step(start)?;
        if !whole.children {
            return Ok(());
        }
        let is_array = whole.tag == gimli::DW_TAG_array_type;
        let (mut at, mut depth) = (whole.next, 1usize);
        while depth > 0 && at < self.end() {
            let step = self.step(at)?;
            if step.is_end() {
                depth -= 1;
                at = step.next;
                meet(Met::End)?;
            } else if is_member(step.tag) || (is_array && depth == 1 && is_dimension(step.tag)) {
                meet(Met::Member(step))?;
                depth += usize::from(step.children);
                at = step.next;
            } else {
                at = self.beyond(&step)?;
            }
        }
        // A truncated list ends with the unit.
        (0..depth).try_for_each(|_| meet(Met::End))
    }
}

fn is_member(tag: DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_member
            | gimli::DW_TAG_inheritance
            | gimli::DW_TAG_variant_part
            | gimli::DW_TAG_variant
            | gimli::DW_TAG_unspecified_parameters
            | FORMAL_PARAMETER
    )
}

/// Returns whether it qualifies the names of types within it in some language.
fn is_container(tag: DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_namespace
            | gimli::DW_TAG_module
            | gimli::DW_TAG_structure_type
            | gimli::DW_TAG_class_type
            | gimli::DW_TAG_interface_type
            | gimli::DW_TAG_union_type
            | gimli::DW_TAG_subprogram
    )
}
