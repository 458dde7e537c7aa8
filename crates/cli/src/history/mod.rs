//! Older designs of counting resident pages, as honest stand-ins: their rules, on this machine's CPUs.
//!
//! What the kernel does with preemption disabled is done with atomics on the running CPU's word here, so
//! an update costs somewhat more than it did there; what each *shows*, and how often it writes a line
//! that others write, is as it was.

mod hierarchical;
mod per_cpu_batch;
mod per_task;

pub(crate) use hierarchical::Hierarchical;
pub(crate) use per_cpu_batch::PerCpuBatch;
pub(crate) use per_task::{PerTask, Task};

/// The CPU that the calling thread runs on, below `cpus`.
fn running(cpus: usize) -> usize {
    // SAFETY: sched_getcpu has no preconditions.
    usize::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0) % cpus
}
