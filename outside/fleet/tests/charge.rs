//! A charge into a fleet's budget is as fast as one in a ledger without a fleet: ratios of one run, in an optimised build.
//!
//! A binary of its own: cargo runs one at a time, so that this test has the machine to itself.

#![cfg(not(debug_assertions))]

use outside_fleet::charge::{Charges, MOST};

/// A busy machine disturbs a round, but rarely several runs. Each try also has its cells elsewhere: on Zen 4 a charge
/// takes 1.1 to 3.5 times as long, with a fleet and without, if the addresses of a cell and of the thread's own lines
/// happen to collide (in one process of twenty, and then wherever a ledger begins, since all begin at the same place
/// of 64 KiB).
const TRIES: usize = 5;
const ROUNDS: usize = 501;

#[tokio::test(flavor = "multi_thread")]
async fn a_charge_is_as_fast_with_a_fleet_as_without() {
    let mut made = Vec::new();
    for behind in 0..TRIES {
        made.push(Charges::behind(behind * 100).await.expect("a store"));
    }
    for measure in [Charges::guards, Charges::owned] {
        let figures: Vec<_> = made.iter().map(|charges| measure(charges, ROUNDS)).collect();
        let best = figures.iter().map(|figure| figure.ratio).fold(f64::INFINITY, f64::min);
        assert!(best <= MOST, "{figures:.3?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_charge_that_took_a_lock_would_be_found() {
    let charges = Charges::behind(0).await.expect("a store");
    for _ in 0..TRIES {
        let ratio = charges.locked(ROUNDS).ratio;
        assert!(
            ratio > MOST,
            "a lock makes it {ratio:.3} times as long, which nobody would notice"
        );
    }
}
