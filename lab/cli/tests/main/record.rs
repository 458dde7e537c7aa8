//! Tests of `ledgerline layout record` through the command line, on programs that are compiled as its help describes.

use crate::support::{self, have, scratch, stderr};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ledgerline_advise::profile::{Instances, Kind, Known, Profile};

/// Compiles a program with probes; `None` if there is no compiler.
fn program(source: &str) -> Option<PathBuf> {
    if !have("gcc") {
        return None;
    }
    let (object, path) = (scratch("program.o"), scratch("program"));
    let compiled = Command::new("gcc")
        .args(["-g", "-O2", "-fsanitize=thread", "-c", source, "-o"])
        .arg(&object)
        .status();
    assert!(compiled.unwrap().success(), "{source} does not compile");
    let library = support::recorder().parent().unwrap();
    let linked = Command::new("gcc")
        .arg(&object)
        .arg("-o")
        .arg(&path)
        .arg("-L")
        .arg(library)
        .args(["-lledgerline_record", "-lpthread"])
        .status();
    assert!(linked.unwrap().success(), "{object:?} does not link");
    Some(path)
}

/// Like `program`, but takes the text of the source.
fn program_of(text: &str) -> Option<PathBuf> {
    let source = scratch("program.c");
    std::fs::write(&source, text).unwrap();
    program(source.to_str().unwrap())
}

fn record(options: &[&str], program: &[&Path]) -> Output {
    support::lab()
        .args(["layout", "record"])
        .args(options)
        .arg("--")
        .args(program)
        .output()
        .expect("the command starts")
}

/// Replaces the measured work, which depends on the machine's load. The recorded accesses are exact.
fn state_the_work(profile: &str) {
    let recorded = std::fs::read_to_string(profile).unwrap();
    let timed = |line: &&str| line.starts_with("takes_ns = ") || line.starts_with("work_ns = ");
    assert!(recorded.lines().any(|line| timed(&line)), "it was measured");
    let stated = recorded.lines().filter(|line| !line.starts_with("recording_ns"));
    let stated = stated.map(|line| if timed(&line) { "work_ns = 5" } else { line });
    std::fs::write(profile, stated.collect::<Vec<_>>().join("\n")).unwrap();
}

const COUNTER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/page_counter.c");

#[test]
fn the_kernels_counter_is_recorded_as_its_source_reads() {
    let Some(path) = program(COUNTER) else { return };
    let profile = scratch("profile.toml");
    let options =
        ["--type", "page_counter", "--operation", "operation", "-o", profile.to_str().unwrap()];
    let output = record(&options, &[&path]);
    let errors = stderr(&output);
    assert!(output.status.success(), "{errors}");
    assert!(output.stdout.is_empty());
    assert!(
        errors.contains(
            "page_counter, 112 bytes: 1 object shared by several threads, 2 objects used by one \
             thread each; taken as one for all CPUs\n"
        ),
        "{errors}"
    );
    assert!(errors.contains("2 threads, 128000 operations"), "{errors}");
    assert!(errors.contains(" 3.125 %  usage max high watermark parent\n"), "{errors}");
    assert!(errors.contains("by their size, blocks from work (2)\n"), "{errors}");

    let profile = Profile::open(&profile, &Known::default()).expect("a profile");
    let counter = profile.of("page_counter").expect("the type");
    assert_eq!(counter.instances, Instances::Shared);
    assert_eq!((counter.roles.len(), counter.roles[0].share), (1, 1.0));
    // One operation in 32 charges and uncharges two levels.
    for (field, kind, times) in [
        ("usage", Kind::Atomic, 4.0),
        ("max", Kind::Load, 2.0),
        ("high", Kind::Load, 2.0),
        ("watermark", Kind::Load, 2.0),
        ("parent", Kind::Load, 4.0),
        ("watermark", Kind::Store, 0.0),
        ("failcnt", Kind::Store, 0.0),
        ("min", Kind::Load, 0.0),
    ] {
        assert_eq!(counter.times(field, kind), times / 32.0, "{field} {kind:?}");
    }
}

#[test]
fn what_is_recorded_of_the_kernels_counter_leads_to_the_kernels_own_repair() {
    let Some(path) = program(COUNTER) else { return };
    let profile = scratch("advice.toml");
    let profile = profile.to_str().unwrap();
    let options = ["--type", "page_counter", "--operation", "operation", "-o", profile];
    assert!(record(&options, &[&path]).status.success());
    state_the_work(profile);
    let advised = Command::new(support::binary())
        .args(["layout", "advise"])
        .arg(&path)
        .args(["page_counter", "--profile", profile, "--machine", "haswell-ep-2699v3"])
        .args(["--cpus", "72", "--points", "4", "--json"])
        .output()
        .unwrap();
    assert!(advised.status.success(), "{}", stderr(&advised));
    let text = String::from_utf8(advised.stdout).unwrap();
    let advice: serde_json::Value = serde_json::from_str(&text).unwrap();
    let members = advice["proposal"]["members"].as_array().unwrap_or_else(|| panic!("{advice:#}"));
    let line = |name: &str| {
        let member = members.iter().find(|member| member["name"] == name);
        member.and_then(|member| member["offset"].as_u64()).expect("it is proposed") / 64
    };
    for limit in ["max", "high", "watermark", "parent"] {
        assert_ne!(line(limit), line("usage"), "{advice:#}");
    }
}

/// Returns a program whose threads each count in their own element of an array.
fn counting(declared: &str, array: &str, freed: &str) -> String {
    format!(
        r#"
        #include <pthread.h>
        #include <stdlib.h>
        struct statistics {{ long hits, misses; long kept[3]; }};
        {declared}
        static struct statistics *all;
        __attribute__((noinline)) void count(struct statistics *mine, int what) {{
            volatile struct statistics *into = mine;
            if (what) into->hits++; else into->misses++;
        }}
        static void *work(void *number) {{
            for (int i = 0; i < 100000; i++) count(all + (long)number, i & 7);
            return 0;
        }}
        int main(void) {{
            pthread_t threads[4];
            all = {array};
            for (int i = 0; i < 4; i++) all[i].kept[0] = i;
            for (long i = 0; i < 4; i++) pthread_create(threads + i, 0, work, (void *)i);
            for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
            {freed};
        }}"#
    )
}

#[test]
fn elements_of_an_array_that_threads_write_side_by_side_are_told_to_lie_apart() {
    let fixed = "static struct statistics fixed[4];";
    for (declared, array, freed) in [
        (fixed, "fixed", ""),
        ("", "calloc(4, sizeof *all)", ""),
        ("", "calloc(4, sizeof *all)", "free(all)"),
    ] {
        let Some(path) = program_of(&counting(declared, array, freed)) else { return };
        let profile = scratch("row.toml");
        let profile = profile.to_str().unwrap();
        let output =
            record(&["--type", "statistics", "--operation", "count", "-o", profile], &[&path]);
        let errors = stderr(&output);
        let said = "4 objects used by one thread each; taken as one a CPU, 40 bytes apart";
        assert!(errors.contains(said), "{array} {freed}: {errors}");
        state_the_work(profile);
        let advise = |more: &[&str]| {
            let advised = support::lab()
                .args(["layout", "advise"])
                .arg(&path)
                .args(["statistics", "--profile", profile, "--machine", "haswell-ep-2699v3"])
                .args(["--cpus", "4", "--points", "4"])
                .args(more)
                .output()
                .unwrap();
            assert!(advised.status.success(), "{}", stderr(&advised));
            String::from_utf8(advised.stdout).unwrap()
        };
        let text = advise(&[]);
        assert!(text.contains("an object a CPU, 40 bytes apart"), "{text}");
        assert!(text.contains("of the object beside it"), "{text}");
        let advice: serde_json::Value = serde_json::from_str(&advise(&["--json"])).unwrap();
        // No field moves: each object begins a line or a pair of lines.
        let (align, size) = (&advice["proposal"]["align"], &advice["proposal"]["size"]);
        assert!((align == 64 || align == 128) && align == size, "{advice:#}");
    }
}

#[test]
fn elements_that_nobody_uses_do_not_hide_those_beside_them() {
    for freed in ["", "free(all)"] {
        let source = counting("", "calloc(8, sizeof *all)", freed)
            .replace("all + (long)number", "all + 2 * (long)number")
            .replace("all[i].kept", "all[2 * i].kept");
        let Some(path) = program_of(&source) else { return };
        let options = ["--type", "statistics", "--operation", "count", "-o", "-"];
        let output = record(&options, &[&path]);
        let errors = stderr(&output);
        assert!(errors.contains("one a CPU, 80 bytes apart"), "{freed}: {errors}");
    }
}

#[test]
fn elements_of_an_array_that_begin_lines_are_left_alone() {
    let aligned = "static struct { _Alignas(128) struct statistics of; } fixed[4];";
    let source = counting(aligned, "&fixed[0].of", "")
        .replace("all + (long)number", "&fixed[(long)number].of")
        .replace("all[i].kept", "fixed[i].of.kept");
    let Some(path) = program_of(&source) else { return };
    let profile = scratch("apart.toml");
    let options = ["--type", "statistics", "--operation", "count", "-o", profile.to_str().unwrap()];
    let output = record(&options, &[&path]);
    let errors = stderr(&output);
    assert!(errors.contains("taken as one a CPU\n"), "{errors}");
    let profile = Profile::open(&profile, &Known::default()).expect("a profile");
    assert_eq!(profile.of("statistics").expect("the type").instances, Instances::PerCpu);
}

#[test]
fn without_an_operation_accesses_are_shares_of_all() {
    let Some(path) = program(COUNTER) else { return };
    let profile = scratch("shares.toml");
    let output = record(&["-o", profile.to_str().unwrap()], &[&path]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("no operation named"), "{}", stderr(&output));
    let profile = Profile::open(&profile, &Known::default()).expect("a profile");
    let counter = profile.of("page_counter").expect("the type");
    // Threads write their own counters before the roots and the roots after: seven accesses of 28 007 each.
    let usage = counter.times("usage", Kind::Atomic);
    assert!((usage - 4.0 / 14.0).abs() < 1e-3, "{usage}");
    let phases = &counter.roles[0].phases;
    assert!(phases.iter().all(|phase| phase.accesses.iter().all(|a| a.field == phase.name)));
    let all: f64 = phases.iter().map(|phase| phase.times).sum();
    assert!((all - 1.0).abs() < 1e-9, "{all}");
}

#[test]
fn threads_that_do_different_things_play_different_roles() {
    let Some(path) = program_of(
        r#"
        #define _GNU_SOURCE
        #include <pthread.h>
        struct board { volatile long seen, told; } board;
        __attribute__((noinline)) static long look(void) { return board.told; }
        __attribute__((noinline)) static void tell(long n) { board.told = n; }
        static void *reader(void *none) {
            long sum = 0;
            pthread_setname_np(pthread_self(), "reader");
            for (int i = 0; i < 1000; i++) sum += look();
            return (void *)(sum & 0 & (long)none);
        }
        static void *writer(void *none) {
            pthread_setname_np(pthread_self(), "writer");
            for (int i = 0; i < 100; i++) tell(i);
            return none;
        }
        int main(void) {
            pthread_t threads[4];
            for (int i = 0; i < 4; i++) pthread_create(&threads[i], 0, i ? reader : writer, 0);
            for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
            return 3;
        }"#,
    ) else {
        return;
    };
    let profile = scratch("roles.toml");
    let options = ["--operation", "look", "--operation", "tell", "-o", profile.to_str().unwrap()];
    let output = record(&options, &[&path]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let profile = Profile::open(&profile, &Known::default()).expect("a profile");
    let roles = &profile.of("board").expect("the type").roles;
    let roles: Vec<(&str, f64)> = roles.iter().map(|role| (&*role.name, role.share)).collect();
    assert_eq!(roles, [("reader", 0.75), ("writer", 0.25)]);
}

#[test]
fn the_exit_is_the_programs_own_and_what_was_counted_is_there() {
    let Some(path) = program_of(
        r#"
        #include <signal.h>
        struct s { volatile long x; } object;
        int main(void) { object.x = 1; __builtin_puts("out"); raise(SIGTERM); return 0; }"#,
    ) else {
        return;
    };
    let json = scratch("record.json");
    let output = record(&["--json", json.to_str().unwrap()], &[&path]);
    assert_eq!(output.status.code(), Some(128 + 15));
    let json: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!(json["types"][0]["fields"][0]["writes"], 1.0, "{json:#}");
    assert_eq!(output.stdout.len(), 0, "a program that is killed has written nothing yet");
    let errors = stderr(&output);
    assert!(errors.contains("killed by SIGTERM"), "{errors}");
    assert!(errors.contains("s, 8 bytes: 1 object used by one thread each"), "{errors}");
}

#[test]
fn what_cannot_be_recorded_is_said_before_the_program_starts() {
    let Some(path) = program_of(
        r#"
        struct counter { long x; } object;
        long other;
        __attribute__((noinline)) static void operation(void) { object.x++; }
        int main(void) { __builtin_puts("started"); operation(); return 0; }"#,
    ) else {
        return;
    };
    let nowhere = Path::new("/nonexistent/profile.toml");
    let cases: [(&[&str], &Path, u8, &str); 6] = [
        (
            &["--type", "countre"],
            &path,
            125,
            "there is no type \"countre\"; did you mean `counter`?",
        ),
        (
            &["--operation", "operatoin"],
            &path,
            125,
            "no function `operatoin`; did you mean `operation`?",
        ),
        (&["--site", "maker"], &path, 125, "has no function `maker`"),
        (
            &["-o", nowhere.to_str().unwrap()],
            &path,
            2,
            "--output: \"/nonexistent/profile.toml\" cannot be",
        ),
        (&[], Path::new("/bin/true"), 125, "was compiled without probes; build it by --build"),
        (&[], Path::new("/nonexistent"), 127, "does not exist"),
    ];
    for (options, program, code, message) in cases {
        let output = record(options, &[program]);
        let errors = stderr(&output);
        assert_eq!(output.status.code(), Some(code.into()), "{options:?}: {errors}");
        assert!(errors.contains(message), "{options:?}: {errors}");
        assert!(output.stdout.is_empty() && errors.lines().count() == 1, "{options:?}: {errors}");
    }
}

#[test]
fn a_run_that_touches_nothing_says_why_that_may_be() {
    let Some(path) = program_of(
        r#"
        struct counter { volatile long x; } object;
        __attribute__((noinline)) void operation(void) { __asm__(""); }
        int main(int count, char **words) { if (count > 1) object.x = 1; operation(); return words == 0; }"#,
    ) else {
        return;
    };
    let output = record(&[], &[&path]);
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains("no object was touched"), "{}", stderr(&output));
    let output = record(&["--operation", "operation"], &[&path, Path::new("again")]);
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains("no call of operation touched"), "{}", stderr(&output));
    // The program does not contain the library, so the types belong to another file.
    let output = record(&["--of", path.to_str().unwrap()], &[Path::new("/bin/true")]);
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains("Nothing was recorded"), "{}", stderr(&output));
}

#[test]
fn a_library_with_probes_is_recorded_in_whatever_program_loads_it() {
    if !have("gcc") {
        return;
    }
    let (source, object, library, main, path) = (
        scratch("library.c"),
        scratch("library.o"),
        scratch("library.so"),
        scratch("main.c"),
        scratch("main"),
    );
    std::fs::write(
        &source,
        "struct s { volatile long x; } object; void hit(void) { object.x = 1; }",
    )
    .unwrap();
    std::fs::write(&main, "void hit(void); int main(void) { for (int i = 0; i < 7; i++) hit(); }")
        .unwrap();
    let run = |command: &mut Command| assert!(command.status().unwrap().success(), "{command:?}");
    run(Command::new("gcc")
        .args(["-g", "-fPIC", "-fsanitize=thread", "-c"])
        .arg(&source)
        .arg("-o")
        .arg(&object));
    run(Command::new("gcc").args(["-shared"]).arg(&object).arg("-o").arg(&library));
    run(Command::new("gcc").arg(&main).arg(&library).arg("-o").arg(&path).args([
        "-L",
        support::recorder().parent().unwrap().to_str().unwrap(),
        "-lledgerline_record",
    ]));
    let output = record(&["--of", library.to_str().unwrap(), "--type", "s"], &[&path]);
    let errors = stderr(&output);
    assert!(output.status.success(), "{errors}");
    assert!(errors.contains("1 thread, 7 accesses"), "{errors}");
}
