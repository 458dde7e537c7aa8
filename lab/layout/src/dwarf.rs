//! Types from DWARF: what compilers write beside the code when asked for debug information.
//!
//! Versions 4 and 5 (and what of 2 and 3 has the same form), of C, C++ and Rust, in ELF files of either
//! byte order: programs, libraries, object files, kernel modules; compressed sections; type units; split
//! units (`.dwo`, `.dwp`); debug files beside stripped programs; and dwz's common files.
//!
//! ```text
//! file ── separate ── sections ── unit ── entries ── parsed ── identity ── merge ── model
//!         where it     bytes       one     walk       its       which       each
//!         really is                         over it    types     are one     once
//! ```
//!
//! Units are walked by several threads and merged in the order of the file, so the same file gives the same
//! model in every run.

mod attributes;
mod bits;
mod budget;
mod entries;
mod identity;
mod merge;
mod package;
mod parsed;
mod read;
mod sections;
mod separate;
mod unit;
mod units;
mod unsized_tails;
mod virtual_bases;

pub use read::{Options, open, present, read};
pub(crate) use sections::widest_scalar_align;

use crate::Error;
use gimli::{EndianSlice, RunTimeEndian};

/// The bytes of a section.
type Slice<'a> = EndianSlice<'a, RunTimeEndian>;

/// That something of a section or unit cannot be read.
fn broken(place: impl std::fmt::Display, error: gimli::Error) -> Error {
    Error::new(format!("{place} cannot be read ({error})")).advise("build or copy the file again")
}
