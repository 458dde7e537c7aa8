//! The calibration of a machine: what its lines, atomics and locks take.
//!
//! `ledgerline_bench::measure` has the rounds of timed work that it measures with.

pub mod calibrate;

#[cfg(test)]
#[path = "../../../tests/support/golden.rs"]
mod golden;
