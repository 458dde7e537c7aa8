//! Timed work on pinned threads: what `bench`, `reproduce` and `calibrate` measure with.
//!
//! | room       | what it holds                                                    |
//! |------------|------------------------------------------------------------------|
//! | `harness`  | rounds of timed work on pinned threads; knows nothing of ledgers |
//! | `size`     | how much work fills a round                                      |
//! | `barrier`  | threads start together                                           |
//! | `transfer` | what moving a cache line costs                                   |
//! | `stats`    | medians                                                          |
//! | `machine`  | CPUs, affinity, names                                            |
//! | `padded`   | keeps what one CPU writes away from what another reads           |

pub(crate) mod barrier;
pub(crate) mod harness;
pub(crate) mod machine;
pub(crate) mod padded;
mod size;
pub(crate) mod stats;
pub(crate) mod transfer;
