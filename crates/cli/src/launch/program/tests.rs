//! The lookup and the inspection, on files made for the purpose.

use super::*;
use std::os::unix::fs::PermissionsExt;

struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path =
            std::env::temp_dir().join(format!("ledgerline-program-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Directory(path)
    }

    fn file(&self, name: &str, mode: u32, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

// The few fields of an ELF file of the 64-bit class that matter here.
const MACHINE: usize = 18;
const PROGRAM_HEADERS: usize = 32;
const PROGRAM_HEADER_SIZE: usize = 54;
const PROGRAM_HEADER_COUNT: usize = 56;
const HEADER_LENGTH: usize = 64;
/// The type of the program header that names the dynamic loader.
const INTERP: u32 = 3;

/// The start of an ELF file with one program header of the type `kind`, which
/// names `loader`.
fn elf_file(class: u8, machine: u16, kind: u32, loader: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_LENGTH + 56];
    bytes[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, 1, 1]);
    bytes[MACHINE..MACHINE + 2].copy_from_slice(&machine.to_le_bytes());
    bytes[PROGRAM_HEADERS] = HEADER_LENGTH as u8;
    bytes[PROGRAM_HEADER_SIZE] = 56;
    bytes[PROGRAM_HEADER_COUNT] = 1;
    bytes[HEADER_LENGTH..HEADER_LENGTH + 4].copy_from_slice(&kind.to_le_bytes());
    let at = bytes.len() as u64;
    bytes[HEADER_LENGTH + 8..HEADER_LENGTH + 16].copy_from_slice(&at.to_le_bytes());
    bytes[HEADER_LENGTH + 32..HEADER_LENGTH + 40]
        .copy_from_slice(&(loader.len() as u64).to_le_bytes());
    bytes.extend_from_slice(loader);
    bytes
}

fn spot(path: &Path) -> Option<BlindSpot> {
    find_in(path.as_os_str(), OsStr::new("")).unwrap().blind_spot()
}

#[cfg(target_arch = "x86_64")]
#[test]
fn an_elf_file_says_what_it_is() {
    const LOAD: u32 = 1;
    let directory = Directory::new("elf");
    for (name, bytes, expected) in [
        ("dynamic", elf_file(2, 62, INTERP, b"/lib64/ld-linux-x86-64.so.2\0"), None),
        ("static", elf_file(2, 62, LOAD, b""), Some(BlindSpot::Static)),
        (
            "musl",
            elf_file(2, 62, INTERP, b"/lib/ld-musl-x86_64.so.1\0"),
            Some(BlindSpot::OtherLibc),
        ),
        (
            "narrow",
            elf_file(1, 3, INTERP, b"/lib/ld-linux.so.2\0"),
            Some(BlindSpot::OtherArchitecture),
        ),
        ("foreign", elf_file(2, 183, INTERP, b"/lib/ld.so\0"), Some(BlindSpot::OtherArchitecture)),
        // Too short or not ELF at all: the kernel will say.
        ("cut", elf_file(2, 62, INTERP, b"/lib")[..70].to_vec(), None),
        ("text", b"echo hello\n".to_vec(), None),
        ("empty", Vec::new(), None),
    ] {
        assert_eq!(spot(&directory.file(name, 0o755, &bytes)), expected, "{name}");
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_script_is_judged_by_its_interpreter() {
    let directory = Directory::new("script");
    let interpreter = directory.file("interpreter", 0o755, &elf_file(2, 62, 1, b""));
    let line = format!("#! {} -x\nbody\n", interpreter.display());
    assert_eq!(spot(&directory.file("static", 0o755, line.as_bytes())), Some(BlindSpot::Static));
    assert_eq!(spot(&directory.file("shell", 0o755, b"#!/bin/sh\n")), None);
    assert_eq!(spot(&directory.file("gone", 0o755, b"#!/nonexistent\n")), None);
    assert_eq!(spot(&directory.file("nothing", 0o755, b"#!\n")), None);
}

#[test]
fn privileges_count_where_they_are_gained() {
    let directory = Directory::new("privileged");
    let path = directory.file("program", 0o755, b"");
    let metadata = path.metadata().unwrap();
    let (user, group) = (metadata.uid(), metadata.gid());
    assert_eq!(privileged(&metadata, user, group, false), None);
    let spot = privileged(&metadata, user, group, true);
    assert_eq!(spot, Some(BlindSpot::Privileged("file capabilities")));

    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o6755)).unwrap();
    let metadata = path.metadata().unwrap();
    assert_eq!(privileged(&metadata, user, group, false), None);
    let spot = privileged(&metadata, user.wrapping_add(1), group, false);
    assert_eq!(spot, Some(BlindSpot::Privileged("the set-user-ID bit")));
    let spot = privileged(&metadata, user, group.wrapping_add(1), false);
    assert_eq!(spot, Some(BlindSpot::Privileged("the set-group-ID bit")));
}

#[test]
fn a_program_is_found_as_a_shell_finds_it() {
    let (first, second) = (Directory::new("first"), Directory::new("second"));
    first.file("tool", 0o644, b"");
    let tool = second.file("tool", 0o755, b"");
    first.file("notes", 0o644, b"");
    let path = std::env::join_paths([&first.0, &second.0]).unwrap();
    let find = |name: &str| find_in(OsStr::new(name), &path);

    // A file that may not be executed does not hide one further on that may.
    assert_eq!(find("tool").unwrap().path, tool);
    assert_eq!(find("notes").unwrap_err().code(), 126);
    assert_eq!(find("missing").unwrap_err().code(), 127);
    assert_eq!(find("/nonexistent/tool").unwrap_err().code(), 127);
    assert_eq!(find("").unwrap_err().code(), 2);
    assert_eq!(find(first.0.to_str().unwrap()).unwrap_err().code(), 126);
    for name in ["notes", "missing", "/nonexistent/tool", "/"] {
        assert!(!find(name).unwrap_err().message().contains('\n'));
    }
}
