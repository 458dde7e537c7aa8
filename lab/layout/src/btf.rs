//! Reads types from BTF, the compact debug information that Linux carries of itself (`/sys/kernel/btf/vmlinux`), of
//! its modules and of BPF programs.
//!
//! BTF has a header, a list of types and a text of names. A type is three words (its name, its kind with the number
//! of its parts, its size or the type that it refers to) and what its kind adds. Types are numbered from 1 in their
//! order, and 0 is void. The BTF of a module is *split*: its types and its names continue those of the kernel, and it
//! is meaningless without the kernel's.
//!
//! BTF states neither alignments (they are [inferred](crate::align)), nor the size of a pointer, nor whether an array
//! of no elements is `[]` or `[0]`. At the end of a structure and in a union such an array is taken to be `[]`.

mod convert;
mod section;

use crate::error::Error;
use crate::model::Types;
use convert::Reader;
use section::Section;

/// Facts about the machine that BTF is for, which BTF does not state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The size of a pointer in bytes.
    pub pointer_size: u8,
    /// The largest alignment of a number in bytes; see [`Types::widest_scalar_align`].
    pub widest_scalar_align: u64,
}

/// Returns whether `data` begins as BTF of either byte order does.
pub fn is_btf(data: &[u8]) -> bool {
    section::order(data).is_some()
}

/// Returns whether `data` is BTF that builds on another's and needs [`read_split`].
pub fn is_split(data: &[u8]) -> bool {
    Section::parse(data).is_ok_and(|section| section.is_split())
}

/// Finds the BTF within a kernel image without sections. It is the largest BTF there, since the BPF programs that a
/// kernel carries have BTF as well.
///
/// The search looks at each aligned word of `data` once: 10 ms for 50 MB.
pub fn find(data: &[u8]) -> Option<&[u8]> {
    let starts = (0..data.len()).step_by(4).filter(|&at| section::order(&data[at..]).is_some());
    starts.filter_map(|at| section::extent(&data[at..])).max_by_key(|btf| btf.len())
}

/// Reads BTF that stands alone: a kernel's, a BPF program's, or the output of `gcc -gbtf`.
///
/// Without a `machine`, pointers have the size of `long`, or 8 bytes if there is no `long`.
///
/// This costs one look at each type and each member: 10 ms for a kernel of 13 000 records. Memory is bounded by a
/// small multiple of `data`.
///
/// # Errors
/// If `data` is not BTF, is cut off, or is inconsistent. The error names the type and the reason.
pub fn read(data: &[u8], machine: Option<Machine>) -> Result<Types, Error> {
    let own = Section::parse(data)?;
    if own.is_split() {
        return Err(Error::new("its BTF is a module's, which builds on its kernel's")
            .advise("name the kernel's as its base (/sys/kernel/btf/vmlinux, if that one runs)"));
    }
    let mut reader = Reader::new(machine);
    reader.add(&own, None)?;
    Ok(reader.finish())
}

/// Reads the split BTF of a module, which builds on its kernel's BTF, the `base`, or on the module's own `.BTF.base`.
///
/// The base's types count as [borrowed](Types::borrowed).
///
/// # Errors
/// The errors of [`read`]; also if the two do not fit together.
pub fn read_split(base: &[u8], data: &[u8], machine: Option<Machine>) -> Result<Types, Error> {
    let base = Section::parse(base).map_err(|error| error.within("the base"))?;
    let own = Section::parse(data)?;
    if own.order != base.order {
        return Err(Error::new("its byte order is not that of its base"));
    }
    let mut reader = Reader::new(machine);
    reader.add(&base, None).map_err(|error| error.within("the base"))?;
    reader.borrow_all();
    reader.add(&own, Some(&base)).map_err(|error| {
        error.advise("name the BTF of the very kernel that the module was built for as its base")
    })?;
    Ok(reader.finish())
}
