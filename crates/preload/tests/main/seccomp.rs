//! A program that puts itself under a seccomp filter is accounted without any call that the filter does not allow.

use crate::support::{Account, Run, chunk, compiled, live, modes, numbers};
use ledgerline::GroupSnapshot;
use ledgerline_protocol::Item;
use ledgerline_protocol::blind::Blind;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

/// The ways in which the program installs its filter.
const HOW: [&str; 4] = ["prctl", "seccomp", "raw", "all"];
/// The blocks and bytes that each allocating process or thread keeps.
const KEPT: (u64, u64) = (300, 300 * (1000 + 8));

/// Runs the program without the library, which must succeed, and then accounted. Returns the output and the account.
#[track_caller]
fn run(program: &Path, arguments: &[&str], env: &[(&str, &str)]) -> (Vec<u64>, Account) {
    let with = |run: Run| {
        let run = run.env("MALLOC_ARENA_MAX", "1");
        env.iter().fold(run, |run, (name, value)| run.env(name, value))
    };
    with(Run::bare(program, arguments)).well();
    let account = Account::new();
    let said = with(account.run(program, arguments)).well();
    (numbers(&said), account)
}

/// Checks that the process has its blocks.
#[track_caller]
fn assert_kept(row: &GroupSnapshot, about: &str) {
    // The C library may have a few more, for a thread.
    let (blocks, bytes) = (live(row), row.current);
    assert!((KEPT.0..KEPT.0 + 5).contains(&blocks), "{about}: {blocks} blocks");
    assert!((KEPT.1..KEPT.1 + 2000).contains(&bytes), "{about}: {bytes} bytes");
}

#[test]
fn a_program_is_charged_under_its_own_filter_however_it_installs_it() {
    let program = compiled!("seccomp.c");
    for how in HOW {
        for (when, by) in [
            ("self", "thread"),
            ("self", "process"),
            ("self", "library"),
            ("thread", "thread"),
            ("thread", "library"),
            ("waiting", "thread"),
            ("waiting", "process"),
        ] {
            for mode in modes() {
                let env = [("LEDGERLINE_BY", by), ("LEDGERLINE_PERCPU", mode)];
                let (_, account) = run(&program, &[how, when], &env);
                let rows = account.rows();
                let [process] = rows.processes()[..] else { panic!("{:?}", rows.paths()) };
                assert_kept(process, &format!("{how} {when} {by} {mode}"));
                if when == "self" && by == "thread" {
                    assert_kept(rows.row("seccomp"), "the thread that was there before");
                }
            }
        }
    }
}

#[test]
fn a_child_that_is_forked_under_a_filter_has_a_row_of_its_own() {
    let program = compiled!("seccomp.c");
    for how in HOW {
        for (when, by) in [
            ("fork", "thread"),
            ("fork", "process"),
            ("fork", "library"),
            ("from", "thread"),
            ("deep", "thread"),
            ("child", "thread"),
            ("child", "library"),
        ] {
            let env = [("LEDGERLINE_BY", by), ("LEDGERLINE_PERCPU", modes()[0])];
            let (said, account) = run(&program, &[how, when], &env);
            let about = format!("{how} {when} {by}");
            let rows = account.rows();
            // The child that was forked last prints its id first.
            let name = format!("seccomp.{}", said[0]);
            let child = rows.row(&name);
            assert_eq!((live(child), child.current), KEPT, "{about}");
            assert_eq!(u64::from(child.owner), said[0], "{about}");
            let parents = rows.processes().iter().filter(|row| row.name != name).count();
            assert!((1..=2).contains(&parents), "{about}: {:?}", rows.paths());
        }
    }
}

#[test]
fn threads_that_wait_for_each_other_make_no_call_for_it() {
    let program = compiled!("seccomp.c");
    for by in ["thread", "process", "library"] {
        for mode in modes() {
            let env = [("LEDGERLINE_BY", by), ("LEDGERLINE_PERCPU", mode)];
            let (_, account) = run(&program, &["prctl", "crowd"], &env);
            assert!(live(account.rows().root()) < 40, "{by} {mode}");
            let account = Account::limited(7 << 20);
            let run = account.run(&program, &["all", "crowd"]).env("MALLOC_ARENA_MAX", "1");
            run.env("LEDGERLINE_BY", by).env("LEDGERLINE_PERCPU", mode).well();
            let rows = account.rows();
            assert!(live(rows.root()) < 40 && rows.root().max_events > 0, "{by} {mode}");
        }
    }
}

#[test]
fn a_filter_that_is_another_processs_or_was_not_installed_changes_nothing() {
    let program = compiled!("seccomp.c");
    for how in HOW {
        for when in ["vfork", "failing"] {
            let (_, account) = run(&program, &[how, when], &[]);
            // The library still asks a thread for its name.
            assert_kept(account.rows().row("named"), &format!("{how} {when}"));
        }
    }
}

#[test]
fn a_child_whose_id_nobody_knows_goes_on_unaccounted_and_silent() {
    let program = compiled!("seccomp.c");
    for how in HOW {
        let (said, account) = run(&program, &[how, "bare"], &[]);
        assert_eq!(said.len(), 1);
        let rows = account.rows();
        let [parent] = rows.processes()[..] else { panic!("{:?}", rows.paths()) };
        assert!(live(parent) < 5 && u64::from(parent.owner) != said[0], "{parent:#?}");
    }
}

#[test]
fn a_program_that_is_executed_under_a_filter_goes_on_silent_and_is_named_as_unaccounted() {
    let program = compiled!("seccomp.c");
    for how in HOW {
        let (_, account) = run(&program, &[how, "exec"], &[]);
        let rows = account.rows();
        let [before, after] = rows.processes()[..] else { panic!("{:?}", rows.paths()) };
        assert!(live(before) < 5, "{before:#?}");
        let why = account.ledger.group(after.id).stat().get(Item::Blind.name()).unwrap().own;
        assert_eq!(Blind::from_number(why), Some(Blind::Filter));
        assert_eq!((after.charges, after.owner), (0, before.owner));
    }
}

/// Checks that a process vouches for a program that it executes only if it knows that there are no filters, and is
/// believed.
#[test]
fn a_program_that_is_executed_under_a_filter_that_nobody_noted_is_not_vouched_for() {
    let program = compiled!("seccomp.c");
    let own = ledgerline_protocol::at_start().filters.unwrap_or(0);
    for how in HOW {
        // In a child with its parent's memory, whose filters are not the parent's. The kernel is not asked, since the
        // run has filters.
        let filters = (own + 1).to_string();
        let (_, account) = run(&program, &[how, "vfence"], &[("LEDGERLINE_FILTERS", &filters)]);
        assert_eq!(account.rows().processes().len(), 1, "{how}: the child is not accounted");
    }
    if own == 0 {
        // Installed by an instruction of the program's own: the kernel is asked.
        let (_, account) = run(&program, &["asm", "fence"], &[]);
        assert_eq!(account.rows().processes().len(), 1);
    }
    // If the run has filters, the kernel's answer is no proof, and the library's call in the executed program ends it.
    // This also shows that the mark is believed: without it the program would find one filter more than the run's.
    let account = Account::new();
    let run = account.run(&program, &["asm", "fences"]);
    let ended = run.env("LEDGERLINE_FILTERS", &(own + 1).to_string()).end();
    assert_eq!(ended.status.signal(), Some(libc::SIGSYS), "{ended:#?}");
    // A mark is gone when the program has started, whichever process set it.
    let account = Account::new();
    let shell = account.run(Path::new("/bin/sh"), &["-c", "echo $LEDGERLINE_FILTERS; env"]);
    let said = shell.env("LEDGERLINE_FILTERS", &format!("{own}!")).well();
    assert!(said.starts_with(&format!("{own}\n")), "{said}");
    assert!(said.contains(&format!("LEDGERLINE_FILTERS={own}\n")), "{said}");
}

#[test]
fn under_the_runs_own_filters_everything_is_accounted() {
    let program = compiled!("seccomp.c");
    let account = Account::new();
    // The run appears to be under one filter more than this test, and so does the program.
    let filters = (ledgerline_protocol::at_start().filters.unwrap_or(0) + 1).to_string();
    account.run(&program, &["work"]).env("LEDGERLINE_FILTERS", &filters).well();
    assert_kept(account.rows().processes()[0], "no more filters than the run");
    let account = Account::new();
    let run = account.run(&program, &["prctl", "exec"]).env("LEDGERLINE_FILTERS", &filters);
    // Its filter forbids the library's next call, which ends the program.
    let ended = run.end();
    assert_eq!(ended.status.signal(), Some(libc::SIGSYS), "{ended:#?}");
}

#[test]
fn in_strict_mode_nothing_is_called_but_what_that_allows() {
    let program = compiled!("seccomp.c");
    for when in ["strict", "strict-thread"] {
        for by in ["thread", "process", "library"] {
            for mode in modes() {
                let env = [("LEDGERLINE_BY", by), ("LEDGERLINE_PERCPU", mode)];
                let (_, account) = run(&program, &[when], &env);
                assert_kept(account.rows().processes()[0], &format!("{when} {by} {mode}"));
            }
        }
    }
}

#[test]
fn at_max_a_program_in_strict_mode_is_refused() {
    let program = compiled!("seccomp.c");
    for mode in modes() {
        let account = Account::limited(8 << 20);
        let run = account.run(&program, &["strict-limit"]).env("MALLOC_ARENA_MAX", "1");
        run.env("LEDGERLINE_PERCPU", mode).well();
        let rows = account.rows();
        assert_kept(rows.processes()[0], mode);
        assert_eq!(rows.root().max_events, 1, "{mode}");
    }
}

#[test]
fn at_max_a_program_under_a_filter_is_refused() {
    let program = compiled!("seccomp.c");
    let max = 8 << 20;
    for how in HOW {
        for mode in modes() {
            let account = Account::limited(max);
            let run = account.run(&program, &[how, "limit"]).env("LEDGERLINE_PERCPU", mode);
            let blocks = numbers(&run.well())[0];
            let rows = account.rows();
            // Idle stock in other CPUs' cells may be missing.
            let bytes = blocks * chunk(100_000);
            assert!(rows.root().peak.value <= max, "{how} {mode}: {:#?}", rows.root());
            assert!(bytes > max * 9 / 10, "{how} {mode}: {bytes}");
            assert!(rows.root().max_events >= 2, "{:#?}", rows.root());
        }
    }
}

#[test]
fn at_max_a_program_under_a_filter_can_be_ended() {
    let program = compiled!("seccomp.c");
    for how in HOW {
        let account = Account::limited(8 << 20);
        let run = account.run(&program, &[how, "limit"]).env("LEDGERLINE_ON_MAX", "kill");
        let ended = run.end();
        assert_eq!(ended.status.signal(), Some(libc::SIGILL), "{how}: {ended:#?}");
        assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("", ""));
    }
}
