//! The integration tests that need no allocator of their own, in one binary, since linking each file by itself takes longer
//! than compiling it.
//!
//! They are threads of one process. A test that observes or changes the whole process, that forks, or that its neighbours must
//! not hold up, begins with `in_both_modes` or `ran_alone` (`common`), which starts a process for it.

#[cfg(target_env = "gnu")]
#[path = "../../../../tests/support/cgroup.rs"]
mod cgroup;
#[path = "../common/mod.rs"]
mod common;
#[path = "../../../../tests/support/scribble.rs"]
mod scribble;
mod support;

use common::Random;

mod announce;
mod audit;
mod audit_model;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod calls;
mod container;
#[cfg(target_env = "gnu")]
mod container_cgroup;
mod control;
mod counters;
mod counters_file;
mod counters_threads;
#[cfg(target_env = "gnu")]
mod current_fibers;
#[cfg(feature = "futures")]
mod current_futures;
#[cfg(feature = "rayon")]
mod current_rayon;
#[cfg(feature = "tokio")]
mod current_tokio;
#[cfg(feature = "tracing")]
mod current_tracing;
mod damaged;
mod damaged_rows;
mod destroy;
mod diagnosis;
mod events;
#[cfg(feature = "tracing-events")]
mod export_events;
#[cfg(feature = "metrics")]
mod export_metrics;
mod figures;
mod fold;
mod fork;
mod futures;
mod gone;
mod gone_race;
mod groups;
mod idle;
mod leak;
mod limits;
mod memory_stat;
mod modes;
mod names;
mod oom;
mod oracle;
mod pressure;
mod processes;
mod reclaim;
mod room;
mod rss;
mod set_max;
mod shared;
mod shared_file;
mod signals;
mod soak;
mod sparing;
mod steer;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod stepped;
mod threads;
mod throttle;
mod together;
mod transfer;
mod tree;
mod view;
mod wait;
