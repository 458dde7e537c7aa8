//! Types are found in a file of any sort, or one line gives the reason why not.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::btf::{Writer, one_of_each};
use crate::support::elf::elf;
use crate::support::image::{bz_image, efi_image};
use crate::support::{folder, have};
use ledgerline_layout::{Options, Prefer, Source, open, open_with};

const X86_64: u16 = 62;

/// The programs that pack, with arguments for the output format of the kernel's build.
const PACKERS: [(&str, &[&str]); 7] = [
    ("gzip", &["-9", "-n", "-c"]),
    ("xz", &["--check=crc32", "--x86", "--lzma2=dict=32MiB", "-c"]),
    ("xz", &["-6", "-c"]),
    ("xz", &["--format=lzma", "-c"]),
    ("zstd", &["-22", "--ultra", "--long=27", "-q", "-c"]),
    ("lz4", &["-l", "-9", "-q", "-c"]),
    ("lz4", &["-q", "-c"]),
];

fn packed(program: &str, arguments: &[&str], data: &[u8]) -> Vec<u8> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let output = std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(data).unwrap());
        child.wait_with_output().unwrap()
    });
    assert!(output.status.success(), "{program}");
    output.stdout
}

/// Returns BTF with a type of each kind, in an ELF file behind `code` bytes of code, like a kernel's.
fn kernel(code: u32) -> Vec<u8> {
    let code: Vec<u8> = (0..code).map(|at| (at >> 12) as u8 ^ (at % 251) as u8).collect();
    elf(X86_64, &[(".text", &code), (".BTF", &one_of_each(Writer::new()).bytes())])
}

fn written(folder: &Path, name: &str, data: &[u8]) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, data).unwrap();
    path
}

/// Returns the names of the named records.
fn records(path: &Path, options: &Options) -> Vec<String> {
    let opened = open_with(path, options).unwrap();
    assert_eq!(opened.source, Source::Btf);
    let names =
        opened.types.records().map(|(_, record)| opened.types.name(record.name).to_string());
    names.filter(|name| !name.is_empty()).collect()
}

fn refused(path: &Path) -> String {
    let error = open(path).unwrap_err();
    assert_eq!(error.file(), Some(path));
    let said = error.to_string();
    assert_eq!(said.lines().count(), 1, "{said}");
    said.strip_prefix(&format!("{}: ", path.display())).expect("begins with the file").to_string()
}

const ALL: [&str; 4] = ["list_head", "all", "fields", "old_fields"];

#[test]
fn btf_is_found_by_content_in_whatever_it_is_packed() {
    let folder = folder("btf_is_found");
    let raw = one_of_each(Writer::new()).bytes();
    assert_eq!(records(&written(&folder, "raw", &raw), &Options::default()), ALL);
    let small = kernel(1 << 18);
    // This is more than a block of lz4.
    let large = kernel(9 << 20);
    assert_eq!(records(&written(&folder, "elf", &small), &Options::default()), ALL);
    let image = written(&folder, "unpacked", &bz_image(4, &small));
    assert_eq!(records(&image, &Options::default()), ALL);
    for (index, (program, arguments)) in PACKERS.into_iter().enumerate() {
        if !have(program) {
            continue;
        }
        let kernel = if program == "lz4" { &large } else { &small };
        let mut payload = packed(program, arguments, kernel);
        let file = written(&folder, &format!("packed{index}"), &payload);
        assert_eq!(records(&file, &Options::default()), ALL, "{program} {arguments:?}");
        // The kernel's build puts the size behind the packed data, except with gzip, which does so itself.
        if program != "gzip" {
            payload.extend((kernel.len() as u32).to_le_bytes());
        }
        for (name, image) in [
            ("bz", bz_image(27, &payload)),
            ("old", bz_image(0, &payload)),
            ("efi", efi_image(&payload)),
        ] {
            let file = written(&folder, &format!("{name}{index}"), &image);
            assert_eq!(
                records(&file, &Options::default()),
                ALL,
                "{program} {arguments:?} in {name}"
            );
        }
    }
}

#[test]
fn a_kernel_without_sections_is_searched_for_its_btf() {
    let folder = folder("a_kernel_without");
    let mut small = Writer::new();
    small.int("int", 4);
    let mut kernel = vec![0; 0x1000];
    kernel[0x38..0x3c].copy_from_slice(b"ARM\x64");
    assert_eq!(refused(&written(&folder, "none", &kernel)), "is a kernel without BTF");
    // There are the BTF of a BPF program, the kernel's own, and a few words that begin like BTF.
    for bytes in
        [small.bytes(), one_of_each(Writer::new()).bytes(), vec![0x9f, 0xeb, 1, 0, 24, 0, 0, 0]]
    {
        kernel.extend(bytes);
        kernel.resize(kernel.len().next_multiple_of(64), 0);
    }
    assert_eq!(records(&written(&folder, "Image", &kernel), &Options::default()), ALL);
    let packed = efi_image(&flate2_packed(&kernel));
    assert_eq!(records(&written(&folder, "vmlinuz.efi", &packed), &Options::default()), ALL);
}

#[test]
fn a_module_finds_its_base_within_it_beside_it_or_where_it_is_told() {
    let folder = folder("a_module_finds");
    let base = one_of_each(Writer::new());
    let mut module = Writer::split(&base);
    module.structure("device", 24, &[("list", 5, 0), ("id", 1, 128)]);
    let (base, module) = (base.bytes(), module.bytes());
    // The base is named.
    let kernel = written(&folder, "kernel", &bz_image(4, &elf(X86_64, &[(".BTF", &base)])));
    let object = written(&folder, "module.ko", &elf(X86_64, &[(".BTF", &module)]));
    let told = Options { base: Some(kernel), ..Options::default() };
    assert_eq!(records(&object, &told), ["device"]);
    assert!(refused(&object).contains("name the kernel's as its base"));
    // The base is within the file.
    let object =
        written(&folder, "own.ko", &elf(X86_64, &[(".BTF", &module), (".BTF.base", &base)]));
    assert_eq!(records(&object, &Options::default()), ["device"]);
    // The base is beside the file, as in /sys/kernel/btf.
    let beside = folder.join("beside");
    fs::create_dir(&beside).unwrap();
    written(&beside, "vmlinux", &base);
    let raw = written(&beside, "module", &module);
    assert_eq!(records(&raw, &Options::default()), ["device"]);
    // An error names a base that has no BTF.
    let text = written(&folder, "text", b"text");
    let wrong = Options { base: Some(text.clone()), ..Options::default() };
    let error = open_with(&raw, &wrong).unwrap_err();
    assert_eq!(error.to_string(), format!("{}: has no BTF to build on", text.display()));
}

#[test]
fn what_cannot_be_read_is_said_in_one_line() {
    let folder = folder("what_cannot");
    let kernel = kernel(2 << 20);
    let advice = "name a program, a library, an object file, an archive, vmlinux, vmlinuz or /sys/kernel/btf/vmlinux";
    let none = format!(
        "is neither BTF nor ELF nor an archive nor a kernel image, nor one of these compressed; {advice}"
    );
    let gzip = {
        let mut data = flate2_packed(&kernel);
        data.truncate(data.len() / 2);
        data
    };
    let mut old = bz_image(4, &kernel);
    old[0x206..0x208].copy_from_slice(&0x207u16.to_le_bytes());
    let mut cut = bz_image(4, &kernel);
    cut.truncate(1 << 20);
    let lzo = bz_image(4, b"\x89LZO\0");
    let cases: [(&str, &[u8], &str); 10] = [
        ("empty", b"", &none),
        ("text", b"hello", &none),
        ("elf", b"\x7fELF", "is a damaged ELF file ("),
        ("bzip2", b"BZh91AY", "is packed with bzip2, which is not read; unpack it with bzip2"),
        ("gzip", &gzip, "its gzip data cannot be unpacked: "),
        ("xz", b"\xfd7zXZ\0\0\0\0\0\0\0\0\0", "its xz data cannot be unpacked: "),
        ("old", &old, "is a kernel image of boot protocol 2.07, which does not say where"),
        ("cut", &cut, "the kernel image is cut off: 1048576 bytes are less than it says; copy it"),
        ("lzo", &lzo, "the kernel in this bzImage: is packed with lzop, which is not read; unpack"),
        ("odd", &bz_image(4, b"odd"), "the kernel in this bzImage: is packed in a way that is not"),
    ];
    for (name, data, expected) in cases {
        let said = refused(&written(&folder, name, data));
        assert!(said.starts_with(expected), "{name}: {said}");
    }
    assert!(refused(&folder).starts_with("is no regular file"));
    assert!(refused(&folder.join("absent")).starts_with("cannot be read ("));
    assert!(refused(Path::new("/dev/zero")).starts_with("is no regular file"));
}

fn flate2_packed(data: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn btf_is_taken_before_dwarf_only_when_asked_for() {
    let folder = folder("btf_is_taken");
    let btf = one_of_each(Writer::new()).bytes();
    let file = written(&folder, "both", &elf(X86_64, &[(".BTF", &btf), (".debug_info", b"lies")]));
    assert_eq!(records(&file, &Options { prefer: Prefer::Btf, base: None }), ALL);
    let dwarf = open(&file).map(|opened| opened.source);
    assert_ne!(dwarf.ok(), Some(Source::Btf));
}
