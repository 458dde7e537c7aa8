//! Reads a package of split units (`.dwp`): all the `.dwo` files of a program in one, with an index.

use super::sections;
use super::unit::Contribution;
use super::{Slice, broken};
use crate::Error;
use gimli::{
    Dwarf, DwarfPackage, DwarfPackageSections, IndexSectionId, RunTimeEndian, SectionId, UnitIndex,
};
use std::borrow::Cow;

/// A package's sections, decompressed.
pub(super) struct Package<'a> {
    sections: DwarfPackageSections<Cow<'a, [u8]>>,
    endian: RunTimeEndian,
}

impl<'a> Package<'a> {
    pub(super) fn load(file: &object::File<'a>) -> Result<Package<'a>, Error> {
        let endian = sections::endian(file);
        let load = |id: SectionId| match id.dwo_name() {
            // All sections are taken: a unit has a part of each section that the index has a column for.
            Some(name) => sections::section(file, name).map_err(Failed::Refused),
            None => Ok(Cow::Borrowed(&[][..])),
        };
        let sections = DwarfPackageSections::load(load).map_err(|failed| match failed {
            Failed::Refused(error) => error,
            Failed::Broken(error) => broken("its index", error),
        })?;
        Ok(Package { sections, endian })
    }

    /// Returns the parts of the sections that each unit has.
    pub(super) fn units(&self) -> Result<Vec<Contribution<'_>>, Error> {
        let failed = |error| broken("its index", error);
        let empty = Slice::new(&[], self.endian);
        let package =
            self.sections.borrow(|bytes| Slice::new(bytes, self.endian), empty).map_err(failed)?;
        let mut units = Vec::new();
        for index in [&package.cu_index, &package.tu_index] {
            for row in 1..=index.unit_count() {
                units.push(contribution(&package, index, row).map_err(failed)?);
            }
        }
        Ok(units)
    }
}

fn contribution<'a>(
    package: &DwarfPackage<Slice<'a>>,
    index: &UnitIndex<Slice<'a>>,
    row: u32,
) -> gimli::Result<Contribution<'a>> {
    let mut starts = [0; 2];
    for section in index.sections(row)? {
        match section.section {
            IndexSectionId::DebugInfo => starts[0] = section.offset as usize,
            IndexSectionId::DebugTypes => starts[1] = section.offset as usize,
            _ => {}
        }
    }
    // Types need nothing of the program itself.
    let parent = Dwarf::load(|_| Ok::<_, gimli::Error>(package.empty))?;
    let dwarf = package.sections(index.sections(row)?, &parent)?;
    Ok(Contribution { dwarf, starts })
}

/// The reason why a section could not be loaded.
enum Failed {
    Refused(Error),
    Broken(gimli::Error),
}

impl From<gimli::Error> for Failed {
    fn from(error: gimli::Error) -> Failed {
        Failed::Broken(error)
    }
}
