//! A guard costs what README says beside the units alone: ratios of one run, in an optimised build.

#![cfg(not(debug_assertions))]

use ledgerline::percpu::{Mode, detect};
use outside::fast_path::{MOST, figures};

/// A busy machine disturbs a round, and rarely several runs.
const TRIES: usize = 5;

#[test]
fn a_guard_costs_little_more_than_the_units_alone() {
    if detect() != Mode::Rseq {
        eprintln!("no restartable sequences here: the fast path is not there to be timed");
        return;
    }
    let mut last = String::new();
    for _ in 0..TRIES {
        let slow: Vec<String> = [1, 2]
            .into_iter()
            .flat_map(|threads| {
                let figures = figures(threads, 15, 100_000).expect("a ledger can be made");
                let units = figures[0].median;
                MOST.into_iter().filter_map(move |(name, most)| {
                    let figure = figures.iter().find(|figure| figure.name == name)?;
                    let ratio = figure.median / units;
                    (ratio > most).then(|| format!("{name}, {threads} threads: {ratio:.2} x"))
                })
            })
            .collect();
        if slow.is_empty() {
            return;
        }
        last = slow.join("; ");
    }
    panic!("{last}");
}
