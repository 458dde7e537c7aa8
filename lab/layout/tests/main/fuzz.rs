//! No reader panics, hangs or takes memory without bound, for any bytes.
//!
//! Each target runs for a second, or for `LEDGERLINE_FUZZ_SECONDS`. Bytes that make one fail are written to a file,
//! and the test names it.

use crate::seed;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::btf::{Writer, one_of_each};
use crate::support::compile::compile;
use crate::support::elf::elf;
use crate::support::image::{bz_image, efi_image};
use crate::support::{folder, have};
use ledgerline_layout::fuzz;
use proptest::prelude::*;

/// A small generator of numbers, which are the same in each run unless the test runs longer.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

/// Words that tend to provoke mistakes.
const TELLING: [u32; 12] = [
    0,
    1,
    4,
    7,
    0xff,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_fff0,
    u32::MAX,
    0x84ff_ffff,
    0x0400_0001,
];

/// Changes a few places of `data`, and sometimes its length.
fn mutate(random: &mut Random, data: &mut Vec<u8>, other: &[u8]) {
    for _ in 0..1 + random.below(6) {
        if data.is_empty() {
            return;
        }
        let at = random.below(data.len());
        match random.below(8) {
            0 => data[at] ^= 1 << random.below(8),
            1 => data[at] = random.next() as u8,
            2 => data.truncate(at),
            3 => {
                let length = random.below(64).min(data.len() - at);
                let copy = data[at..at + length].to_vec();
                let to = random.below(data.len());
                data.splice(to..to, copy);
            }
            4 => {
                let start = random.below(other.len());
                let length = random.below(256).min(other.len() - start).min(data.len() - at);
                data[at..at + length].copy_from_slice(&other[start..start + length]);
            }
            kind => {
                let at = at & !3;
                let word = if kind == 5 {
                    TELLING[random.below(TELLING.len())]
                } else {
                    // The new value is near the old one: the number of another type, a place one bit on.
                    let old = data
                        .get(at..at + 4)
                        .map_or(0, |word| u32::from_le_bytes(word.try_into().unwrap()));
                    old.wrapping_add(random.below(17) as u32).wrapping_sub(8)
                };
                if let Some(place) = data.get_mut(at..at + 4) {
                    place.copy_from_slice(&word.to_le_bytes());
                }
            }
        }
    }
}

/// Mutates `seeds` and calls `target` on them until the time is over.
fn fuzz(name: &str, seeds: &[Vec<u8>], target: fn(&[u8])) {
    let seconds =
        std::env::var("LEDGERLINE_FUZZ_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    let end =
        Instant::now() + Duration::from_secs(seconds.unwrap_or(if seed::long() { 60 } else { 1 }));
    // Longer runs see other inputs than ordinary test runs.
    let fixed = 0x9e37_79b9_7f4a_7c15;
    let mut random = Random(if seconds.is_some() { seed::new() | 1 } else { seed::seed(fixed) });
    let mut runs = 0u64;
    for seed in seeds {
        target(seed);
    }
    while Instant::now() < end {
        let mut data = seeds[random.below(seeds.len())].clone();
        let other = random.below(seeds.len());
        mutate(&mut random, &mut data, &seeds[other]);
        let start = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| target(&data)));
        if outcome.is_err() || start.elapsed() > Duration::from_secs(60) {
            let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.failed"));
            std::fs::write(&path, &data).unwrap();
            panic!("{name} fails on {}", path.display());
        }
        runs += 1;
    }
    println!("{name}: {runs} runs");
}

fn btf_seeds() -> Vec<Vec<u8>> {
    let base = one_of_each(Writer::new());
    let mut module = Writer::split(&base);
    module.structure("device", 24, &[("list", 5, 0), ("id", 1, 128)]);
    let mut future = base.clone();
    future.common("future", 20, false, 0, 0);
    vec![
        base.bytes(),
        one_of_each(Writer::big_endian()).bytes(),
        [base.bytes(), module.bytes()].concat(),
        future.bytes_with(&[(0, 0); 21], 32),
    ]
}

#[test]
fn no_btf_makes_its_reader_panic() {
    fuzz("btf", &btf_seeds(), fuzz::btf);
}

#[test]
fn no_change_to_the_btf_of_the_running_kernel_makes_its_reader_panic() {
    let Ok(kernel) = std::fs::read("/sys/kernel/btf/vmlinux") else {
        println!("skipped: there is no /sys/kernel/btf/vmlinux here");
        return;
    };
    fuzz("kernel", &[kernel], fuzz::btf);
}

#[test]
fn no_image_makes_its_reader_panic() {
    use std::io::Write;
    let btf = one_of_each(Writer::new()).bytes();
    let kernel = elf(62, &[(".text", &[0x90; 3000]), (".BTF", &btf)]);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gzip.write_all(&kernel).unwrap();
    let mut seeds = vec![kernel.clone(), gzip.finish().unwrap()];
    seeds.push(ruzstd::encoding::compress_to_vec(
        &*kernel,
        ruzstd::encoding::CompressionLevel::Fastest,
    ));
    let frame = lz4_flex::frame::FrameInfo::new();
    for frame in [frame.clone(), frame.legacy_frame(true)] {
        let mut lz4 = lz4_flex::frame::FrameEncoder::with_frame_info(frame, Vec::new());
        lz4.write_all(&kernel).unwrap();
        seeds.push(lz4.finish().unwrap());
    }
    // The programs pack these, since the crate for xz is built without its encoder.
    for arguments in [["--x86", "--lzma2=dict=4KiB"], ["--format=lzma", "-6"]] {
        if have("xz") {
            let folder = folder("no_image");
            let file = folder.join("kernel");
            std::fs::write(&file, &kernel).unwrap();
            let xz = std::process::Command::new("xz")
                .args(arguments)
                .arg("-c")
                .arg(&file)
                .output()
                .unwrap();
            seeds.push(xz.stdout);
        }
    }
    let mut flat = vec![0; 0x40];
    flat[0x38..0x3c].copy_from_slice(b"ARM\x64");
    seeds.push([flat, btf.clone(), btf].concat());
    for index in 0..seeds.len() {
        seeds.push(bz_image(4, &seeds[index]));
        seeds.push(efi_image(&seeds[index]));
    }
    fuzz("image", &seeds, fuzz::image);
}

/// Returns small programs in every form of DWARF that the compilers here write.
fn dwarf_seeds() -> Vec<Vec<u8>> {
    let folder = folder("fuzz-dwarf");
    let c = "struct node { struct node *next; int a : 3; unsigned long long b : 40; char rest[]; };
        typedef struct { union { int a; double b; }; struct later *l; _Atomic long c[2][3]; } both;
        struct node n; both b; float __attribute__((vector_size(16))) v; _Complex double z;";
    let cpp = "struct A { virtual ~A() {} int a; }; struct B : virtual A { char b; int A::*p; void (B::*f)(); };
        namespace n { namespace { template <typename T> struct C : B { T t[4]; static int s; }; } }
        namespace n { C<long> c; } enum class E : char { e }; struct O { struct I; I *i; E e; }; struct O::I { int z; }; O o; O::I i;";
    let rust = "#![crate_type = \"lib\"] pub enum E { A(u8, u32), B { x: Option<Box<u64>> }, C }
        #[unsafe(no_mangle)] pub fn make(e: E, t: (u8, char), o: &[Option<&str>]) -> usize { drop(e); t.0 as usize + o.len() }";
    for (name, text) in [("c.c", c), ("cpp.cpp", cpp), ("rust.rs", rust)] {
        std::fs::write(folder.join(name), text).unwrap();
    }
    let mut seeds = Vec::new();
    for (compiler, arguments) in [
        ("gcc", &["-c", "c.c", "-gdwarf-5"][..]),
        ("gcc", &["-c", "c.c", "-gdwarf-4", "-fdebug-types-section"]),
        ("gcc", &["-c", "c.c", "-gdwarf-5", "-fdebug-types-section", "-gz"]),
        ("gcc", &["-c", "c.c", "-gdwarf-2", "-m32"]),
        ("g++", &["-c", "cpp.cpp", "-gdwarf-5"]),
        ("g++", &["-c", "cpp.cpp", "-gdwarf-4", "-fdebug-types-section"]),
        ("rustc", &["rust.rs", "--edition=2024", "--emit=obj", "-g"]),
        ("rustc", &["rust.rs", "--edition=2024", "--emit=obj", "-g", "-Cdwarf-version=5"]),
    ] {
        if compile(compiler, &folder, &[arguments, &["-o", "seed.o"]].concat()).is_some() {
            seeds.push(std::fs::read(folder.join("seed.o")).unwrap());
        }
    }
    // A split file is read like a file of its own.
    if compile("gcc", &folder, &["-c", "c.c", "-g", "-gsplit-dwarf", "-o", "split.o"]).is_some() {
        seeds.push(std::fs::read(folder.join("split.dwo")).unwrap());
    }
    seeds
}

#[test]
fn no_change_to_dwarf_makes_its_reader_panic() {
    let seeds = dwarf_seeds();
    if !seeds.is_empty() {
        fuzz("dwarf", &seeds, fuzz::dwarf);
    }
}

proptest! {
    #![proptest_config(crate::cases::few(file!(), 300))]

    #[test]
    fn no_bytes_make_a_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        fuzz::btf(&bytes);
        fuzz::image(&bytes);
        fuzz::dwarf(&bytes);
    }

    #[test]
    fn no_bytes_behind_a_good_header_make_a_reader_panic(
        types in proptest::collection::vec(
            prop_oneof![Just(0u32), 0..40u32, any::<u32>(), (0..20u32, 0..4u32).prop_map(|(kind, parts)| kind << 24 | parts)],
            0..120,
        ),
        names in proptest::collection::vec(any::<u8>(), 0..40),
    ) {
        let mut writer = Writer::new();
        for word in types {
            writer.word(word);
        }
        writer.names.extend(names);
        writer.names.push(0);
        fuzz::btf(&writer.bytes());
        fuzz::image(&elf(62, &[(".BTF", &writer.bytes())]));
    }

    #[test]
    fn no_sections_make_the_reader_of_dwarf_panic(
        info in proptest::collection::vec(any::<u8>(), 0..200),
        abbreviations in proptest::collection::vec(0u8..0x80, 0..200),
        names in proptest::collection::vec(any::<u8>(), 0..60),
    ) {
        // The header is right, so that the reader looks at what follows.
        let mut unit = ((info.len() + 8) as u32).to_le_bytes().to_vec();
        unit.extend([5, 0, 1, 8, 0, 0, 0, 0]);
        unit.extend(&info);
        let sections = [(".debug_info", &*unit), (".debug_abbrev", &*abbreviations), (".debug_str", &*names)];
        fuzz::dwarf(&elf(62, &sections));
    }
}
