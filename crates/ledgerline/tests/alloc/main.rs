//! The tests of the global allocator, in one binary that uses it.
//!
//! They are threads of one process. A test of state that a process has once (owners' numbers, switches, counts, places of
//! threads) begins with `ran_alone` (`common`), which starts a process for it.

#[path = "../common/mod.rs"]
mod common;

use ledgerline::Alloc;

#[global_allocator]
static ALLOC: Alloc = Alloc::system();

mod alloc;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod alloc_beyond;
mod alloc_blocks;
#[cfg(not(feature = "unwind"))]
mod alloc_catch;
#[cfg(not(feature = "unwind"))]
mod alloc_culprit;
mod alloc_early;
mod alloc_fork;
mod alloc_full;
mod alloc_limits;
mod alloc_oracle;
mod alloc_scopes;
mod alloc_slots;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod alloc_stepped;
#[cfg(all(feature = "futures", feature = "rayon", feature = "tokio", not(feature = "unwind")))]
mod alloc_stress;
mod alloc_switch;
mod alloc_tasks;
mod alloc_thread_caches;
