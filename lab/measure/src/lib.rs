//! Timed work on pinned threads, and the calibration of a machine: what the laboratory measures with.
//!
//! | module      | what it holds                                                    |
//! |-------------|------------------------------------------------------------------|
//! | `harness`   | rounds of timed work on pinned threads; knows nothing of ledgers |
//! | `size`      | how much work fills a round                                      |
//! | `barrier`   | threads start together                                           |
//! | `shuffle`   | an order that no prefetcher can learn                            |
//! | `transfer`  | what moving a cache line costs                                   |
//! | `stats`     | medians                                                          |
//! | `machine`   | CPUs, affinity, names                                            |
//! | `padded`    | keeps what one CPU writes away from what another reads           |
//! | `calibrate` | what this machine's lines, atomics and locks take                |

mod barrier;
pub mod calibrate;
pub mod harness;
pub mod machine;
pub mod padded;
pub mod shuffle;
mod size;
pub mod stats;
mod transfer;

#[cfg(test)]
#[path = "../../../tests/support/golden.rs"]
mod golden;
