//! A limit for blocks alone, beside the one for everything that is charged.

use crate::support::{Account, chunk, compiled, live, modes, numbers};
use ledgerline_protocol::Item;
use std::os::unix::process::ExitStatusExt;

const MIB: u64 = 1 << 20;
const MAX_HEAP: u64 = 8 * MIB;
/// The bytes of a process besides the blocks that the programs count.
const OTHERS: u64 = 100_000;

/// Returns whether this number of blocks of 64 KiB fills the limit exactly.
fn is_full(blocks: u64) -> bool {
    ((MAX_HEAP - OTHERS) / chunk(65_536)..=MAX_HEAP / chunk(65_536)).contains(&blocks)
}

/// The sum of an item over all rows.
fn item(account: &Account, name: &str) -> u64 {
    account.ledger.root().stat().get(name).expect("an item of a run").subtree as u64
}

/// Checks that both ledgers agree on the remaining blocks.
fn check_both(account: &Account, note: &str) {
    let (rows, heap) = (account.rows(), account.heap());
    let root = rows.root();
    assert_eq!(heap.root().precise(), root.current - item(account, "mapped"), "{note}: {root:#?}");
    let peak = heap.root().peak().value;
    assert!(peak <= MAX_HEAP && peak > MAX_HEAP - 3 * OTHERS, "{peak} {note}");
}

#[test]
fn blocks_are_refused_at_their_limit_by_every_function_and_no_mapping_is() {
    let (limit, alone) = (compiled!("limit.c"), compiled!("heap.c"));
    for mode in modes() {
        for by in ["thread", "process", "library"] {
            let note = format!("{mode} {by}");
            let account = Account::with_heap(None, MAX_HEAP);
            let run = account.run(&limit, &["fill"]).env("LEDGERLINE_PERCPU", mode);
            let said = run.env("LEDGERLINE_BY", by).well();
            assert!(is_full(numbers(&said)[0] + 1), "{said} {note}");
            check_both(&account, &note);
            // malloc twice, calloc, memalign, aligned_alloc, posix_memalign, realloc.
            assert_eq!(item(&account, "refused_heap"), 7, "{note}");
            let rows = account.rows();
            assert_eq!(rows.root().refused, 0, "{note}: {:#?}", rows.root());
            assert!(live(rows.root()) < 20, "{note}: {:#?}", rows.root());

            let account = Account::with_heap(None, MAX_HEAP);
            let run = account.run(&alone, &["alone"]).env("LEDGERLINE_PERCPU", mode);
            let said = run.env("LEDGERLINE_BY", by).well();
            assert!(is_full(numbers(&said)[0]), "{said} {note}");
            check_both(&account, &note);
            // A row's peak is that of blocks and mappings together.
            let rows = account.rows();
            let peak = rows.processes()[0].peak.value;
            assert!((MAX_HEAP + 25 * MIB..MAX_HEAP + 27 * MIB).contains(&peak), "{peak} {note}");
            assert_eq!(item(&account, "refused_heap"), 1 + 50 + 1000, "{note}");
        }
    }
}

#[test]
fn both_limits_hold_at_a_time_and_what_one_refused_lies_in_neither() {
    let program = compiled!("heap.c");
    for mode in modes() {
        let account = Account::with_heap(Some(40 * MIB), MAX_HEAP);
        let said = account.run(&program, &["both"]).env("LEDGERLINE_PERCPU", mode).well();
        assert!(is_full(numbers(&said)[0]), "{said} {mode}");
        check_both(&account, mode);
        let root = account.rows().root().clone();
        assert!(root.peak.value <= 40 * MIB && root.peak.value > 39 * MIB, "{root:#?}");
        // The mapping and the block that found no room beside each other; the block that met the other limit.
        assert_eq!((root.refused, item(&account, "refused_heap")), (2, 1), "{mode}");
    }
}

#[test]
fn a_block_may_grow_up_to_its_limit_and_threads_lose_no_room_there() {
    let program = compiled!("limit.c");
    for mode in modes() {
        for by in ["thread", "process", "library"] {
            for what in ["grow", "threads"] {
                let account = Account::with_heap(None, MAX_HEAP);
                let run = account.run(&program, &[what]).env("LEDGERLINE_PERCPU", mode);
                run.env("LEDGERLINE_BY", by).well();
                let (rows, heap) = (account.rows(), account.heap());
                let note = format!("{what} {mode} {by}: {:#?}", rows.root());
                assert!(heap.root().peak().value <= MAX_HEAP, "{note}");
                assert!(heap.root().precise() < OTHERS, "{note}");
                assert_eq!(heap.root().precise(), rows.root().current, "{note}");
            }
        }
    }
}

#[test]
fn processes_share_the_limit_and_what_the_dead_had_makes_room_by_itself() {
    let program = compiled!("heap.c");
    for mode in modes() {
        let account = Account::with_heap(None, MAX_HEAP);
        let said = account.run(&program, &["fork"]).env("LEDGERLINE_PERCPU", mode).well();
        assert_eq!(numbers(&said).len(), 6);
        // Each child has some further blocks that are not counted.
        for blocks in numbers(&said) {
            assert!(is_full(blocks) || is_full(blocks + 1), "{said} {mode}");
        }
        assert!(account.heap().root().peak().value <= MAX_HEAP);

        // Two at a time share one limit, and the second one's refusal takes nothing from the first.
        let limit = compiled!("limit.c");
        let account = Account::with_heap(None, MAX_HEAP);
        let hold = || {
            account.run(&limit, &["hold", &(5 * MIB).to_string()]).env("LEDGERLINE_PERCPU", mode)
        };
        let mut first = hold().start();
        assert_eq!(first.said(), "holds\n");
        let second = hold().end();
        assert!(second.stdout.contains("block (errno 12)"), "{second:#?}");
        assert!((5 * MIB..6 * MIB).contains(&account.heap().root().precise()), "{mode}");
        first.child.kill().unwrap();
        first.end();
    }
}

#[test]
fn in_kill_mode_it_is_said_which_limit_was_met() {
    let program = compiled!("limit.c");
    for mode in modes() {
        let account = Account::with_heap(Some(80 * MIB), MAX_HEAP);
        let run = account.run(&program, &["kill"]).env("LEDGERLINE_PERCPU", mode);
        let ended = run.env("LEDGERLINE_ON_MAX", "kill").end();
        assert_eq!(ended.status.signal(), Some(libc::SIGKILL), "{ended:#?}");
        let (who, why) = ended.stderr.split_once(": max-heap ").expect(&ended.stderr);
        assert!(who.starts_with("ledgerline: killed: /limit."), "{ended:#?}");
        assert_eq!(why, "8.0M: 7.9M in use, 64.0K asked for\n");
    }
}

#[test]
fn the_reserve_is_a_part_of_the_limit_for_blocks_too() {
    const RESERVE: u64 = 256 << 10;
    let program = compiled!("reserve.c");
    for mode in modes() {
        // Like `run` does: the root's limit is less by the reserve.
        let account = Account::with_heap(None, MAX_HEAP - RESERVE);
        let run = account.run(&program, &[]).env("LEDGERLINE_PERCPU", mode);
        let said = run.env("LEDGERLINE_RESERVE", &RESERVE.to_string()).well();
        let [first, again] = numbers(&said)[..] else { panic!("two numbers") };
        let share = RESERVE / 4;
        assert!((share - 200..share + 4200).contains(&first), "{first} {mode}");
        assert!((share - 200..share + 8400).contains(&again), "{again} {mode}");
        assert!(account.heap().root().peak().value <= MAX_HEAP, "{mode}");
        let spared = item(&account, Item::SparedHeap.name());
        assert!((2 * share / 200..2 * share / 100).contains(&spared), "{spared} {mode}");
        assert_eq!(item(&account, Item::Spared.name()), 0, "{mode}");
    }
}
