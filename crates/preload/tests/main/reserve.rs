//! The part of the reserve that a process may use after its first refusal.

use crate::support::{Account, compiled, modes, numbers};
use ledgerline_protocol::Item;

const MIB: u64 = 1 << 20;
const RESERVE: u64 = 256 << 10;
/// The largest part for one process.
const SHARE: u64 = RESERVE / 4;

/// Makes an account like `run` does: the root's limit is less by the reserve.
fn account() -> Account {
    Account::limited(8 * MIB - RESERVE)
}

#[test]
fn a_refused_process_has_its_part_of_the_reserve_in_small_blocks_and_anew_after_a_quiet_second() {
    let program = compiled!("reserve.c");
    for mode in modes() {
        for by in ["thread", "process", "library"] {
            let account = account();
            let run = account.run(&program, &[]).env("LEDGERLINE_PERCPU", mode);
            let run = run.env("LEDGERLINE_BY", by).env("LEDGERLINE_RESERVE", &RESERVE.to_string());
            let [first, again] = numbers(&run.well())[..] else { panic!("two numbers") };
            // A page may have been left below the limit.
            assert!((SHARE - 200..SHARE + 4200).contains(&first), "{first} {mode} {by}");
            assert!((SHARE - 200..SHARE + 8400).contains(&again), "{again} {mode} {by}");
            let rows = account.rows();
            assert!(rows.root().peak.value <= 8 * MIB, "{mode} {by}: {:#?}", rows.root());
            let spared =
                account.ledger.root().stat().get(Item::Spared.name()).unwrap().subtree as u64;
            assert!((2 * SHARE / 200..2 * SHARE / 100).contains(&spared), "{spared} {mode} {by}");
        }
    }
}

#[test]
fn without_a_reserve_and_before_the_first_refusal_a_limit_is_a_limit() {
    let program = compiled!("reserve.c");
    for reserve in ["", "0"] {
        let account = Account::limited(8 * MIB);
        let said = account.run(&program, &[]).env("LEDGERLINE_RESERVE", reserve).well();
        let [first, again] = numbers(&said)[..] else { panic!("two numbers") };
        // The rest of a page, and the freed blocks.
        assert!(first < 4200 && again < 8400, "{said}");
        assert!(account.rows().root().peak.value <= 8 * MIB);
    }
}

#[test]
fn threads_and_processes_that_are_refused_at_a_time_stay_below_the_limit_together() {
    let program = compiled!("reserve.c");
    for mode in modes() {
        let account = account();
        let start = || {
            let run = account.run(&program, &["threads"]).env("LEDGERLINE_PERCPU", mode);
            run.env("LEDGERLINE_RESERVE", &RESERVE.to_string()).start()
        };
        let running: Vec<_> = (0..6).map(|_| start()).collect();
        for running in running {
            let ended = running.end();
            assert!(ended.status.success() && ended.stderr.is_empty(), "{ended:#?}");
        }
        let peak = account.rows().root().peak.value;
        assert!(peak <= 8 * MIB && peak > 8 * MIB - RESERVE, "{peak} {mode}");
    }
}
