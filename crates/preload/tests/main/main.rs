//! C and C++ programs run with the library preloaded, and the accounts that they leave.
//!
//! The tests share this process. They can, because each has a ledger in a file in memory and a folder for its programs,
//! and passes everything else to the programs by their environment.

#![cfg(all(target_os = "linux", target_env = "gnu"))]

mod account;
#[cfg(target_arch = "x86_64")]
mod allocators;
#[cfg(target_arch = "x86_64")]
mod asked;
mod contract;
mod fork;
mod heap;
mod limits;
mod mapped;
#[cfg(target_arch = "x86_64")]
mod musl;
#[cfg(target_arch = "x86_64")]
mod next;
#[cfg(target_arch = "x86_64")]
mod plugins;
mod realloc;
mod reserve;
#[cfg(target_arch = "x86_64")]
mod seccomp;
#[path = "../../../../tests/support/seed.rs"]
mod seed;
mod start;
mod support;
