//! What the sections are made of: a file for each machine, with the instructions of all sections by their names.
//!
//! The sections themselves, with their pseudocode, are in `rseq.rs`, `narrow.rs`, `sums.rs`, `lent.rs` and `purse.rs`. How
//! one is armed and restarted is in `rseq/`.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::section;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::{TESTED, section};
