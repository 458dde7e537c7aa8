//! A file that is read in part: its units one by one, and the tables of lines of the relevant ones.

use super::super::Slice;
use super::super::sections::{self, WANTED};
use gimli::{Dwarf, DwarfSections, Endianity, RunTimeEndian, SectionId};
use object::{CompressionFormat, Object, ObjectKind, ObjectSection, ReadRef};
use std::borrow::Cow;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// The bytes of a unit's header that are read here, at most.
const HEADER: usize = 24;

/// A section that is read in part.
enum Part<'a> {
    /// It lies in the file unchanged.
    InFile(Range<u64>),
    /// It was compressed.
    Held(Cow<'a, [u8]>),
}

/// A file with types of its own, whose units refer to each other only in ways that show in their abbreviations.
pub(super) struct Input<'f, 'a> {
    file: &'f File,
    info: Part<'a>,
    lines: Part<'a>,
    /// The other relevant sections, which are small.
    small: DwarfSections<Cow<'a, [u8]>>,
    pub endian: RunTimeEndian,
}

/// The contents of a unit's header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub start: usize,
    pub end: usize,
    pub abbreviations: usize,
    pub address_size: u8,
    /// Whether its offsets have eight bytes.
    pub wide: bool,
}

impl<'f, 'a> Input<'f, 'a> {
    /// Returns the sections of `parsed`, which is `file`; `None` if some types are not in plain units, or if the
    /// sections must be relocated.
    pub(super) fn of<R: ReadRef<'a>>(
        file: &'f File,
        parsed: &object::File<'a, R>,
    ) -> Option<Input<'f, 'a>> {
        let linked = parsed.kind() != ObjectKind::Relocatable;
        let plain = !sections::has(parsed, ".debug_types")
            && !sections::has(parsed, ".debug_info.dwo")
            && !sections::has(parsed, ".debug_cu_index")
            && parsed.gnu_debugaltlink().ok()?.is_none();
        if !linked || !plain {
            return None;
        }
        let (info, lines) = (part(parsed, ".debug_info")?, part(parsed, ".debug_line")?);
        let small = DwarfSections::load(|id| {
            let read_in_parts = matches!(id, SectionId::DebugInfo | SectionId::DebugLine);
            if read_in_parts || !WANTED.contains(&id) {
                return Ok(Cow::Borrowed(&[][..]));
            }
            sections::section(parsed, id.name())
        });
        Some(Input { file, info, lines, small: small.ok()?, endian: sections::endian(parsed) })
    }

    /// Returns the number of bytes of the sections, decompressed.
    pub(super) fn size(&self) -> u64 {
        let mut size = 0;
        self.small.borrow(|bytes| size += bytes.len() as u64);
        size + self.info.size() as u64 + self.lines.size() as u64
    }

    /// Returns the small sections in gimli's form.
    pub(super) fn dwarf(&self) -> Dwarf<Slice<'_>> {
        self.small.borrow(|bytes| Slice::new(bytes, self.endian))
    }

    /// Returns the headers of all units; `None` if one cannot be read, or is of another sort of unit.
    pub(super) fn heads(&self) -> Option<Vec<Head>> {
        let (mut heads, mut buffer) = (Vec::new(), Vec::new());
        let mut start = 0;
        while start < self.info.size() {
            let end = self.info.size().min(start + HEADER);
            let head = self.head(self.info.read(self.file, start..end, &mut buffer)?, start)?;
            start = head.end;
            heads.push(head);
        }
        Some(heads)
    }

    fn head(&self, bytes: &[u8], start: usize) -> Option<Head> {
        let mut at = 0;
        let mut take = |count: usize| {
            let taken = bytes.get(at..at + count)?;
            at += count;
            Some(match count {
                1 => taken[0].into(),
                2 => self.endian.read_u16(taken).into(),
                4 => self.endian.read_u32(taken).into(),
                _ => self.endian.read_u64(taken),
            })
        };
        let (length, wide) = match take(4)? {
            0xffff_ffff => (take(8)?, true),
            length => (length, false),
        };
        let offset = if wide { 8 } else { 4 };
        let (address_size, abbreviations) = match take(2)? {
            2..=4 => {
                let abbreviations = take(offset)?;
                (take(1)?, abbreviations)
            }
            5 => {
                let sort = gimli::DwUt(u8::try_from(take(1)?).ok()?);
                if !matches!(sort, gimli::DW_UT_compile | gimli::DW_UT_partial) {
                    return None;
                }
                (take(1)?, take(offset)?)
            }
            _ => return None,
        };
        let end = start.checked_add(if wide { 12 } else { 4 })?;
        let end = end.checked_add(usize::try_from(length).ok()?)?;
        (end <= self.info.size() && end > start + at).then_some(Head {
            start,
            end,
            abbreviations: usize::try_from(abbreviations).ok()?,
            address_size: u8::try_from(address_size).ok()?,
            wide,
        })
    }

    /// Returns the bytes of a unit.
    pub(super) fn unit<'b>(&'b self, head: &Head, buffer: &'b mut Vec<u8>) -> Option<&'b [u8]> {
        self.info.read(self.file, head.start..head.end, buffer)
    }

    /// Returns the table of lines at `offset`, from there on; empty if there is none.
    pub(super) fn lines<'b>(&'b self, offset: usize, buffer: &'b mut Vec<u8>) -> &'b [u8] {
        let length = |start: usize, count: usize, buffer: &mut Vec<u8>| {
            let bytes = self.lines.read(self.file, start..start.checked_add(count)?, buffer)?;
            Some(match count {
                4 => self.endian.read_u32(bytes).into(),
                _ => self.endian.read_u64(bytes),
            })
        };
        let end = match length(offset, 4, buffer) {
            Some(0xffff_ffff) => {
                length(offset.saturating_add(4), 8, buffer).map(|long| long.saturating_add(12))
            }
            short => short.map(|short| short + 4),
        };
        let end = end.and_then(|long| offset.checked_add(usize::try_from(long).ok()?));
        let range = end.map(|end| offset..end.min(self.lines.size()));
        range.and_then(|range| self.lines.read(self.file, range, buffer)).unwrap_or_default()
    }
}

/// Returns a section by its name, decompressed if it is compressed; empty if there is none. `None` if it cannot be
/// read.
fn part<'a, R: ReadRef<'a>>(file: &object::File<'a, R>, name: &str) -> Option<Part<'a>> {
    let found = file.sections().find(|section| sections::is_named(section.name_bytes(), name));
    let Some(section) = found else { return Some(Part::Held(Cow::Borrowed(&[]))) };
    let range = section.compressed_file_range().ok()?;
    if range.format == CompressionFormat::None {
        let end = range.offset.checked_add(range.uncompressed_size)?;
        return Some(Part::InFile(range.offset..end));
    }
    sections::section(file, name).ok().map(Part::Held)
}

impl Part<'_> {
    fn size(&self) -> usize {
        match self {
            Part::InFile(range) => usize::try_from(range.end - range.start).unwrap_or(usize::MAX),
            Part::Held(bytes) => bytes.len(),
        }
    }

    /// Reads some bytes of it, into `buffer` if they are in the file; `None` if it ends before.
    fn read<'b>(
        &'b self,
        file: &File,
        range: Range<usize>,
        buffer: &'b mut Vec<u8>,
    ) -> Option<&'b [u8]> {
        match self {
            Part::Held(bytes) => bytes.get(range),
            Part::InFile(_) if range.end > self.size() => None,
            Part::InFile(all) => {
                let bytes = range.len();
                // Lengths come from the file, which may be shorter than it states.
                let start = all.start + range.start as u64;
                let there = file.metadata().ok()?.len();
                if start + bytes as u64 > there {
                    return None;
                }
                if buffer.len() < bytes {
                    buffer.try_reserve_exact(bytes - buffer.len()).ok()?;
                    buffer.resize(bytes, 0);
                }
                file.read_exact_at(&mut buffer[..bytes], start).ok()?;
                Some(&buffer[..bytes])
            }
        }
    }
}
