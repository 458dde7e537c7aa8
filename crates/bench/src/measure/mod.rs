//! Rounds of timed work on pinned threads: what the suites and the laboratory measure with.
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

pub mod barrier;
pub mod harness;
pub mod machine;
pub mod padded;
pub mod shuffle;
mod size;
pub mod stats;
pub mod transfer;
