//! Programs for musl: their accounts are as exact as those of programs for glibc, whichever starts the other.
//!
//! Debian's musl-tools compile them and musl's loader runs them, like those of Alpine Linux. It binds each function
//! that the library needs before the program starts, and refuses the program if one is missing.

use crate::support::{
    Account, OTHER_LIBRARY, Program, account, compile_with, have, live, modes, numbers,
};
use ledgerline::GroupState;
use ledgerline_protocol::Item;
use ledgerline_protocol::blind::Blind;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

const MIB: u64 = 1 << 20;
/// The most that such a program takes from malloc for its threads and the like.
const HEAP: u64 = 100_000;

/// Compiles a source for musl, with its shared library.
fn compile(source: &str) -> Option<Program> {
    compile_with("musl-gcc", source, &[])
}

macro_rules! compiled {
    ($source:literal) => {
        match compile($source) {
            Some(program) => program,
            None => return,
        }
    };
}

/// Returns the size that musl reports for a request. It is at least 32, since the library never asks for less.
fn block(size: u64) -> u64 {
    size.max(32)
}

/// Returns whether programs for glibc can be started with the library, too.
fn serves_glibc() -> bool {
    std::env::var_os(OTHER_LIBRARY).is_none()
}

#[test]
fn current_is_the_sum_of_the_blocks_and_charges_less_uncharges_their_number() {
    let program = compiled!("known.c");
    let size = |i: u64| if i % 50 == 49 { 150_000 + 16 * i } else { i * 7919 % 4000 };
    for mode in modes() {
        for by in ["thread", "process", "library"] {
            let env = [("LEDGERLINE_PERCPU", *mode), ("LEDGERLINE_BY", by)];
            let (_, bare) = account(&program, &["0", "1"], &env);
            for keep in [1, 3] {
                let kept: Vec<u64> = (0..10_000).filter(|i| i % keep == 0).map(size).collect();
                let (_, full) = account(&program, &["10000", &keep.to_string()], &env);
                let expected = kept.iter().map(|&size| block(size)).sum::<u64>();
                assert_eq!(full.root().current - bare.root().current, expected, "{env:?}");
                let blocks = live(full.root()) - live(bare.root());
                assert_eq!(blocks, kept.len() as u64, "{env:?}");
                assert_eq!(full.root().charges - bare.root().charges, 10_000, "{env:?}");
                let [process] = full.processes()[..] else { panic!("{:?}", full.paths()) };
                assert!(process.path.starts_with("/known."), "{}", process.path);
            }
        }
    }
}

#[test]
fn blocks_that_change_threads_and_sizes_are_charged_as_large_as_the_allocator_says() {
    let program = compiled!("sizes.c");
    for mode in modes() {
        for how in [&["churn"][..], &["churn", "free"]] {
            let env = [("LEDGERLINE_PERCPU", *mode)];
            let (said, rows) = account(&program, how, &env);
            let [count, bytes] = numbers(&said)[..] else { panic!("{said}") };
            assert!(count > 2000, "{said}");
            let (count, bytes) = if how.len() == 1 { (count, bytes) } else { (0, 0) };
            // The rest is musl's own.
            let more = (live(rows.root()) - count, rows.root().current - bytes);
            assert!(more.0 < 20 && more.1 < HEAP, "{mode}: {more:?}");
        }
    }
}

#[test]
fn what_another_thread_frees_or_reallocs_leaves_the_row_that_allocated_it() {
    let program = compiled!("across.c");
    for mode in modes() {
        let (_, rows) = account(&program, &[], &[("LEDGERLINE_PERCPU", mode)]);
        let producer = rows.row("producer");
        assert_eq!((producer.current, producer.charges, live(producer)), (0, 20_100, 0), "{mode}");
        let mover = rows.row("mover");
        assert_eq!((mover.current, live(mover)), (100 * block(2000), 100), "{mode}");
    }
}

#[test]
fn no_block_is_given_twice_or_changed_by_another_and_all_are_returned() {
    let program = compiled!("torture.c");
    for mode in modes() {
        let (_, rows) = account(&program, &[], &[("LEDGERLINE_PERCPU", mode)]);
        assert!(rows.root().charges > 10_000, "{mode}: {:#?}", rows.root());
        assert!(rows.root().current < HEAP && live(rows.root()) < 40, "{mode}: {:#?}", rows.root());
    }
}

#[test]
fn a_child_frees_what_it_inherited_from_nobodys_account() {
    let program = compiled!("fork.c");
    for mode in modes() {
        let env = [("LEDGERLINE_PERCPU", *mode)];
        let (_, bare) = account(&program, &["none"], &env);
        for how in ["fork", "raw", "deep"] {
            let (said, rows) = account(&program, &[how], &env);
            let child = rows.row(&format!("fork.{}", numbers(&said)[0]));
            // Blocks that it reallocated are its own from then on.
            let truth = 50 * block(3000) + 200 * block(5000);
            assert_eq!((child.current, live(child)), (truth, 250), "{how} {mode}");
            let (parent, alone) = (rows.processes()[0], bare.processes()[0]);
            assert_eq!((parent.current, live(parent)), (alone.current, live(alone)), "{how}");
            assert_eq!(parent.charges, alone.charges + 500, "{how} {mode}");
        }
    }
}

#[test]
fn children_do_not_wait_for_threads_that_they_do_not_have() {
    let program = compiled!("crowd.c");
    for mode in modes() {
        let (_, rows) = account(&program, &["fork", "200"], &[("LEDGERLINE_PERCPU", mode)]);
        let (parent, children) = (rows.processes()[0], &rows.processes()[1..]);
        assert_eq!(children.len(), 200, "{mode}");
        for child in children {
            let held = (child.current, live(child));
            assert_eq!(held, (100 * block(1000), 100), "{mode}: {child:#?}");
        }
        assert!(parent.current < 20_000, "{mode}: {parent:#?}");
    }
}

#[test]
fn at_max_malloc_fails_and_the_program_goes_on() {
    let program = compiled!("limit.c");
    for mode in modes() {
        for how in ["fill", "grow", "threads"] {
            let account = Account::limited(8 * MIB);
            let said = account.run(&program, &[how]).env("LEDGERLINE_PERCPU", mode).well();
            let rows = account.rows();
            let root = rows.root();
            assert!(root.peak.value <= 8 * MIB, "{mode} {how}: {root:#?}");
            assert!(root.current < HEAP && live(root) < 20, "{mode} {how}: {root:#?}");
            match how {
                "fill" => {
                    let blocks = numbers(&said)[0] + 1;
                    assert!((126..=128).contains(&blocks), "{mode}: {blocks}");
                    // malloc twice, calloc, memalign, aligned_alloc, posix_memalign, realloc.
                    assert_eq!((root.refused, root.max_events), (7, 7), "{mode}: {root:#?}");
                }
                "grow" => assert_eq!(root.refused, 1, "{mode}: {root:#?}"),
                _ => assert!(root.charges >= 1000, "{mode}: {root:#?}"),
            }
        }
    }
}

#[test]
fn in_kill_mode_a_program_dies_and_says_why() {
    let program = compiled!("limit.c");
    let account = Account::limited(8 * MIB);
    let ended = account.run(&program, &["kill"]).env("LEDGERLINE_ON_MAX", "kill").end();
    assert_eq!(ended.status.signal(), Some(libc::SIGKILL), "{ended:#?}");
    assert!(ended.stderr.starts_with("ledgerline: killed: /limit."), "{ended:#?}");
    assert!(account.rows().root().peak.value <= 8 * MIB);
}

#[test]
fn with_stack_the_first_refusal_of_a_row_says_who_asked() {
    // Alpine's compiler asks the linker for this table, by which stacks are unwound; Debian's does not.
    let program = compile_with("musl-gcc", "stack.c", &["-Wl,--eh-frame-hdr"]);
    let Some(program) = program else { return };
    let account = Account::limited(8 * MIB);
    let ended = account.run(&program, &[]).env("LEDGERLINE_STACK", "1").end();
    assert!(ended.status.success(), "{ended:#?}");
    let (title, places) = ended.stderr.split_once('\n').unwrap();
    assert!(title.starts_with("ledgerline: refused 5242") && title.ends_with(", asked for by"));
    let functions = numbers(&ended.stdout);
    for (place, start) in places.lines().zip(functions) {
        let (_, offset) = place.rsplit_once("/stack+0x").unwrap_or_else(|| panic!("{place}"));
        let offset = u64::from_str_radix(offset.trim_end_matches(')'), 16).unwrap();
        assert!((start..start + 200).contains(&offset), "{place}: {start:x}");
    }
    assert!(places.lines().count() >= 3, "{places}");
}

#[test]
fn private_writable_mappings_count_and_what_is_given_back_does_not() {
    let program = compiled!("maps.c");
    // Like with glibc: `mapped` explains the numbers. musl moves no break.
    for (how, expected) in [("private", 8), ("reserve", 3), ("give back", 4), ("remap", 5)] {
        let (_, rows) = account(&program, &[how], &[]);
        let held = rows.root().current;
        assert_eq!(held / MIB, expected, "{how}");
        assert!(held % MIB < HEAP, "{how}: {held}");
    }
}

#[test]
fn a_program_that_becomes_another_leaves_a_settled_row_whatever_their_c_libraries() {
    let musl = compiled!("exec.c");
    let glibc = compile_with("cc", "exec.c", &[]).filter(|_| serves_glibc());
    let paths = [Some(&musl), glibc.as_ref()].map(|program| program.map(|path| path.to_path_buf()));
    for (first, second) in [(0, 0), (0, 1), (1, 0)] {
        let (Some(first), Some(second)) = (&paths[first], &paths[second]) else { continue };
        let (_, rows) = account(first, &["70", second.to_str().unwrap(), "20"], &[]);
        let [before, after] = rows.processes()[..] else { panic!("{:?}", rows.paths()) };
        assert_eq!(before.owner, after.owner);
        assert_eq!((before.state, before.current), (GroupState::Exited, 0), "{before:#?}");
        assert_eq!(before.at_exit / 10_000, 70, "{before:#?}");
        assert_eq!((after.state, after.current / 10_000), (GroupState::Live, 20), "{after:#?}");
    }
}

#[test]
fn each_program_of_a_tree_of_both_c_libraries_has_its_row() {
    let musl = compiled!("exec.c");
    let Some(shell) = compile_with("musl-gcc", "starts.c", &[]) else { return };
    if !have("sh") || !serves_glibc() {
        return;
    }
    // A shell for glibc starts a program for musl, which starts a shell: by a fork and an exec, by posix_spawn, and by
    // system, which the library does not see.
    for how in ["fork", "spawn", "system"] {
        let (shell, musl) = (shell.to_str().unwrap(), musl.to_str().unwrap());
        let script = format!("'{shell}' {how} \"'{musl}' 3; '{musl}' 5\"; :");
        let (said, rows) = account(Path::new("/bin/sh"), &["-c", &script], &[]);
        assert_eq!(said, "0\n", "{how}");
        let names = |prefix: &str| {
            rows.processes().iter().filter(|row| row.name.starts_with(prefix)).count()
        };
        assert_eq!((names("sh."), names("starts."), names("exec.")), (2, 1, 2), "{how}: {rows:#?}");
        let mut held: Vec<u64> = rows
            .processes()
            .iter()
            .filter(|row| row.name.starts_with("exec."))
            .map(|row| (row.at_exit + row.current) / 10_000)
            .collect();
        held.sort_unstable();
        assert_eq!(held, [3, 5], "{how}: {rows:#?}");
    }
}

#[test]
fn where_the_library_does_not_serve_glibc_such_programs_run_as_they_do_plain_and_are_named() {
    let shell = compiled!("starts.c");
    if serves_glibc() || !have("sh") {
        return;
    }
    for how in ["fork", "spawn"] {
        let account = Account::new();
        let said = account.run(&shell, &[how, "exit 7"]).well();
        // Encoded as a wait status.
        assert_eq!(said, format!("{}\n", 7 << 8), "{how}");
        let rows = account.rows();
        let row = rows.processes().into_iter().find(|row| row.name.starts_with("sh."));
        let row = row.unwrap_or_else(|| panic!("{how}: {:?}", rows.paths()));
        let why = account.ledger.group(row.id).stat().get(Item::Blind.name()).unwrap().own;
        assert_eq!(Blind::from_number(why), Some(Blind::OtherLibc), "{how}");
    }
}

#[test]
fn a_program_at_a_fixed_address_is_accounted_and_one_with_a_malloc_of_its_own_is_told() {
    let why = |program: &Program, argument: &str| {
        let account = Account::new();
        account.run(program, &[argument]).well();
        let row = account.rows().processes()[0].id;
        account.ledger.group(row).stat().get(Item::Blind.name()).unwrap().own
    };
    // The program takes malloc's address, so it has a stub of that name.
    for compiler in ["musl-gcc", "cc"].iter().take(if serves_glibc() { 2 } else { 1 }) {
        let Some(fixed) = compile_with(compiler, "stub.c", &["-no-pie", "-fno-pie"]) else {
            return;
        };
        assert_eq!(Blind::from_number(why(&fixed, "")), None, "{compiler}");
    }
    let Some(own) = compile_with("musl-gcc", "own_malloc.c", &["-rdynamic"]) else { return };
    assert_eq!(Blind::from_number(why(&own, "")), Some(Blind::OwnMalloc));
}
