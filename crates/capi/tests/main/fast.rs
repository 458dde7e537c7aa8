//! Tests that a charge takes the fast path, also through the border: a ledger whose charges all take the slow path is
//! much slower, in the same run and by the same calls.

use ledgerline_c::charge::{ledgerline_try_charge_units, ledgerline_uncharge};
use ledgerline_c::group::ledgerline_group_create;
use ledgerline_c::ledger::{LEDGERLINE_FLOWS, ledgerline_ledger_new, ledgerline_ledger_root};
use ledgerline_c::types::ledgerline_code_t::LEDGERLINE_OK;
use ledgerline_c::types::{ledgerline_group_t, ledgerline_ledger_t, ledgerline_options_t};
use std::time::{Duration, Instant};

fn group(flags: u32) -> ledgerline_group_t {
    let mut options = ledgerline_options_t {
        size: size_of::<ledgerline_options_t>() as u32,
        capacity: 8,
        batch: 0,
        items: std::ptr::null(),
        item_count: 0,
        reclaim_ms: 0,
        throttle_ms: 0,
        victim_ms: 0,
        flags: 0,
        reserved: 0,
    };
    options.flags = flags;
    let (mut ledger, mut root) = (ledgerline_ledger_t::default(), ledgerline_group_t::default());
    let mut group = root;
    // SAFETY: the places are this function's, and the name has one byte.
    unsafe {
        assert_eq!(ledgerline_ledger_new(&raw const options, &raw mut ledger), LEDGERLINE_OK);
        assert_eq!(ledgerline_ledger_root(ledger, &raw mut root), LEDGERLINE_OK);
        let created = ledgerline_group_create(root, c"g".as_ptr(), 1, &raw mut group);
        assert_eq!(created, LEDGERLINE_OK);
    }
    assert_eq!(ledgerline_try_charge_units(group, 1 << 20), LEDGERLINE_OK);
    group
}

fn pairs(group: ledgerline_group_t) -> Duration {
    let start = Instant::now();
    for _ in 0..2000 {
        assert_eq!(ledgerline_try_charge_units(group, 64), LEDGERLINE_OK);
        assert_eq!(ledgerline_uncharge(group, 64), LEDGERLINE_OK);
    }
    start.elapsed()
}

#[test]
fn a_charge_is_served_without_a_walk() {
    let ledger = ledgerline::Ledger::builder().capacity(4).anonymous().unwrap();
    if ledger.root().prepaid().is_none() {
        eprintln!("skipped: there is no fast path on this machine");
        return;
    }
    let (fast, slow) = (group(0), group(LEDGERLINE_FLOWS));
    let mut rounds: Vec<_> = (0..41).map(|_| (pairs(fast), pairs(slow))).collect();
    let ratio = |&(fast, slow): &(Duration, Duration)| fast.as_secs_f64() / slow.as_secs_f64();
    rounds.sort_by(|a, b| ratio(a).total_cmp(&ratio(b)));
    let (fast, slow) = rounds[rounds.len() / 2];
    assert!(fast * 2 < slow, "{fast:?} by the fast path, {slow:?} by the slow one");
    println!("{fast:?}, {slow:?}");
}
