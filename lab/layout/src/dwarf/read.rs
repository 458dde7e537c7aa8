//! Reads a file's bytes into types: chooses the sections, the units and the number of threads that walk them.

use super::archive::{self, is_archive};
use super::merge::Merger;
use super::options::{Options, threads};
use super::package::Package;
use super::sections::{self, Names, Sections};
use super::unit::Universe;
use super::units::{self, Splits};
use super::{budget::Budget, separate};
use crate::Error;
use crate::model::Types;
use object::Object;
use std::fs;
use std::path::Path;

/// Reads the types of the ELF file at `path`, or of the debug file that belongs to it.
///
/// ```no_run
/// let types = ledgerline_layout::dwarf::open("/usr/bin/ls".as_ref())?;
/// for (_, record) in types.records() {
///     println!("{} {}", types.name(record.name), record.size);
/// }
/// # Ok::<(), ledgerline_layout::Error>(())
/// ```
///
/// # Errors
///
/// The errors of [`read`]; also if the file cannot be read.
pub fn open(path: &Path) -> Result<Types, Error> {
    let bytes = fs::read(path).map_err(|error| {
        Error::new(format!("cannot be read ({error})"))
            .advise("name a program, library or object file")
            .in_file(path)
    })?;
    read(&bytes, &Options::beside(path))
}

/// Reads the types of an ELF file, or of all members of an archive of such files.
///
/// If the file has no debug information of its own, its build id and its debug link lead to the file that has it
/// ([`Options::debug_directories`]). Reading takes about a second for 100 MB of debug information, on a thread for
/// each processor. The memory holds each type once.
///
/// # Errors
///
/// If the file is not an ELF file or archive, has no debug information, ends too early, or is malformed. The error is
/// one line that names the file ([`Options::path`]), and the member of an archive.
pub fn read(file: &[u8], options: &Options) -> Result<Types, Error> {
    read_nameless(file, options).map_err(|error| match &options.path {
        Some(path) => error.in_file(path),
        None => error,
    })
}

/// Returns whether an ELF file itself has DWARF, rather than a file beside it.
pub fn present(file: &[u8]) -> bool {
    sections::parse(file).is_ok_and(|file| {
        [".debug_info", ".debug_info.dwo"].iter().any(|name| sections::has(&file, name))
    })
}

fn read_nameless(bytes: &[u8], options: &Options) -> Result<Types, Error> {
    if is_archive(bytes) {
        return archive::read(bytes, options);
    }
    let file = sections::parse(bytes)?;
    if sections::has(&file, ".debug_info") {
        return read_file(&file, Names::Plain, bytes.len(), options);
    }
    if sections::has(&file, ".debug_cu_index") {
        let budget = Budget::of(bytes.len() as u64);
        let widest = sections::widest_scalar_align(&file);
        // Units of split files state the size of an address; until then it is the machine's.
        let pointer_size = if file.is_64() { 8 } else { 4 };
        let merger = Merger::new(pointer_size, widest, !file.is_little_endian(), &budget);
        return read_package(bytes, merger, options);
    }
    if sections::has(&file, ".debug_info.dwo") {
        return read_file(&file, Names::Split, bytes.len(), options);
    }
    let found = separate::debug_path(&file, options);
    let found = found.and_then(|path| Some((separate::read_regular(&path)?, path)));
    let Some((bytes, path)) = found else {
        return Err(Error::new("has no debug information").advise(
            "build it with -g (Rust: debug = \"full\" in the profile), or install its debug symbols",
        ));
    };
    let file = sections::parse(&bytes)?;
    let options = Options { path: Some(path.clone()), ..options.clone() };
    read_file(&file, Names::Plain, bytes.len(), &options).map_err(|error| error.in_file(&path))
}

fn read_file(
    file: &object::File<'_>,
    names: Names,
    size: usize,
    options: &Options,
) -> Result<Types, Error> {
    let path = options.path.as_deref();
    let sections = Sections::load(file, names)?;
    let dwarf = sections.dwarf();
    let supplement = separate::supplement(file, options)?;
    let supplement = supplement.as_deref().map(sections::parse).transpose()?;
    let supplement =
        supplement.as_ref().map(|file| Sections::load(file, Names::Plain)).transpose()?;
    let supplement = supplement.as_ref().map(Sections::dwarf);

    let budget = Budget::of(size as u64 + sections.size());
    let universe = Universe::new(&dwarf, supplement.as_ref(), &budget)?;
    let pointer_size = universe.units.first().map_or(8, |unit| unit.header.address_size());
    let widest = sections::widest_scalar_align(file);
    let merger = Merger::new(pointer_size, widest, !file.is_little_endian(), &budget);

    let package = separate::package(path).filter(|_| names == Names::Plain);
    let units = universe.units.len();
    let splits = Splits::new(path, package.is_some(), units);
    let threads = threads(options, sections.size(), units);
    let merger = units::merge(&universe, Some(&splits), merger, threads)?;
    match package {
        Some(package) => read_package(&package, merger, options),
        None => Ok(merger.finish()),
    }
}

/// Adds the types of a package of split files.
fn read_package(bytes: &[u8], merger: Merger<'_>, options: &Options) -> Result<Types, Error> {
    let file = sections::parse(bytes)?;
    let package = Package::load(&file)?;
    let budget = Budget::of(bytes.len() as u64);
    let dwarfs = package.units()?;
    let universe = Universe::of_package(&dwarfs, &budget)?;
    let threads = threads(options, bytes.len() as u64, universe.units.len());
    Ok(units::merge(&universe, None, merger, threads)?.finish())
}
