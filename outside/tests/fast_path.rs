//! A guard costs as much as README says, relative to the units alone: ratios of one run, in an optimised build.
//!
//! A binary of its own: cargo runs one at a time, so that this test has the machine to itself.

#![cfg(not(debug_assertions))]

use ledgerline::percpu::{Mode, detect};
use outside::fast_path::{MOST, MOST_OWNED, figures};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// Held by the test that is timing.
static TIMING: Mutex<()> = Mutex::new(());

/// A busy machine disturbs a round, but rarely several runs.
const TRIES: usize = 5;

#[test]
fn a_guard_costs_little_more_than_the_units_alone() {
    if detect() != Mode::Rseq {
        eprintln!("no restartable sequences here: the fast path is not there to be timed");
        return;
    }
    let _alone = TIMING.lock().unwrap_or_else(PoisonError::into_inner);
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

/// Returns the cost of a guard in another mode, in nanoseconds: the median of a process that has the mode, or `None`
/// if it is not available.
fn guard_in(mode: Mode, name: &str) -> Option<f64> {
    let mut again = Command::new(std::env::current_exe().expect("a test knows where it lies"));
    again.args(["prints_what_a_guard_takes", "--exact", "--ignored", "--nocapture"]);
    let output = again.env("LEDGERLINE_PERCPU", name).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let line = said.lines().find_map(|line| line.strip_prefix(TAKES)).expect("it says so");
    let (had, ns) = line.split_once(' ').expect("a mode and a number");
    (had == format!("{mode:?}")).then(|| ns.parse().expect("a number"))
}

/// The beginning of the line that [`prints_what_a_guard_takes`] prints.
const TAKES: &str = "a guard takes: ";

#[test]
#[ignore = "the test below starts it, in each mode: a process has one"]
fn prints_what_a_guard_takes() {
    let figures = figures(1, 15, 100_000).expect("a ledger can be made");
    let guard = figures.iter().find(|figure| figure.name == "guard").expect("it is timed");
    println!("\n{TAKES}{:?} {}", detect(), guard.median);
}

#[test]
fn a_guard_in_an_owned_column_takes_at_most_half_of_one_by_atomics() {
    let _alone = TIMING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut ratios = Vec::new();
    for _ in 0..TRIES {
        let Some(owned) = guard_in(Mode::Owned, "owned") else {
            eprintln!("threads own no columns here");
            return;
        };
        let atomics = guard_in(Mode::Fallback, "fallback").expect("atomics are everywhere");
        if owned <= MOST_OWNED * atomics {
            return;
        }
        ratios.push(owned / atomics);
    }
    panic!("a guard takes {ratios:.2?} of one by atomics");
}
