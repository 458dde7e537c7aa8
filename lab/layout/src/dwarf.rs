//! Reads types from DWARF, which compilers write beside the code when asked for debug information.
//!
//! The reader knows versions 4 and 5, and the parts of 2 and 3 that have the same form, of C, C++ and Rust, in ELF
//! files of either byte order: programs, libraries, object files, kernel modules, and archives of these. It knows
//! compressed sections, type units, split units (`.dwo`, `.dwp`), debug files beside stripped programs, and dwz's
//! common files.
//!
//! ```text
//! file ── separate ── sections ── unit ── entries ── parsed ── identity ── merge ── model
//!         where it     bytes       one     walk       its       which       each
//!         really is                         over it    types     are one     once
//! ```
//!
//! Several threads walk the units, which are merged in the order of the file. So the same file gives the same model
//! in every run. A few named types are read without the rest of the file ([`open_named`]).

mod archive;
mod attributes;
mod bits;
mod budget;
mod entries;
mod identity;
mod merge;
mod named;
mod options;
mod package;
mod parsed;
mod read;
mod sections;
mod separate;
mod team;
mod unit;
mod units;
mod unsized_tails;
mod virtual_bases;

pub(crate) use archive::is_archive;
pub use named::{Named, open_named};
pub use options::Options;
pub use read::{open, present, read};
pub(crate) use sections::widest_scalar_align;
pub(crate) use separate::debug_path;

use crate::Error;
use gimli::{EndianSlice, RunTimeEndian};

/// The bytes of a section.
type Slice<'a> = EndianSlice<'a, RunTimeEndian>;

/// Returns the error for an unreadable part of a section or unit.
fn broken(place: impl std::fmt::Display, error: gimli::Error) -> Error {
    Error::new(format!("{place} cannot be read ({error})")).advise("build or copy the file again")
}
