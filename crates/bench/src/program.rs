//! The program that the suite `run` starts, plain and under `ledgerline run`: this command with the hidden option `--work`.

use crate::measure::stats::median;
use clap::ValueEnum;
use std::hint::black_box;
use std::process::Command;
use std::time::Instant;

/// What a program does again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Work {
    Malloc,
    Sizes,
    Start,
}

/// The name of the preloaded library's file, by which a program knows that it runs under `run`.
const PRELOADED: &str = "ledgerline-preload";

impl Work {
    /// Works in this process. Returns the time, and whether that was under `run`.
    pub(super) fn measured(self, quick: bool) -> Result<String, String> {
        let (rounds, operations) = match self {
            Work::Malloc | Work::Sizes => (25, 200_000),
            Work::Start => (50, 1),
        };
        let (rounds, operations) =
            if quick { (3, operations.min(10_000)) } else { (rounds, operations) };
        let mut took = Vec::new();
        // The first round warms up.
        for round in 0..=rounds {
            let start = Instant::now();
            self.work(operations)?;
            if round > 0 {
                took.push(start.elapsed().as_secs_f64() * 1e9 / operations as f64);
            }
        }
        let maps = std::fs::read_to_string("/proc/self/maps")
            .map_err(|error| format!("cannot read /proc/self/maps: {error}"))?;
        let place = if maps.contains(PRELOADED) { "run" } else { "plain" };
        Ok(format!("{} {place}\n", median(&took)))
    }

    fn work(self, operations: usize) -> Result<(), String> {
        match self {
            Work::Malloc => (0..operations).for_each(|_| pair(64)),
            Work::Sizes => (0..operations).for_each(|at| pair(at & 511)),
            Work::Start => {
                let cannot = |why: &dyn std::fmt::Display| format!("cannot start `true`: {why}");
                for _ in 0..operations {
                    let status = Command::new("true").status().map_err(|error| cannot(&error))?;
                    if !status.success() {
                        return Err(cannot(&status));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Allocates and frees a block of the C library.
fn pair(size: usize) {
    // SAFETY: the block, or null, is freed once, and is not written to. Guarded by
    // `work_is_measured_in_the_place_where_it_is_done`.
    unsafe { libc::free(black_box(libc::malloc(black_box(size)))) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_measured_in_the_place_where_it_is_done() {
        for work in [Work::Malloc, Work::Sizes, Work::Start] {
            let told = work.measured(true).unwrap();
            let (took, place) = told.trim_end().split_once(' ').unwrap();
            assert!(took.parse::<f64>().unwrap() > 0.0, "{told}");
            assert_eq!(place, "plain");
        }
    }
}
