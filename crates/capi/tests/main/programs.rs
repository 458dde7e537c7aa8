//! Programs in C and C++ against the library: by gcc and clang, with sanitizers in the programs' own code. The
//! library has none: stable compilers of Rust have no sanitizers.

use crate::support::{folder, have, library, source, static_library};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

const WARNINGS: [&str; 7] = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-Wshadow", "-O1", "-g"];

#[derive(Clone, Copy, Debug, PartialEq)]
enum With {
    Nothing,
    Address,
    Thread,
}

impl With {
    const ALL: [With; 3] = [With::Nothing, With::Address, With::Thread];

    fn options(self) -> &'static [&'static str] {
        match self {
            With::Nothing => &[],
            With::Address => &["-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
            With::Thread => &["-fsanitize=thread"],
        }
    }
}

fn compiler(name: &str, language: &[&str], with: With) -> Command {
    let mut command = Command::new(name);
    command.args(language).args(WARNINGS).args(with.options());
    command.arg("-I").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("include"));
    command
}

/// Returns whether a compiler can make such programs at all: a sanitizer's library may be missing. Checked once for each.
fn can(name: &'static str, with: With) -> bool {
    static KNOWN: Mutex<Vec<(&str, With, bool)>> = Mutex::new(Vec::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(&(_, _, can)) = known.iter().find(|it| (it.0, it.1) == (name, with)) {
        return can;
    }
    let can = have(name) && tries(name, with);
    if !can {
        eprintln!("skipped: {name} makes no programs with {with:?} here");
    }
    known.push((name, with, can));
    can
}

fn tries(name: &str, with: With) -> bool {
    let source = folder().join("nothing.c");
    std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let out = folder().join(format!("nothing-{name}-{with:?}"));
    let mut command = compiler(name, &["-x", "c"], with);
    let output = command.arg(&source).arg("-o").arg(&out).output().unwrap();
    output.status.success() && run(&out, with).0
}

/// Runs a program; returns whether it succeeded, and its output.
fn run(program: &Path, with: With) -> (bool, String) {
    // Thread sanitizers of some compilers fail with the kernel's randomised addresses.
    let mut command = if with == With::Thread && have("setarch") {
        let mut command = Command::new("setarch");
        command.arg("-R").arg(program);
        command
    } else {
        Command::new(program)
    };
    // A leak check must trace the process, which a container may forbid.
    command.env("ASAN_OPTIONS", "detect_leaks=0");
    // A forked child may start the thread of the alarms. The sanitizer does not see the inside of the library, and so
    // must not report its calls of functions like memcpy.
    command
        .env("TSAN_OPTIONS", "halt_on_error=1:ignore_noninstrumented_modules=1:die_after_fork=0");
    command.env("LD_LIBRARY_PATH", library());
    let output = command.output().expect("it was compiled");
    let said = [&output.stdout[..], &output.stderr[..]].concat();
    let said = format!("{}: {}", output.status, String::from_utf8_lossy(&said));
    (output.status.success(), said)
}

fn compiled(command: &mut Command, out: &Path) -> PathBuf {
    command.arg("-o").arg(out);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    out.to_owned()
}

fn runs(program: &str) {
    let cpp = program.ends_with(".cpp");
    let compilers = if cpp { ["g++", "clang++"] } else { ["gcc", "clang"] };
    let language: &[&str] = if cpp { &["-std=c++17"] } else { &["-std=c11", "-D_GNU_SOURCE"] };
    for name in compilers {
        for with in With::ALL {
            if !can(name, with) {
                continue;
            }
            let out = folder().join(format!("{program}-{name}-{with:?}"));
            let mut command = compiler(name, language, with);
            command.arg(source(program)).arg("-pthread");
            command.arg("-L").arg(library()).arg("-lledgerline");
            let (well, said) = run(&compiled(&mut command, &out), with);
            assert!(well, "{program} by {name} with {with:?}: {said}");
            std::fs::remove_file(out).unwrap();
        }
    }
}

#[test]
fn every_call_does_what_its_text_says() {
    runs("everything.c");
}

#[test]
fn what_a_process_held_that_was_killed_goes_back_when_another_settles_it() {
    runs("processes.c");
}

#[test]
fn callbacks_charge_and_are_waited_for_when_they_are_taken_out() {
    runs("callbacks.c");
}

#[test]
fn every_wrong_handle_pointer_text_and_size_is_an_error_with_a_text() {
    runs("wrong.c");
}

#[test]
fn a_ledger_may_be_freed_while_others_use_it() {
    runs("freeing.c");
}

#[test]
fn a_ledger_that_is_freed_where_the_fence_is_forbidden_is_given_up() {
    runs("forbidden.c");
}

#[test]
fn calls_at_random_do_no_harm() {
    runs("attack.c");
}

#[test]
fn the_classes_of_the_cpp_header_own_what_they_hold() {
    runs("classes.cpp");
}

/// Runs with the static library, and without restartable sequences.
#[test]
fn programs_run_with_the_static_library_and_without_sections() {
    // One compiler is enough, since the linked library is the same.
    let name = ["gcc", "clang"].into_iter().find(|name| can(name, With::Nothing));
    if let Some(name) = name {
        for program in ["everything.c", "freeing.c", "wrong.c"] {
            let out = folder().join(format!("{program}-{name}-static"));
            let mut command = compiler(name, &["-std=c11", "-D_GNU_SOURCE"], With::Nothing);
            command.arg(source(program)).arg("-pthread").arg(static_library());
            command.args(["-lm", "-ldl"]);
            compiled(&mut command, &out);
            for mode in ["", "owned", "fallback"] {
                let output = Command::new(&out).env("LEDGERLINE_PERCPU", mode).output().unwrap();
                let said = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{program} by {name}, static, {mode:?}: {said}");
            }
            std::fs::remove_file(out).unwrap();
        }
    }
}

#[test]
fn a_library_that_is_loaded_and_closed_stays_as_it_was() {
    for name in ["gcc", "clang"].into_iter().filter(|name| can(name, With::Nothing)) {
        let out = folder().join(format!("loading-{name}"));
        let mut command = compiler(name, &["-std=c11", "-D_GNU_SOURCE"], With::Nothing);
        compiled(command.arg(source("loading.c")).args(["-pthread", "-ldl"]), &out);
        let library = library().join("libledgerline.so.1");
        let output = Command::new(&out).arg(library).output().unwrap();
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// The surplus of the static block for thread-locals is a few kilobytes, which other libraries may have taken.
#[test]
fn the_library_loads_where_others_took_most_of_the_static_block_for_thread_locals() {
    if !can("gcc", With::Nothing) {
        return;
    }
    // The remaining room once nothing of 512 bytes fits: less than the text of an error would take.
    let fillers: Vec<_> = (0..12)
        .map(|number| {
            let out = folder().join(format!("filler-{number}.so"));
            let mut command = compiler("gcc", &["-std=c11", "-DSIZE=512"], With::Nothing);
            command.args(["-shared", "-fPIC"]).arg(source("filler.c"));
            compiled(&mut command, &out);
            out
        })
        .collect();
    let out = folder().join("crowded");
    let mut command = compiler("gcc", &["-std=c11", "-D_GNU_SOURCE"], With::Nothing);
    compiled(command.arg(source("crowded.c")).args(["-pthread", "-ldl"]), &out);
    let library = library().join("libledgerline.so.1");
    let output = Command::new(&out).arg(library).args(fillers).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Compiles the header alone, by every standard that it supports.
#[test]
fn the_headers_compile_without_a_warning_in_every_standard() {
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let all = [
        ("gcc", "c", &["-std=c99", "-std=c11", "-std=c17"][..], "ledgerline.h"),
        ("clang", "c", &["-std=c99", "-std=c11", "-std=c17"], "ledgerline.h"),
        ("g++", "c++", &["-std=c++17", "-std=c++20"], "ledgerline.hpp"),
        ("clang++", "c++", &["-std=c++17", "-std=c++20"], "ledgerline.hpp"),
        ("g++", "c++", &["-std=c++11"], "ledgerline.h"),
    ];
    for (name, language, standards, file) in all {
        if !have(name) {
            continue;
        }
        for standard in standards {
            let mut command = Command::new(name);
            command.arg(standard).args(WARNINGS).args(["-Wundef", "-x", language, "-fsyntax-only"]);
            command.arg("-I").arg(&header).args(["-include", file, "/dev/null"]);
            let output = command.output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{name} {standard}: {said}");
        }
    }
}
