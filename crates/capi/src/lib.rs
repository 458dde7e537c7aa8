//! Ledgerline for C and C++. `include/ledgerline.h` is generated from this crate, and describes each call.
//!
//! A caller in C may pass any number at all, and may use a ledger that another thread frees at that moment. So
//! nothing that comes over the border is followed:
//!
//! * a **ledger** is a number, found in a table of places that lives as long as the program (`registry.rs`);
//! * a **group** is the ledger's number and its own number; the library itself refuses a stale one;
//! * a **registration** (a reclaimer, a watch, a token, a victim) is a number in a table of its own
//!   (`registrations.rs`);
//! * pointers are checked for NULL and alignment, texts for their length and UTF-8 (`border.rs`).
//!
//! Every call but the fast half of a charge runs inside `border::run`, which stops panics and keeps the text of an
//! error for the thread.
//!
//! | module          | contents                                                         |
//! |-----------------|------------------------------------------------------------------|
//! | `abi`           | the version of the ABI, the texts of errors                      |
//! | `ledger`        | ledgers: make, open, free, keep                                  |
//! | `ended`         | processes that ended: settle, fold                               |
//! | `group`         | groups: create, find, name, destroy                              |
//! | `charge`        | charges by units                                                 |
//! | `block`         | blocks that another allocator made                               |
//! | `limit`         | limits, modes                                                    |
//! | `read`          | usage, peaks, events, statistics, snapshots, diagnoses           |
//! | `current`       | the current group of a thread                                    |
//! | `reclaim`, `cancel`, `watch` | reclaimers, tokens and victims, eventfds            |
//! | `border`, `registry`, `registrations`, `failure`, `last`, `callback`, `types` | the foundations of those |

// The names are those of C.
#![allow(non_camel_case_types)]
// The header states the requirements for all pointers.
#![allow(clippy::missing_safety_doc)]

#[cfg(panic = "abort")]
compile_error!("panics are stopped at the border to C, which needs panic = \"unwind\"");

pub mod abi;
pub mod block;
mod border;
mod callback;
pub mod cancel;
pub mod charge;
pub mod current;
pub mod ended;
mod failure;
pub mod group;
mod last;
pub mod ledger;
pub mod limit;
pub mod read;
pub mod reclaim;
mod registrations;
mod registry;
pub mod types;
pub mod watch;
