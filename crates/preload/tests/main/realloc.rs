//! A block that another thread than its owner reallocs, under limits.

use crate::support::{Account, compiled, live, modes};
use ledgerline::Limit;

const MIB: u64 = 1 << 20;
/// The most that such a program takes beside its blocks.
const LITTLE: u64 = 100_000;

#[test]
fn at_max_another_threads_realloc_is_refused_only_if_the_difference_does_not_fit() {
    let program = compiled!("realloc.c");
    for mode in modes() {
        for by in ["thread", "process", "library"] {
            let account = Account::limited(8 * MIB);
            let run = account.run(&program, &["others"]).env("LEDGERLINE_PERCPU", mode);
            run.env("LEDGERLINE_BY", by).well();
            let rows = account.rows();
            let root = rows.root();
            assert_eq!((root.refused, root.max_events), (1, 1), "{mode} {by}: {root:#?}");
            assert!(root.peak.value <= 8 * MIB, "{mode} {by}: {root:#?}");
            for row in &rows.0.groups {
                assert!(row.current < LITTLE && live(row) < 20, "{mode} {by}: {row:#?}");
            }
        }
    }
}

#[test]
fn where_blocks_have_a_limit_of_their_own_it_is_asked_for_the_difference_too() {
    let program = compiled!("realloc.c");
    for mode in modes() {
        let account = Account::with_heap(None, 8 * MIB);
        account.run(&program, &["others"]).env("LEDGERLINE_PERCPU", mode).well();
        assert!(account.rows().root().current < LITTLE, "{mode}");
        assert!(account.heap().root().precise() < LITTLE, "{mode}");
    }
}

#[test]
fn a_row_whose_own_limit_has_no_room_leaves_the_block_to_its_owner() {
    let program = compiled!("realloc.c");
    for mode in modes() {
        let account = Account::new();
        let run = account.run(&program, &["own"]).env("LEDGERLINE_PERCPU", mode);
        let mut running = run.start();
        assert_eq!(running.said(), "ready\n");
        let worker = account.rows().row("worker").id;
        account.ledger.group(worker).set_max(Limit::units(MIB)).unwrap();
        // SAFETY: signals a child that was not waited for.
        assert_eq!(unsafe { libc::kill(running.child.id() as i32, libc::SIGUSR1) }, 0);
        let ended = running.end();
        assert!(ended.status.success() && ended.stderr.is_empty(), "{ended:#?}");
        let rows = account.rows();
        let (worker, main) = (rows.row("worker"), rows.row("realloc"));
        assert!(worker.current < LITTLE && worker.peak.value < MIB, "{mode}: {worker:#?}");
        assert!((3 * MIB..3 * MIB + LITTLE).contains(&main.current), "{mode}: {main:#?}");
        // This is the request beyond its own limit.
        assert_eq!(worker.max_events, 1, "{mode}: {worker:#?}");
    }
}

#[test]
fn a_realloc_that_fails_leaves_the_charge_where_it_was() {
    let program = compiled!("realloc.c");
    for mode in modes() {
        let account = Account::new();
        account.run(&program, &["fails"]).env("LEDGERLINE_PERCPU", mode).well();
        let rows = account.rows();
        assert!(rows.row("worker").current < LITTLE, "{mode}: {rows:#?}");
        let main = rows.row("realloc");
        assert!((4 * MIB..4 * MIB + LITTLE).contains(&main.current), "{mode}: {main:#?}");
    }
}
