//! Tests of the inspection, on generated files and on real programs.

use super::*;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path =
            std::env::temp_dir().join(format!("ledgerline-blind-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Directory(path)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn spot(path: &Path) -> Option<Blind> {
    spot_of(path, Serves::Glibc)
}

fn spot_of(path: &Path, serves: Serves) -> Option<Blind> {
    of(&CString::new(path.as_os_str().as_bytes()).unwrap(), serves).unwrap_or_default()
}

// The few fields of an ELF file of the 64-bit class that matter here.
const MACHINE: usize = 18;
const PROGRAM_HEADERS: usize = 32;
const PROGRAM_HEADER_SIZE: usize = 54;
const PROGRAM_HEADER_COUNT: usize = 56;
const HEADER_LENGTH: usize = 64;
/// The type of the program header that names the dynamic loader.
const INTERP: u32 = 3;

/// Returns the start of an ELF file with one program header of the type `kind`, which names `loader`.
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

#[cfg(target_arch = "x86_64")]
#[test]
fn an_elf_file_says_what_it_is() {
    const LOAD: u32 = 1;
    let directory = Directory::new("elf");
    for (name, bytes, expected) in [
        ("dynamic", elf_file(2, 62, INTERP, b"/lib64/ld-linux-x86-64.so.2\0"), None),
        ("static", elf_file(2, 62, LOAD, b""), Some(Blind::Static)),
        ("musl", elf_file(2, 62, INTERP, b"/lib/ld-musl-x86_64.so.1\0"), Some(Blind::OtherLibc)),
        ("narrow", elf_file(1, 3, INTERP, b"/lib/ld-linux.so.2\0"), Some(Blind::OtherArchitecture)),
        ("foreign", elf_file(2, 183, INTERP, b"/lib/ld.so\0"), Some(Blind::OtherArchitecture)),
        // Too short, or not ELF at all: the kernel decides.
        ("text", b"echo hello\n".to_vec(), None),
        ("magic", b"\x7fELF".to_vec(), None),
        ("empty", Vec::new(), None),
    ] {
        assert_eq!(spot(&directory.file(name, &bytes)), expected, "{name}");
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_program_of_a_c_library_that_is_not_served_is_told_by_its_loader() {
    let directory = Directory::new("libc");
    let file = |name, loader| directory.file(name, &elf_file(2, 62, INTERP, loader));
    let glibc = file("glibc", b"/lib64/ld-linux-x86-64.so.2\0");
    let musl = file("musl", b"/lib/ld-musl-x86_64.so.1\0");
    let script = |name, of: &Path| directory.file(name, format!("#!{}\n", of.display()).as_bytes());
    let (of_glibc, of_musl) = (script("of_glibc", &glibc), script("of_musl", &musl));
    for (serves, glibc_is, musl_is) in [
        (Serves::Glibc, None, Some(Blind::OtherLibc)),
        (Serves::Musl, Some(Blind::OtherLibc), None),
        (Serves::Both, None, None),
    ] {
        for (path, expected) in
            [(&glibc, glibc_is), (&of_glibc, glibc_is), (&musl, musl_is), (&of_musl, musl_is)]
        {
            assert_eq!(spot_of(path, serves), expected, "{serves:?} {}", path.display());
        }
    }
    assert_eq!((Serves::built_for(true), Serves::built_for(false)), (Serves::Both, Serves::Musl));
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_script_is_judged_by_its_interpreter() {
    let directory = Directory::new("script");
    let interpreter = directory.file("interpreter", &elf_file(2, 62, 1, b""));
    let line = format!("#! {} -x\nbody\n", interpreter.display());
    assert_eq!(spot(&directory.file("static", line.as_bytes())), Some(Blind::Static));
    assert_eq!(spot(&directory.file("shell", b"#!/bin/sh\n")), None);
    assert_eq!(spot(&directory.file("gone", b"#!/nonexistent\n")), None);
    assert_eq!(spot(&directory.file("nothing", b"#!\n")), None);
    assert_eq!(of(c"/nonexistent/program", Serves::Both), Err(Unread));
    let path = directory.file("unread", b"#! /nonexistent/interpreter\n");
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    assert_eq!(of(&path, Serves::Both), Err(Unread));
    let long = format!("#!/{}\n", "x".repeat(400));
    assert_eq!(spot(&directory.file("long", long.as_bytes())), None);
    assert_eq!(spot(Path::new("/nonexistent")), None);
    assert_eq!(spot(&directory.0), None);
}

#[test]
fn privileges_count_where_they_are_gained() {
    let directory = Directory::new("privileged");
    let path = directory.file("program", b"");
    let status = || {
        let path = CString::new(path.as_os_str().as_bytes()).unwrap();
        File::open(&path).unwrap().status().unwrap()
    };
    let (user, group) = (status().st_uid, status().st_gid);
    assert!(!gains(&status(), user.wrapping_add(1), group.wrapping_add(1)));
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o6755)).unwrap();
    assert!(!gains(&status(), user, group));
    assert!(gains(&status(), user.wrapping_add(1), group));
    assert!(gains(&status(), user, group.wrapping_add(1)));
}

#[test]
fn this_very_program_is_an_ordinary_one_and_with_a_sanitizers_names_it_is_not() {
    let own = std::env::current_exe().unwrap();
    assert_eq!(spot(&own), None);
    let Ok(status) = std::process::Command::new("cc").arg("--version").output() else { return };
    assert!(status.status.success());
    let directory = Directory::new("sanitizer");
    // With -DRECORDED it calls the recorder's function.
    let source = directory.file(
        "main.c",
        b"#ifdef RECORDED\nvoid __tsan_init(void);\n#else\n#define __tsan_init()\n#endif\n\
          int main(void) { __tsan_init(); return 0; }\n",
    );
    let library = directory.file("record.c", b"void __tsan_init(void) {}\n");
    let mut compiler = std::process::Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o", "libledgerline_record.so"]).arg(&library);
    assert!(compiler.current_dir(&directory.0).status().unwrap().success());
    for (flags, expected) in [
        (&[][..], None),
        (&["-static"], Some(Blind::Static)),
        (&["-static-pie"], Some(Blind::Static)),
        (&["-fsanitize=address"], Some(Blind::Sanitizer)),
        (&["-fsanitize=thread"], Some(Blind::Sanitizer)),
        (&["-fsanitize=leak"], Some(Blind::Sanitizer)),
        // These replace no allocator.
        (&["-fsanitize=undefined"], None),
        (&["-DRECORDED", "-L."], None),
    ] {
        let program = directory.0.join("program");
        let mut compiler = std::process::Command::new("cc");
        compiler.current_dir(&directory.0).args(flags).arg("-o").arg(&program).arg(&source);
        if flags.contains(&"-DRECORDED") {
            compiler.arg("-lledgerline_record");
        }
        let built = compiler.output().unwrap();
        if built.status.success() {
            assert_eq!(spot(&program), expected, "{flags:?}");
        } else {
            eprintln!("skipped: cc {flags:?} builds nothing here");
        }
    }
}

#[test]
fn no_bytes_make_it_fail() {
    let mut state = crate::seed::seed(7);
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize
    };
    let directory = Directory::new("bytes");
    let sound = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    let sound = &sound[..sound.len().min(1 << 16)];
    for _ in 0..2_000 {
        let mut bytes = sound[..random() % sound.len()].to_vec();
        for _ in 0..1 + random() % 20 {
            // Most changes are in the headers.
            let end = if random() % 4 == 0 { bytes.len() } else { bytes.len().min(1024) };
            if end > 0 {
                bytes[random() % end] = random() as u8;
            }
        }
        let _ = spot(&directory.file("any", &bytes));
    }
}

#[test]
fn a_number_in_a_ledger_is_read_as_what_was_written() {
    for blind in Blind::ALL {
        assert_eq!(Blind::from_number(blind as i64), Some(blind));
    }
    assert_eq!(
        (Blind::from_number(0), Blind::from_number(Blind::ALL.len() as i64 + 1)),
        (None, None)
    );
}
