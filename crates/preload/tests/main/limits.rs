//! Refusals at `max`, and the return of memory that ended processes held.

use crate::support::{Account, Running, chunk, compiled, live, modes, numbers};
use ledgerline::GroupState;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

const MIB: u64 = 1 << 20;

#[test]
fn at_max_malloc_fails_and_the_program_goes_on() {
    let program = compiled!("limit.c");
    for mode in modes() {
        for by in ["thread", "process", "library"] {
            let account = Account::limited(8 * MIB);
            let run = account.run(&program, &["fill"]).env("LEDGERLINE_PERCPU", mode);
            let said = run.env("LEDGERLINE_BY", by).well();
            let rows = account.rows();
            let root = rows.root();
            // One of them has made room by then: other charges are small.
            let blocks = numbers(&said)[0] + 1;
            assert!(
                ((8 * MIB - 100_000) / chunk(65_536)..=8 * MIB / chunk(65_536)).contains(&blocks),
                "{blocks} {mode} {by}"
            );
            assert!(
                root.peak.value <= 8 * MIB && root.peak.value > 8 * MIB - 200_000,
                "{mode}: {root:#?}"
            );
            // malloc twice, calloc, memalign, aligned_alloc, posix_memalign, realloc.
            assert_eq!((root.refused, root.max_events), (7, 7), "{mode} {by}: {root:#?}");
            assert!(root.current < 100_000 && live(root) < 20, "{mode} {by}: {root:#?}");
        }
    }
}

#[test]
fn a_block_may_grow_up_to_the_limit() {
    let program = compiled!("limit.c");
    for mode in modes() {
        for by in ["thread", "process", "library"] {
            let account = Account::limited(8 * MIB);
            let run = account.run(&program, &["grow"]).env("LEDGERLINE_PERCPU", mode);
            run.env("LEDGERLINE_BY", by).well();
            let rows = account.rows();
            assert_eq!(rows.root().refused, 1, "{mode} {by}");
            assert!(rows.root().current < 100_000, "{mode} {by}: {:#?}", rows.root());
        }
    }
}

#[test]
fn threads_at_the_limit_lose_no_room() {
    let program = compiled!("limit.c");
    for mode in modes() {
        let account = Account::limited(8 * MIB);
        account.run(&program, &["threads"]).env("LEDGERLINE_PERCPU", mode).well();
        let rows = account.rows();
        assert!(rows.root().peak.value <= 8 * MIB, "{:#?}", rows.root());
        assert!(rows.root().current < 100_000, "{mode}: {:#?}", rows.root());
    }
}

#[test]
fn in_kill_mode_a_program_dies_and_says_why() {
    let program = compiled!("limit.c");
    for mode in modes() {
        let account = Account::limited(8 * MIB);
        let run = account.run(&program, &["kill"]).env("LEDGERLINE_PERCPU", mode);
        let ended = run.env("LEDGERLINE_ON_MAX", "kill").end();
        assert_eq!(ended.status.signal(), Some(libc::SIGKILL), "{ended:#?}");
        assert_eq!(ended.stderr.lines().count(), 1, "{ended:#?}");
        // The line begins with the row of the program's thread.
        let (who, why) = ended.stderr.split_once(": max ").unwrap();
        let rows = account.rows();
        let row = rows.0.groups.iter().find(|row| row.depth == 2).unwrap();
        assert_eq!(who, format!("ledgerline: killed: {}", row.path));
        let stat = account.ledger.group(row.id).stat();
        let own = |name: &str| stat.get(name).unwrap().own as u64;
        let largest = [chunk(65_536), own("refused_largest")];
        assert_eq!([own("refused_first"), largest[1]], largest, "{stat:?}");
        assert!(own("refused_first_time") > 0, "{stat:?}");
        assert_eq!(why, "8.0M: 7.9M in use, 64.0K asked for\n");
        assert!(ended.stderr.starts_with("ledgerline: killed: "), "{}", ended.stderr);
    }
}

#[test]
fn with_stack_the_first_refusal_of_a_row_says_who_asked() {
    let program = compiled!("stack.c");
    for mode in modes() {
        let account = Account::limited(8 * MIB);
        let run = account.run(&program, &[]).env("LEDGERLINE_PERCPU", mode);
        let ended = run.env("LEDGERLINE_STACK", "1").end();
        assert!(ended.status.success(), "{ended:#?}");
        let functions = numbers(&ended.stdout);
        let (title, places) = ended.stderr.split_once('\n').unwrap();
        assert!(title.starts_with("ledgerline: refused 5243") && title.ends_with(", asked for by"));
        assert_eq!(ended.stderr.matches("refused").count(), 1, "{}", ended.stderr);
        // "  inner+0x12 (/path/to/stack+0x1234)": the first two are known.
        for (place, start) in places.lines().zip(functions) {
            let (_, offset) = place.rsplit_once("/stack+0x").unwrap_or_else(|| panic!("{place}"));
            let offset = u64::from_str_radix(offset.trim_end_matches(')'), 16).unwrap();
            assert!((start..start + 200).contains(&offset), "{place}: {start:x}");
        }
        assert!(places.lines().count() >= 3, "{places}");
        assert!(places.contains("__libc_start_main"), "{places}");
    }
}

/// Starts a program that holds `size` bytes, and kills it: it has ended, but is not reaped.
fn killed(account: &Account, program: &Path, size: u64, mode: &str) -> Running {
    let run = account.run(program, &["hold", &size.to_string()]).env("LEDGERLINE_PERCPU", mode);
    let mut running = run.start();
    assert_eq!(running.said(), "holds\n");
    running.child.kill().unwrap();
    // SAFETY: a record of zeros is a valid one, which the call may fill; it waits for a child of this process.
    let waited = unsafe {
        let mut information: libc::siginfo_t = std::mem::zeroed();
        let options = libc::WEXITED | libc::WNOWAIT;
        libc::waitid(libc::P_PID, running.child.id(), &raw mut information, options)
    };
    assert_eq!(waited, 0);
    running
}

#[test]
fn what_a_killed_process_held_can_be_settled() {
    let program = compiled!("limit.c");
    for mode in modes() {
        let account = Account::new();
        let dead = killed(&account, &program, 50 * MIB, mode);
        let process = dead.child.id();
        dead.end();
        let held = account.rows().root().current;
        assert!((50 * MIB..51 * MIB).contains(&held), "{held}");
        assert_eq!(account.ledger.settle_dead(&|_| true), 0);
        let settled = account.ledger.settle_dead(&|owner| owner != process);
        assert!((50 * MIB..51 * MIB).contains(&settled), "{settled}");
        let rows = account.rows();
        assert_eq!((rows.root().current, rows.root().approximate), (0, 0), "{mode}");
        let row = rows.processes()[0];
        assert_eq!((row.state, row.current, row.at_exit), (GroupState::Exited, 0, held));
    }
}

#[test]
fn at_max_what_the_dead_held_makes_room_by_itself() {
    let program = compiled!("limit.c");
    for mode in modes() {
        for reaped in [true, false] {
            let account = Account::limited(60 * MIB);
            let dead = killed(&account, &program, 50 * MIB, mode);
            // A child that its parent has not waited for has returned its memory, too.
            let zombie = if reaped {
                dead.end();
                None
            } else {
                Some(dead)
            };
            let next = killed(&account, &program, 50 * MIB, mode);
            next.end();
            drop(zombie);
            assert!(account.rows().root().peak.value <= 60 * MIB, "{mode}");
        }
    }
}

#[test]
fn at_max_the_living_keep_what_they_have() {
    let program = compiled!("limit.c");
    let account = Account::limited(60 * MIB);
    let mut first = account.run(&program, &["hold", "52428800"]).start();
    assert_eq!(first.said(), "holds\n");
    let second = account.run(&program, &["hold", "52428800"]).end();
    assert!(second.stdout.contains("block (errno 12)"), "{second:#?}");
    assert!(account.rows().root().current >= 50 * MIB);
    first.child.kill().unwrap();
    first.end();
}
