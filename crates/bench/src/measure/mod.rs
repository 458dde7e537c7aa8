//! Rounds of timed work on pinned threads: the measuring tools of the suites and the laboratory.
//!
//! | module      | contents                                                         |
//! |-------------|------------------------------------------------------------------|
//! | `harness`   | rounds of timed work on pinned threads; independent of ledgers   |
//! | `size`      | the work that fills a round                                      |
//! | `barrier`   | threads start together                                           |
//! | `shuffle`   | an order that no prefetcher can learn                            |
//! | `transfer`  | the cost of moving a cache line                                  |
//! | `stats`     | medians                                                          |
//! | `machine`   | CPUs, affinity, names                                            |
//! | `padded`    | separates data that one CPU writes from data that another reads  |

pub mod barrier;
pub mod harness;
pub mod machine;
pub mod padded;
pub mod shuffle;
mod size;
pub mod stats;
pub mod transfer;
