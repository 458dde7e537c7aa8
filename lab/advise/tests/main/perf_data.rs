//! A `perf.data` gives the same profile as the text of `perf script` of the same samples, and no bytes make the reader
//! panic.

use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::have::have;
use crate::support;
use crate::support::perf::{self, Event, How, PLAIN, Sample};
use ledgerline_advise::profile::{Kind, Known, Profile, Role};
use ledgerline_layout::model::Types;
use proptest::prelude::*;

const SCRIPT: &str = include_str!("../fixtures/script.txt");
const BASE: u64 = 0xffff_8881_00a4_c000;
const MANY: u64 =
    perf::IP | perf::TID | perf::TIME | perf::ADDR | perf::CPU | perf::PERIOD | perf::DATA_SRC;

fn read(bytes: &[u8], object: &str) -> Result<Profile, String> {
    read_of(bytes, object, None)
}

fn read_of(bytes: &[u8], object: &str, program: Option<&Path>) -> Result<Profile, String> {
    let mut types = Types::new(8);
    support::record(&mut types, "page_counter", support::COUNTER);
    support::record(&mut types, "page", "word[512]");
    let known = Known { types: Some(&types), objects: vec![object.parse().unwrap()], program };
    Profile::read(Cursor::new(bytes), "here", &known).map_err(|error| error.to_string())
}

fn of_counter(bytes: &[u8]) -> Result<Profile, String> {
    read(bytes, &format!("page_counter@{BASE:#x}"))
}

/// Returns whether two profiles are equal. Sums may differ in their last digit, since the order of terms does.
fn same(one: &Profile, other: &Profile) -> bool {
    let close = |one: f64, other: f64| (one - other).abs() <= 1e-9 * one.abs();
    let roles = |one: &Role, other: &Role| {
        let (one_of, of) = (&one.phases[0].accesses, &other.phases[0].accesses);
        one.name == other.name
            && close(one.share, other.share)
            && one_of.len() == of.len()
            && one_of.iter().zip(of).all(|(one, other)| {
                (&one.field, one.kind) == (&other.field, other.kind)
                    && close(one.times, other.times)
            })
    };
    one.types.len() == other.types.len()
        && one.types.iter().zip(&other.types).all(|(one, other)| {
            (&one.name, one.instances, one.roles.len())
                == (&other.name, other.instances, other.roles.len())
                && one.roles.iter().zip(&other.roles).all(|(one, other)| roles(one, other))
        })
}

fn event(name: &str, holds: u64) -> Event {
    Event { name: name.to_owned(), holds }
}

/// Returns all forms in which perf writes a file.
fn ways() -> impl Iterator<Item = How> {
    let ways = [(false, false), (false, true), (true, false), (true, true)];
    let packed = [None, Some(100), Some(60_000)];
    ways.into_iter().flat_map(move |(big, pipe)| packed.map(|packed| How { big, pipe, packed }))
}

/// Returns the samples of the fixture. Their text is beside it.
fn of_fixture() -> (Vec<Event>, Vec<Sample>) {
    let holds = MANY | perf::IDENTIFIER;
    let names = ["cpu/mem-loads,ldlat=30/P", "cpu/mem-stores/P", "l1d-miss"];
    let sample = |event, thread, cpu, address, period, source| Sample {
        event,
        thread,
        cpu,
        address,
        period,
        source,
    };
    let samples = vec![
        sample(0, 4711, 0, BASE + 0x20, 1000, 0x102_6810_0142),
        sample(0, 4711, 0, BASE, 1000, 0x14a_6a10_0142 | 2 << 24),
        sample(1, 4720, 1, BASE + 0x58, 2000, 0x508_0144),
        sample(0, 4713, 2, BASE + 0x68, 1000, 0x102_6810_0142),
        sample(0, 4713, 2, 0x7ffd_f139_1b0c, 1000, 0x102_6810_0142),
        sample(2, 4713, 2, BASE + 0x68, 1, 0x86_8800_0842),
    ];
    (names.map(|name| event(name, holds)).into(), samples)
}

#[test]
fn the_samples_of_a_text_say_the_same_in_every_form_of_file() {
    let text = of_counter(SCRIPT.as_bytes()).unwrap();
    let (events, samples) = of_fixture();
    for how in ways() {
        let profile = of_counter(&perf::file(how, &events, &samples));
        let profile = profile.unwrap_or_else(|error| panic!("{how:?}: {error}"));
        assert!(same(&text, &profile), "{how:?}: {}\nnot {}", profile.to_toml(), text.to_toml());
    }
}

/// Returns the line that `perf script` prints of a sample.
fn line(name: &str, sample: &Sample) -> String {
    let op = match sample.source & 0x1f {
        2 => "LOAD",
        4 => "STORE",
        8 => "PFETCH",
        _ => "N/A",
    };
    let lock = if sample.source >> 25 & 1 == 1 { "Yes" } else { "No" };
    let Sample { thread, cpu, address, period, source, .. } = sample;
    format!(
        "a {thread} [{cpu:03}] 3678.072400: {period} {name}: {address:x} {source:x} |OP {op}|LVL L1 hit|LCK {lock}|BLK N/A\n"
    )
}

fn samples() -> impl Strategy<Value = Vec<Sample>> {
    let op = prop::sample::select(vec![0u64, 1, 2, 4, 8]);
    let one = (0..3usize, 1..5u32, 0..4u32, 0..16u64, 0..3000u64, op, any::<bool>());
    let one = one.prop_map(|(event, thread, cpu, word, period, op, locked)| Sample {
        event,
        thread,
        cpu,
        address: BASE + 8 * word,
        period,
        source: 0x6810_0140 & !0x0300_001f | op | if locked { 2 } else { 1 } << 24,
    });
    prop::collection::vec(one, 1..40)
}

proptest! {
    #![proptest_config(crate::cases::few(file!(), 256))]
    #[test]
    fn a_file_says_what_the_text_of_its_samples_says(
        samples in samples(), big: bool, pipe: bool, packed in prop::option::of(20..3000usize),
        more in any::<u64>(), identified: bool,
    ) {
        let more = more & (perf::IP | perf::TIME | perf::STREAM_ID | perf::CALLCHAIN | perf::RAW | perf::WEIGHT);
        let told = if identified { perf::IDENTIFIER } else { perf::ID };
        // If the number is not first in a sample, the parts before it must be the same for all events.
        let holds = perf::TID | perf::ADDR | perf::CPU | perf::PERIOD | perf::DATA_SRC | more | told;
        let names = ["mem-loads", "mem-stores:ppp", "other"];
        let events: Vec<Event> = names.iter().map(|name| event(name, holds)).collect();
        let text: String = samples.iter().map(|sample| line(names[sample.event], sample)).collect();
        let bytes = perf::file(How { big, pipe, packed }, &events, &samples);
        match (of_counter(text.as_bytes()), of_counter(&bytes)) {
            (Ok(text), Ok(file)) => prop_assert!(same(&text, &file), "{}\n{}", text.to_toml(), file.to_toml()),
            (Err(text), Err(file)) => {
                let (text, file) = (text.split(';').next(), file.split(';').next());
                prop_assert_eq!(text, file);
            }
            (text, file) => prop_assert!(false, "{:?}\n{:?}", text, file),
        }
    }

    #[test]
    fn no_damage_makes_the_reader_fall(
        which in 0..12usize, at in any::<prop::sample::Index>(), cut in any::<prop::sample::Index>(),
        word in prop_oneof![any::<u64>(), Just(0), Just(u64::MAX), Just(1 << 60), 0..300u64], size in 1..9usize,
        again in any::<prop::sample::Index>(), truncate: bool,
    ) {
        let (events, samples) = of_fixture();
        let mut bytes = perf::file(ways().nth(which).unwrap(), &events, &samples);
        for at in [at, again] {
            let at = at.index(bytes.len());
            let end = bytes.len().min(at + size);
            bytes[at..end].copy_from_slice(&word.to_le_bytes()[..end - at]);
        }
        if truncate {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Err(error) = of_counter(&bytes) {
            prop_assert_eq!(error.lines().count(), 1, "{}", error);
        }
    }
}

#[test]
fn what_cannot_be_used_is_one_line_that_says_what_to_do() {
    let (events, samples) = of_fixture();
    let without = |what: u64| -> Vec<Event> {
        events.iter().map(|of| event("cycles", of.holds & !what)).collect()
    };
    let good = perf::file(PLAIN, &events, &samples);
    let patched = |at: usize, number: u64| {
        let mut bytes = good.clone();
        bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
        bytes
    };
    let mixed =
        vec![event("a", MANY | perf::IDENTIFIER), event("b", MANY | perf::ID), events[2].clone()];
    let bomb = perf::file(PLAIN, &events, &[]);
    let at = bomb.windows(8).position(|word| word == [68, 0, 0, 0, 0, 0, 8, 0]).unwrap();
    // Blocks of 128 KiB of one byte, in four bytes each.
    let mut blocks = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 0x38];
    (0..16_000).for_each(|_| blocks.extend([0x02, 0x00, 0x10, 0]));
    let mut record = [81u32.to_le_bytes(), [0; 4]].concat();
    record[6..].copy_from_slice(&(8 + blocks.len() as u16).to_le_bytes());
    record.extend(&blocks);
    // With sizes of zero, the rest is read to the end.
    let mut bomb = [&bomb[..at], &record].concat();
    bomb[48..56].fill(0);
    let cases: [(Vec<u8>, &str); 12] = [
        (
            perf::file(PLAIN, &without(perf::ADDR), &samples),
            "no sample has an address; record with `perf mem",
        ),
        (
            perf::file(PLAIN, &without(perf::DATA_SRC), &samples),
            "no sample says whether it is a load or a store",
        ),
        (perf::file(PLAIN, &mixed, &samples), "its samples do not say of which event they are"),
        (
            perf::file(PLAIN, &events, &[]),
            "its samples are in a trace that the processor wrote; perf decodes",
        ),
        (good[..60].to_vec(), "its header is cut off"),
        (good[..800].to_vec(), "it is cut off"),
        (patched(16, 0), "the descriptions of its events make no sense"),
        (
            patched(32, u64::MAX),
            "the descriptions of its events would be 18446744073709551615 bytes",
        ),
        (patched(32, 1 << 20), "the descriptions of its events are cut off"),
        (patched(40, u64::MAX), "its header says that it is longer than any file"),
        (patched(72, 0), "no sample hits"),
        (bomb, "far longer than perf's"),
    ];
    for (bytes, wanted) in cases {
        match of_counter(&bytes) {
            Err(error) => {
                assert!(error.contains(wanted), "{error}\nnot: {wanted}");
                assert_eq!(error.lines().count(), 1, "{error}");
            }
            // Without the section of names, the sources are enough.
            Ok(profile) => assert_eq!(wanted, "no sample hits", "{}", profile.to_toml()),
        }
    }
}

/// Records a program with perf, or prints why that is not possible.
fn record(path: &Path, options: &[&str], program: &[&str]) -> Option<PathBuf> {
    let mut perf = Command::new("perf");
    perf.args(["record", "-q", "--sample-cpu", "-d", "-c", "1", "-o"]).arg(path).args(options);
    let output = perf.arg("--").args(program).stdin(Stdio::null()).output().expect("perf runs");
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        eprintln!("skipped: perf cannot record: {}", said.lines().next().unwrap_or_default());
        return None;
    }
    if path == Path::new("-") {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("perf-data-piped");
        std::fs::write(&path, output.stdout).unwrap();
        return Some(path);
    }
    Some(path.to_owned())
}

#[test]
fn what_perf_records_says_what_perf_script_prints_of_it() {
    if !have("perf") {
        return;
    }
    let stores = "page-faults/name=page-stores/u";
    let loads = "minor-faults/name=page-loads/u";
    let path = |name: &str| Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let cases: [(PathBuf, &[&str]); 4] = [
        (path("perf-data-one"), &["-e", stores]),
        (path("perf-data-two"), &["-e", stores, "-e", loads, "-g"]),
        (path("perf-data-packed"), &["-z", "-e", stores, "-e", loads]),
        ("-".into(), &["-e", stores, "-e", loads]),
    ];
    for (path, options) in cases {
        let Some(path) = record(&path, options, &["true"]) else { continue };
        let script = ["script", "-F", "comm,tid,cpu,time,period,event,addr,data_src", "-i"];
        let output = Command::new("perf").args(script).arg(&path).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() || text.is_empty() {
            eprintln!("skipped: perf does not read what it wrote with {options:?}");
            continue;
        }
        // The object is at the first fault.
        let first = text.lines().find_map(|line| {
            let mut words = line.split_whitespace().skip_while(|word| !word.contains("page-"));
            u64::from_str_radix(words.nth(1)?, 16).ok()
        });
        let object = format!("page@{:#x}", first.unwrap() & !0xfff);
        let bytes = std::fs::read(&path).unwrap();
        let (text, file) = (read(text.as_bytes(), &object), read(&bytes, &object));
        let (text, file) = (text.unwrap(), file.unwrap_or_else(|e| panic!("{options:?}: {e}")));
        assert!(same(&text, &file), "{options:?}: {}\nnot {}", file.to_toml(), text.to_toml());
        // A truncated file is read or refused.
        for length in (0..bytes.len()).step_by(97) {
            let _ = read(&bytes[..length], &object);
        }
    }
}

/// Builds a program that has `counter` at the address in its file, and returns the address.
fn with_counter(name: &str, text: &str, flag: &str) -> Option<(PathBuf, u64)> {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let source = program.with_extension("c");
    std::fs::write(&source, format!("long counter[15];\n{text}")).unwrap();
    let gcc = Command::new("gcc").args(["-no-pie", flag, "-o"]).args([&program, &source]).status();
    if !gcc.unwrap().success() || !have("nm") {
        return None;
    }
    let names = Command::new("nm").arg(&program).output().unwrap().stdout;
    let names = String::from_utf8(names).unwrap();
    let counter = names.lines().find(|line| line.ends_with(" counter")).unwrap();
    Some((program, u64::from_str_radix(counter.split(' ').next().unwrap(), 16).unwrap()))
}

#[test]
fn a_breakpoint_that_only_stores_meet_says_so() {
    if !have("perf") || !have("gcc") {
        return;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let text =
        "int main(void) { for (volatile int i = 0; i < 50; i++) counter[2] += i; return 0; }\n";
    // Its address is the same in each run.
    let Some((program, counter)) = with_counter("stores", text, "-no-pie") else { return };
    let event = format!("mem:{:#x}/8:wu", counter + 16);
    let path = folder.join("perf-data-stores");
    let Some(path) = record(&path, &["-e", &event], &[program.to_str().unwrap()]) else { return };
    let bytes = std::fs::read(path).unwrap();
    let profile = read(&bytes, &format!("page_counter@{counter:#x}")).unwrap();
    assert_eq!(profile.types[0].times("low", Kind::Store), 1.0, "{}", profile.to_toml());
}

/// Symbols of this program: the first is named by its plain name, the second by its Rust path.
#[unsafe(no_mangle)]
static mut LEDGERLINE_PROBE: [u64; 512] = [1; 512];
static mut OTHER_PROBE: [u64; 512] = [1; 512];

/// Returns where this process has the text of this program: the address, and the offset in the file.
fn own_text(program: &Path) -> (u64, u64) {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let text = maps
        .lines()
        .find(|line| line.contains(" r-xp ") && line.ends_with(&*program.to_string_lossy()));
    let words: Vec<&str> = text.expect("this runs").split_whitespace().collect();
    let number = |word: &str| u64::from_str_radix(word, 16).unwrap();
    (number(words[0].split('-').next().unwrap()), number(words[2]))
}

#[test]
fn an_object_at_a_symbol_is_where_each_process_had_loaded_the_program() {
    use perf::Said::{Forked, Mapped, MappedTwo};
    let program = std::env::current_exe().unwrap().canonicalize().unwrap();
    let name = program.to_string_lossy().into_owned();
    let (text, offset) = own_text(&program);
    let probe = (&raw const LEDGERLINE_PROBE) as u64;
    let events = [event("mem-stores", MANY)];
    let sample =
        |address| Sample { event: 0, thread: 4720, cpu: 1, address, period: 1, source: 0x508_0144 };
    let samples = [sample(probe + 0x20), sample(probe + 8 * 512), sample(probe - 1)];
    // The samples are of process 4711.
    let elsewhere = |name: &str| format!("/gone/{}", name.rsplit('/').next().unwrap());
    let processes = [
        vec![MappedTwo(4711, text, offset, name.clone())],
        vec![Mapped(4711, text, offset, name.clone())],
        // Another file, another process, and a file that has moved since.
        vec![
            Mapped(4711, text + 0x10_0000, offset, "/lib/libc.so.6".into()),
            MappedTwo(4712, text + 0x20_0000, offset, name.clone()),
            MappedTwo(4711, text, offset, elsewhere(&name)),
        ],
        // A grandchild of the process that loaded it, and a process that executed it again.
        vec![
            MappedTwo(4000, text, offset, name.clone()),
            Forked(4500, 4000),
            Forked(4711, 4500),
            MappedTwo(4500, text + 0x30_0000, offset, "/bin/sh".into()),
        ],
        vec![
            MappedTwo(4000, text + 0x40_0000, offset, name.clone()),
            Forked(4711, 4000),
            MappedTwo(4711, text, offset, name.clone()),
        ],
        // A process that executed it twice.
        vec![
            MappedTwo(4711, text + 0x7000, offset, name.clone()),
            MappedTwo(4711, text, offset, name.clone()),
        ],
    ];
    for processes in &processes {
        for how in ways() {
            let bytes = perf::file_of(how, &events, &samples, processes);
            let profile = read_of(&bytes, "page@LEDGERLINE_PROBE", Some(&program));
            let profile = profile.unwrap_or_else(|error| panic!("{how:?} {processes:?}: {error}"));
            let accesses = &profile.types[0].roles[0].phases[0].accesses;
            assert_eq!((accesses.len(), &*accesses[0].field), (1, "word[4]"), "{processes:?}");
            let behind = read_of(&bytes, "page@LEDGERLINE_PROBE+0x18", Some(&program)).unwrap();
            let fields = &behind.types[0].roles[0].phases[0].accesses;
            let fields: Vec<&str> = fields.iter().map(|access| &*access.field).collect();
            assert_eq!(fields, ["word[1]", "word[509]"], "{processes:?}");
        }
    }
    let other = (&raw const OTHER_PROBE) as u64;
    let bytes = perf::file_of(PLAIN, &events, &[sample(other + 8)], &processes[0]);
    let object = concat!("page@", module_path!(), "::OTHER_PROBE");
    let profile = read_of(&bytes, object, Some(&program)).unwrap();
    assert_eq!(profile.types[0].times("word[1]", Kind::Store), 1.0, "{}", profile.to_toml());
    let told = |processes: &[perf::Said], object: &str, program: Option<&Path>| {
        read_of(&perf::file_of(PLAIN, &events, &samples, processes), object, program).unwrap_err()
    };
    let none = told(
        &[Mapped(4711, text, offset, "/bin/sh".into())],
        "page@LEDGERLINE_PROBE",
        Some(&program),
    );
    assert!(none.contains("no process in it had loaded the program"), "{none}");
    let near = told(&processes[0], "page@LEDGERLINE_PROBES", Some(&program));
    assert!(
        near.contains("has no symbol `LEDGERLINE_PROBES`; did you mean `LEDGERLINE_PROBE`"),
        "{near}"
    );
    let unknown = told(&processes[0], "page@LEDGERLINE_PROBE", None);
    assert!(unknown.contains("is a symbol"), "{unknown}");
    // Only another process had it.
    let others = told(&[Mapped(4712, text, offset, name)], "page@LEDGERLINE_PROBE", Some(&program));
    assert!(others.contains("none of its 3 samples hit"), "{others}");
    let text = read_of(SCRIPT.as_bytes(), "page@LEDGERLINE_PROBE", Some(&program)).unwrap_err();
    assert!(text.contains("give the perf.data itself"), "{text}");
}

#[test]
fn an_object_of_a_kernel_is_where_its_text_says() {
    if !have("gcc") || !have("nm") {
        return;
    }
    let (text, flag) = ("int main(void) { return 0; }\n", "-Wl,--defsym=_text=0xffffffff81000000");
    let (program, counter) = with_counter("vmlinux", text, flag).expect("it is compiled");
    let slide = 1 << 63 | 0x12_3000;
    let events = [event("mem-stores", MANY)];
    let address = counter + 16 + slide;
    let samples = [Sample { event: 0, thread: 1, cpu: 1, address, period: 1, source: 0x508_0144 }];
    let text = 0xffff_ffff_8100_0000_u64.wrapping_add(slide);
    let said = perf::Said::Mapped(u32::MAX, text, text, "[kernel.kallsyms]_text".into());
    let bytes = perf::file_of(PLAIN, &events, &samples, &[said]);
    let profile = read_of(&bytes, "page_counter@counter", Some(&program)).unwrap();
    assert_eq!(profile.types[0].times("low", Kind::Store), 1.0, "{}", profile.to_toml());
}

#[test]
fn a_real_program_that_is_loaded_anywhere_has_its_objects_at_symbols() {
    if !have("perf") || !have("gcc") {
        return;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (source, program) = (folder.join("anywhere.c"), folder.join("anywhere"));
    let text = "#include <unistd.h>\n#include <sys/wait.h>\n\
                static char area[16 << 12] __attribute__((aligned(4096)));\n\
                int main(void) {\n\
                    for (volatile int i = 0; i < 4; i++) area[i << 12] = 1;\n\
                    if (fork() == 0) { area[9 << 12] = 1; _exit(0); }\n\
                    wait(0);\n    return 0;\n}\n";
    std::fs::write(&source, text).unwrap();
    let gcc = Command::new("gcc").args(["-pie", "-fPIE", "-o"]).args([&program, &source]).status();
    assert!(gcc.unwrap().success());
    let path = folder.join("perf-data-anywhere");
    let options = ["-e", "page-faults/name=page-stores/u"];
    let Some(path) = record(&path, &options, &[program.to_str().unwrap()]) else { return };
    let bytes = std::fs::read(path).unwrap();
    // The parent touched page 3, the child page 9. Page 10 was not touched.
    for (page, touched) in [(3, true), (9, true), (10, false)] {
        let object = format!("page@area+{:#x}", page << 12);
        let profile = read_of(&bytes, &object, Some(&program));
        assert_eq!(profile.is_ok(), touched, "page {page}: {profile:?}");
    }
}
