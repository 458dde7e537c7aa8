//! Finds objects that a C compiler made without probes.

use object::read::archive::ArchiveFile;
use object::{Object, ObjectKind, ObjectSection, ObjectSymbol};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Folders of the compiler's own libraries, which have no probes.
const SYSTEM: [&str; 3] = ["/usr/lib", "/lib", "/lib64"];

/// Returns the objects of a linked file, an object or an archive, that were compiled without probes.
pub(super) fn without_probes(file: &Path) -> Vec<OsString> {
    let ours = !SYSTEM.iter().any(|system| file.starts_with(system));
    let Some(bytes) = std::fs::read(file).ok().filter(|_| ours) else { return Vec::new() };
    let Ok(archive) = ArchiveFile::parse(&*bytes) else {
        return if lacks(&bytes) { vec![file.into()] } else { Vec::new() };
    };
    let mut found = Vec::new();
    for member in archive.members().flatten() {
        let name = OsStr::from_bytes(member.name());
        let lacks = if member.is_thin() {
            let beside = file.with_file_name("").join(name);
            std::fs::read(beside).is_ok_and(|bytes| lacks(&bytes))
        } else {
            member.data(&*bytes).is_ok_and(lacks)
        };
        if lacks {
            let mut told = file.as_os_str().to_owned();
            told.push("(");
            told.push(name);
            told.push(")");
            found.push(told);
        }
    }
    found
}

/// Returns whether an object was compiled by gcc or clang, which leave their names in it, without probes. Each object
/// with probes calls `__tsan_init` when it is loaded, even if it accesses nothing.
fn lacks(bytes: &[u8]) -> bool {
    let Ok(file) = object::File::parse(bytes) else { return false };
    let of_c = || {
        let comment =
            file.section_by_name_bytes(b".comment").and_then(|comment| comment.data().ok());
        let has = |name: &[u8], text: &[u8]| text.windows(name.len()).any(|part| part == name);
        comment.is_some_and(|text| has(b"GCC:", text) || has(b"clang version", text))
    };
    let probed = || {
        file.symbols().any(|symbol| symbol.name_bytes().is_ok_and(|name| name == b"__tsan_init"))
    };
    file.kind() == ObjectKind::Relocatable && of_c() && !probed()
}
