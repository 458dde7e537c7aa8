//! The calibration of a machine: the times of its lines, atomics and locks.
//!
//! The module `ledgerline_bench::measure` has the rounds of timed work that it measures with.

pub mod calibrate;

#[cfg(test)]
#[path = "../../../tests/support/golden.rs"]
mod golden;
