//! The debug sections of one ELF file, decompressed, relocated, and joined if there are several.

use super::Slice;
use crate::Error;
use gimli::{Dwarf, DwarfFileType, DwarfSections, Endianity, RunTimeEndian, SectionId};
use object::{
    Architecture, Object, ObjectKind, ObjectSection, ObjectSymbol, ReadRef, RelocationKind,
    RelocationTarget,
};
use std::borrow::Cow;
use std::collections::HashMap;

/// The largest expansion of a compressed section. zlib cannot exceed it, and debug information becomes three to six
/// times as large.
const MOST_EXPANSION: u64 = 1100;

/// The sections that the reader uses; the others stay unchanged in the file.
pub(super) const WANTED: [SectionId; 7] = [
    SectionId::DebugAbbrev,
    SectionId::DebugInfo,
    SectionId::DebugLine,
    SectionId::DebugLineStr,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
    SectionId::DebugTypes,
];

/// The names of a file's sections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Names {
    /// Names such as `.debug_info`.
    Plain,
    /// Names such as `.debug_info.dwo`.
    Split,
}

/// A file's debug sections, ready to be walked.
pub(super) struct Sections<'a> {
    sections: DwarfSections<Cow<'a, [u8]>>,
    endian: RunTimeEndian,
    names: Names,
}

impl<'a> Sections<'a> {
    /// Loads the sections that the reader needs.
    pub(super) fn load(file: &object::File<'a>, names: Names) -> Result<Sections<'a>, Error> {
        let endian = endian(file);
        let loader = Loader::new(file);
        let sections = DwarfSections::load(|id| {
            let name = match names {
                Names::Plain => Some(id.name()),
                Names::Split => id.dwo_name(),
            };
            let name = name.filter(|_| WANTED.contains(&id));
            name.map_or(Ok(Cow::Borrowed(&[][..])), |name| loader.load(name))
        })?;
        Ok(Sections { sections, endian, names })
    }

    /// Returns the number of bytes of the sections, decompressed.
    pub(super) fn size(&self) -> u64 {
        let mut size = 0;
        self.sections.borrow(|bytes| size += bytes.len() as u64);
        size
    }

    /// Returns the sections in gimli's form.
    pub(super) fn dwarf(&self) -> Dwarf<Slice<'_>> {
        let mut dwarf = self.sections.borrow(|bytes| Slice::new(bytes, self.endian));
        if self.names == Names::Split {
            dwarf.file_type = DwarfFileType::Dwo;
        }
        dwarf
    }
}

/// Returns one section of an ELF file by its name, decompressed; empty if the file has none.
pub(super) fn section<'a>(
    file: &object::File<'a, impl ReadRef<'a>>,
    name: &str,
) -> Result<Cow<'a, [u8]>, Error> {
    Loader::new(file).load(name)
}

/// Returns whether the file has a nonempty section of this name or of its old compressed form.
pub(super) fn has<'a>(file: &object::File<'a, impl ReadRef<'a>>, name: &str) -> bool {
    file.sections().any(|section| {
        is_named(section.name_bytes(), name)
            && section.file_range().is_some_and(|(_, size)| size > 0)
    })
}

/// Returns whether a section has this name; an old linker that compresses `.debug_info` calls it `.zdebug_info`.
pub(super) fn is_named(found: object::Result<&[u8]>, name: &str) -> bool {
    let Ok(found) = found else { return false };
    found == name.as_bytes() || found.strip_prefix(b".z") == Some(&name.as_bytes()[1..])
}

struct Loader<'f, 'a, R: ReadRef<'a>> {
    file: &'f object::File<'a, R>,
    /// The start of a section among those of its name, since an object file has a `.debug_info` for each type unit.
    joined: HashMap<object::SectionIndex, u64>,
}

impl<'f, 'a, R: ReadRef<'a>> Loader<'f, 'a, R> {
    fn new(file: &'f object::File<'a, R>) -> Loader<'f, 'a, R> {
        let mut joined = HashMap::new();
        if file.kind() == ObjectKind::Relocatable {
            let mut ends = HashMap::new();
            for section in file.sections() {
                let Ok(name) = section.name_bytes() else { continue };
                if !name.starts_with(b".debug_") {
                    continue;
                }
                // Linkers join uncompressed contents, so their sizes count.
                let size = section.compressed_data().map_or(0, |data| data.uncompressed_size);
                let end = ends.entry(name).or_insert(0u64);
                if *end > 0 {
                    joined.insert(section.index(), *end);
                }
                *end = end.saturating_add(size);
            }
        }
        Loader { file, joined }
    }

    fn load(&self, name: &str) -> Result<Cow<'a, [u8]>, Error> {
        let mut contents = Cow::Borrowed(&[][..]);
        for section in self.file.sections() {
            if !is_named(section.name_bytes(), name) {
                continue;
            }
            let one = self.contents(&section).map_err(|reason| {
                Error::new(format!("section {name} {reason}"))
                    .advise("build or copy the file again")
            })?;
            if contents.is_empty() {
                contents = one;
            } else {
                contents.to_mut().extend_from_slice(&one);
            }
            if self.file.kind() != ObjectKind::Relocatable {
                break;
            }
        }
        Ok(contents)
    }

    /// Returns a section's contents, decompressed and relocated.
    fn contents(&self, section: &object::Section<'a, 'f, R>) -> Result<Cow<'a, [u8]>, String> {
        let stored = section.compressed_data().map_err(|_| "lies beyond the end of the file")?;
        let most = (stored.data.len() as u64).saturating_mul(MOST_EXPANSION).saturating_add(4096);
        if stored.uncompressed_size > most {
            return Err(format!(
                "says that its {} bytes become {}, which they cannot",
                stored.data.len(),
                stored.uncompressed_size
            ));
        }
        let mut contents =
            stored.decompress().map_err(|error| format!("cannot be decompressed ({error})"))?;
        if self.file.kind() == ObjectKind::Relocatable {
            self.relocate(section, &mut contents);
        }
        Ok(contents)
    }

    /// Sets the offsets of strings and tables like the linker. It leaves relocations that a debug section does not
    /// use, such as calls and offsets into tables of addresses.
    fn relocate(&self, section: &object::Section<'a, 'f, R>, contents: &mut Cow<'a, [u8]>) {
        let endian = endian(self.file);
        for (offset, relocation) in section.relocations() {
            if !matches!(
                relocation.kind(),
                RelocationKind::Absolute | RelocationKind::SectionOffset
            ) {
                continue;
            }
            let RelocationTarget::Symbol(symbol) = relocation.target() else { continue };
            let Ok(symbol) = self.file.symbol_by_index(symbol) else { continue };
            let base = symbol.section_index().and_then(|index| self.joined.get(&index)).copied();
            let width = match relocation.size() {
                32 => 4,
                64 => 8,
                _ => continue,
            };
            let Ok(start) = usize::try_from(offset) else { continue };
            let Some(end) = start.checked_add(width).filter(|&end| end <= contents.len()) else {
                continue;
            };
            let place = &mut contents.to_mut()[start..end];
            let stored = match width {
                _ if !relocation.has_implicit_addend() => 0,
                4 => endian.read_u32(place).into(),
                _ => endian.read_u64(place),
            };
            let value = stored
                .wrapping_add(symbol.address())
                .wrapping_add(base.unwrap_or(0))
                .wrapping_add_signed(relocation.addend());
            match width {
                4 => endian.write_u32(place, value as u32),
                _ => endian.write_u64(place, value),
            }
        }
    }
}

/// Returns the largest alignment of a number on the machine that the file is for, in bytes.
pub(crate) fn widest_scalar_align<'a>(file: &object::File<'a, impl ReadRef<'a>>) -> u64 {
    match file.architecture() {
        Architecture::I386 | Architecture::Csky => 4,
        Architecture::M68k | Architecture::Msp430 => 2,
        Architecture::Avr => 1,
        Architecture::Arm | Architecture::S390x | Architecture::Mips | Architecture::Xtensa => 8,
        _ => 16,
    }
}

/// Returns the order of the file's bytes.
pub(super) fn endian<'a>(file: &object::File<'a, impl ReadRef<'a>>) -> RunTimeEndian {
    if file.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big }
}

/// Opens an ELF file.
pub(super) fn parse(bytes: &[u8]) -> Result<object::File<'_>, Error> {
    object::File::parse(bytes).map_err(|error| {
        Error::new(format!("is not an ELF file that can be read ({error})"))
            .advise("name a program, library or object file")
    })
}

/// Returns the build id, which names its debug file.
pub(super) fn build_id<'a>(file: &object::File<'a, impl ReadRef<'a>>) -> Option<&'a [u8]> {
    file.build_id().ok().flatten().filter(|id| id.len() > 1)
}
