//! The targets of fuzzing: each calls a reader with arbitrary bytes. No reader may panic, hang, or take much more
//! memory than it was given. Whether the bytes can be read does not matter.

use std::path::Path;

use crate::model::{Type, Types};
use crate::open::{self, Options, Prefer};
use crate::{align, btf, dwarf};

/// The most bytes that compressed data may unpack to.
const UNPACKED: usize = 4 << 20;

/// Reads BTF that stands alone, and split BTF if it begins a second time.
pub fn btf(data: &[u8]) {
    if let Ok(types) = btf::read(data, None) {
        visit(&types);
    }
    let second = (1..data.len()).find(|&at| btf::is_btf(&data[at..]));
    if let Some(at) = second
        && let Ok(types) = btf::read_split(&data[..at], &data[at..], None)
    {
        visit(&types);
    }
}

/// Reads a file of any sort, also a kernel image.
pub fn image(data: &[u8]) {
    let Ok(data) = open::unwrap(data.to_vec(), UNPACKED) else { return };
    let options = Options { prefer: Prefer::Btf, base: None };
    if let Ok(opened) = open::read(&data, Path::new("/dev/null/fuzz"), &options) {
        visit(&opened.types);
    }
}

/// Reads an ELF file with DWARF. No other file is opened, whatever names it has.
pub fn dwarf(data: &[u8]) {
    let options = dwarf::Options { path: None, debug_directories: Vec::new(), threads: 1 };
    if let Ok(types) = dwarf::read(data, &options) {
        visit(&types);
    }
}

/// Uses every type like printing does, and checks the readers' guarantees.
fn visit(types: &Types) {
    for (id, ty) in types.iter() {
        let _ = align::of(types, id);
        let Type::Record(record) = ty else { continue };
        assert!(record.align.bytes().is_power_of_two(), "an alignment that is none");
        let _ = types.name(record.name);
        for member in &record.members {
            let _ = (types.name(member.name), types.size(member.ty));
            if let Some(bits) = member.bits {
                assert!(bits.size > 0, "a bitfield of no bits");
            }
        }
    }
}
