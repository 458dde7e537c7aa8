//! A program does not notice the accounting.

use crate::support::{
    Account, Run, account, chunk, compile, compile_with, compiled, have, library, live, modes,
};
use std::path::Path;
use std::process::Command;

/// The environments that a program is run in.
const ENVIRONMENTS: [&[(&str, &str)]; 5] = [
    &[],
    &[("LEDGERLINE_BY", "process")],
    &[("LEDGERLINE_BY", "library")],
    &[("LEDGERLINE_PERCPU", "fallback")],
    &[("GLIBC_TUNABLES", "glibc.pthread.rseq=0")],
];

/// Compares line by line, so that a failure shows the first difference alone.
#[track_caller]
fn assert_same(with: &str, without: &str, env: &[(&str, &str)]) {
    for (number, (with, without)) in with.lines().zip(without.lines()).enumerate() {
        assert_eq!(with, without, "line {number}, {env:?}");
    }
    assert_eq!(with.lines().count(), without.lines().count(), "{env:?}");
}

#[test]
fn the_family_of_malloc_keeps_its_contract() {
    let program = compiled!("contract.c");
    let bare = Run::bare(&program, &[]).well();
    assert!(bare.ends_with("end\n"), "{bare}");
    for env in ENVIRONMENTS {
        assert_same(&account(&program, &[], env).0, &bare, env);
    }
    let silent = Run::bare(&program, &[]).env("LD_PRELOAD", library().to_str().unwrap()).well();
    assert_same(&silent, &bare, &[("LEDGERLINE_LEDGER", "")]);
}

#[test]
fn the_contract_holds_where_the_account_finds_no_sys() {
    let family = "contract::the_family_of_malloc_keeps_its_contract";
    let here = std::env::current_exe().expect("a test knows where it lies");
    let without = "mount -t tmpfs none /sys && exec \"$0\" --exact \"$1\"";
    let inside = |what: &str, name: &str| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", what]).arg(&here).arg(name).output()
    };
    if !inside("mount -t tmpfs none /sys", family).is_ok_and(|output| output.status.success()) {
        return eprintln!("skipped: this user may not take /sys away from a program");
    }
    let output = inside(without, family).expect("it started just now");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
fn a_programs_own_functions_are_not_called_in_the_place_of_the_librarys() {
    // The loader finds the program's functions first.
    let Some(program) = compile_with("cc", "own_exec.c", &["-rdynamic"]) else { return };
    for how in ["path", "file"] {
        assert_eq!(Run::bare(&program, &[how]).well(), "started\n", "{how}, plain");
        assert_eq!(account(&program, &[how], &[]).0, "started\n", "{how}");
    }
}

#[test]
fn what_no_allocator_could_give_kills_nobody() {
    let program = compiled!("contract.c");
    let bare = Run::bare(&program, &[]).well();
    let env = [("LEDGERLINE_ON_MAX", "kill")];
    assert_same(&account(&program, &[], &env).0, &bare, &env);
}

#[test]
fn under_torture_no_block_is_touched_and_no_unit_lost() {
    let program = compiled!("torture.c");
    // With few arenas, spans of the heap have many owners; with many, most have one.
    for (mode, arenas) in modes().iter().flat_map(|mode| [(mode, "1"), (mode, "16")]) {
        for by in ["thread", "process"] {
            let env =
                [("LEDGERLINE_PERCPU", *mode), ("LEDGERLINE_BY", by), ("MALLOC_ARENA_MAX", arenas)];
            let (_, rows) = account(&program, &[], &env);
            let workers: Vec<_> =
                rows.0.groups.iter().filter(|row| row.name.starts_with("torture ")).collect();
            assert_eq!(workers.len(), if by == "thread" { 8 } else { 0 });
            for row in workers {
                assert_eq!((row.current, live(row)), (0, 0), "{mode}: {row:#?}");
                assert!(row.charges > 4000, "{mode}: {row:#?}");
            }
            // The main thread's blocks are the C library's own, one or two for each thread.
            assert!(live(rows.root()) < 40 && rows.root().current < 40_000, "{:#?}", rows.root());
        }
    }
}

#[test]
fn malloc_works_wherever_a_program_may_call_it() {
    let (program, plugin) = (compiled!("hooks.c"), compiled!("plugin.c"));
    let arguments = [plugin.to_str().unwrap()];
    let bare = Run::bare(&program, &arguments).well();
    assert_eq!(bare, "main\ndestructor\n");
    for env in ENVIRONMENTS {
        assert_eq!(account(&program, &arguments, env).0, bare, "{env:?}");
    }
    for mode in modes() {
        let (_, rows) = account(&program, &arguments, &[("LEDGERLINE_PERCPU", mode)]);
        for name in ["worker", "small"] {
            let row = rows.row(name);
            assert_eq!((row.current, live(row)), (0, 0), "{mode}: {row:#?}");
        }
        // Each child has its handler's blocks and its own, and none of its parent's.
        let (parent, children) =
            rows.processes().split_first().map(|(p, c)| (*p, c.len())).unwrap();
        assert_eq!(children, 20);
        for child in &rows.processes()[1..] {
            let truth = chunk(77) + chunk(1000);
            assert_eq!((child.current, live(child)), (truth, 2), "{mode}: {child:#?}");
        }
        assert!(parent.current < 20_000, "{mode}: {parent:#?}");
    }
}

#[test]
fn a_c_program_may_load_a_plugin_in_another_language() {
    let program = compiled!("callers.c");
    let Some(plugin) = compile("plugin_new.cc") else { return };
    for env in ENVIRONMENTS {
        account(&program, &[plugin.to_str().unwrap()], env);
    }
}

#[test]
fn without_a_ledger_there_is_silence() {
    let program = compiled!("hello.c");
    let account = Account::new();
    let said = account.run(&program, &[]).without("LEDGERLINE_LEDGER").well();
    assert_eq!(said, "hello\n");
    assert_eq!(account.rows().0.groups.len(), 1);
}

#[track_caller]
fn assert_one_line(program: &Path, run: Run, about: &str) {
    let ended = run.end();
    assert!(ended.status.success(), "{program:?}: {ended:#?}");
    assert_eq!(ended.stdout, "hello\n");
    // One line, though the program forks.
    assert_eq!(ended.stderr.lines().count(), 1, "{ended:#?}");
    assert!(
        ended.stderr.starts_with("ledgerline: ") && ended.stderr.contains(about),
        "{about:?} is not in {:?}",
        ended.stderr
    );
}

#[test]
fn an_unusable_ledger_costs_one_line_and_the_program_works() {
    let program = compiled!("hello.c");
    let account = Account::new();
    let run = |path: &str| account.run(&program, &[]).env("LEDGERLINE_LEDGER", path);
    for path in ["", "/no/such/file"] {
        assert_one_line(&program, run(path), "cannot open the ledger");
    }
    assert_one_line(&program, run("/"), "is not a ledger of this run");
    let folder = program.parent().unwrap();
    for (name, content) in
        [("empty", &b""[..]), ("text", &[b'x'; 100_000]), ("zeros", &[0; 10_000])]
    {
        let path = folder.join(name);
        std::fs::write(&path, content).unwrap();
        assert_one_line(&program, run(path.to_str().unwrap()), "is not a ledger");
    }
    assert_one_line(&program, run("/dev/null"), "is not a ledger");
    // The first half of a ledger: the missing part must not be touched.
    let mut start = vec![0; 1 << 16];
    std::os::unix::fs::FileExt::read_exact_at(
        &std::fs::File::open(account.path()).unwrap(),
        &mut start,
        0,
    )
    .unwrap();
    let path = folder.join("half");
    std::fs::write(&path, &start).unwrap();
    assert_one_line(&program, run(path.to_str().unwrap()), "is not a ledger");
    let no_mode = account.run(&program, &[]).without("LEDGERLINE_PERCPU");
    assert_one_line(&program, no_mode, "LEDGERLINE_PERCPU");
    for given in ["", "0"] {
        let none = account.run(&program, &[]).env("LEDGERLINE_RUN", given);
        assert_one_line(&program, none, "LEDGERLINE_RUN");
    }
    assert_eq!(account.rows().0.groups.len(), 1);
}

#[test]
fn a_checker_of_memory_finds_nothing_wrong_with_the_library() {
    if !have("valgrind") {
        return;
    }
    let program = compiled!("hello.c");
    let path = program.to_str().unwrap();
    let account = Account::new();
    // Each finding is a line on standard error.
    let said = account.run(Path::new("valgrind"), &["-q", "--error-exitcode=9", path]).well();
    assert_eq!(said, "hello\n");
}

#[test]
fn operators_of_a_library_that_was_loaded_for_itself_alone_are_its_cxx_librarys() {
    let program = compiled!("callers.c");
    for standard in ["-std=c++11", "-std=c++17"] {
        let Some(plugin) = compile_with("g++", "plugin_delete.cc", &[standard]) else { return };
        let (_, rows) = account(&program, &[plugin.to_str().unwrap()], &[]);
        let root = rows.root();
        // 300 blocks of 2000 came and went; the rest is less than half of that.
        assert!(root.current < 300_000 && root.charges >= 400, "{standard}: {root:#?}");
    }
}
