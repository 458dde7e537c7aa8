//! Reads the types of all members of an archive (`.a`, `.rlib`), also of one that only names its members.

use super::budget::Budget;
use super::merge::Merger;
use super::options::{Options, threads};
use super::sections::{self, Names, Sections};
use super::separate;
use super::unit::Universe;
use super::units::{self, Splits};
use crate::Error;
use crate::model::Types;
use object::Object;
use object::read::archive::{ArchiveFile, ArchiveMember};
use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The first bytes of an archive, and of a thin archive, which only names its members.
const MAGIC: [&[u8]; 2] = [b"!<arch>\n", b"!<thin>\n"];

/// The first bytes of an ELF file.
const ELF: &[u8] = b"\x7fELF";

/// Returns whether these are the bytes of an archive.
pub(crate) fn is_archive(bytes: &[u8]) -> bool {
    MAGIC.iter().any(|magic| bytes.starts_with(magic))
}

/// Reads the types of all members in their order, each type once. Members without debug information, and those that
/// are not ELF files, are skipped.
pub(super) fn read(bytes: &[u8], options: &Options) -> Result<Types, Error> {
    let damaged = |error: object::Error| {
        Error::new(format!("is an archive that cannot be read ({error})")).advise("copy it again")
    };
    let archive = ArchiveFile::parse(bytes).map_err(damaged)?;
    let mut members = Vec::new();
    for member in archive.members() {
        let member = member.map_err(damaged)?;
        let name = String::from_utf8_lossy(member.name()).into_owned();
        let content = content(&member, bytes, options.path.as_deref());
        let content = content.map_err(|error| error.within(format_args!("member {name}")))?;
        if content.starts_with(ELF) {
            members.push((name, content));
        }
    }
    let budget = Budget::of(members.iter().map(|(_, content)| content.len() as u64).sum());
    let mut merger = None;
    for (name, content) in &members {
        merger = add(content, merger, &budget, options)
            .map_err(|error| error.within(format_args!("member {name}")))?;
    }
    merger.map(|(merger, _)| merger.finish()).ok_or_else(|| {
        Error::new("is an archive without debug information")
            .advise("build it with -g (Rust: debug = \"full\" in the profile)")
    })
}

/// Returns the bytes of a member; a thin archive has them in a file beside itself.
fn content<'a>(
    member: &ArchiveMember<'a>,
    bytes: &'a [u8],
    path: Option<&Path>,
) -> Result<Cow<'a, [u8]>, Error> {
    if !member.is_thin() {
        let content = member.data(bytes).map_err(|error| {
            Error::new(format!("cannot be read ({error})")).advise("copy the archive again")
        });
        return content.map(Cow::Borrowed);
    }
    let named = Path::new(OsStr::from_bytes(member.name()));
    let beside = path.and_then(Path::parent).map(|folder| folder.join(named));
    let content = beside.and_then(|path| separate::read_regular(&path));
    content.map(Cow::Owned).ok_or_else(|| {
        Error::new("is not there, and the archive only names it")
            .advise("build again, or make the archive without T")
    })
}

/// The machine of a member: its architecture, whether it has 64 bits, whether it is little-endian.
type Machine = (object::Architecture, bool, bool);

/// The types so far, and their machine.
type Added<'b> = Option<(Merger<'b>, Machine)>;

/// Adds the types of a member, if it has any.
fn add<'b>(
    content: &[u8],
    added: Added<'b>,
    budget: &'b Budget,
    options: &Options,
) -> Result<Added<'b>, Error> {
    let file = sections::parse(content)?;
    if !sections::has(&file, ".debug_info") {
        return Ok(added);
    }
    let machine: Machine = (file.architecture(), file.is_64(), file.is_little_endian());
    let sections = Sections::load(&file, Names::Plain)?;
    let dwarf = sections.dwarf();
    let universe = Universe::new(&dwarf, None, budget)?;
    let merger = match added {
        Some((merger, same)) if same == machine => merger,
        Some(_) => {
            return Err(Error::new("is for another machine than the members before it")
                .advise("take it out of the archive, and name it alone"));
        }
        None => {
            let pointer_size = universe.units.first().map_or(8, |unit| unit.header.address_size());
            let widest = sections::widest_scalar_align(&file);
            Merger::new(pointer_size, widest, !file.is_little_endian(), budget)
        }
    };
    let units = universe.units.len();
    let splits = Splits::new(options.path.as_deref(), false, units);
    let threads = threads(options, sections.size(), units);
    let merger = units::merge(&universe, Some(&splits), merger, threads)?;
    Ok(Some((merger, machine)))
}
