//! Older designs of counting and limiting. Each follows its own rules, on this machine's CPUs.
//!
//! | module                | design                                                                  |
//! |-----------------------|-------------------------------------------------------------------------|
//! | `res_counter`         | to Linux 3.18: 64-bit counters of bytes in a tree, each under a spinlock|
//! | `page_counter`        | from 3.19: the same tree with one atomic addition a level               |
//! | `page_counter_layout` | 6.0 and 6.1: with protection; fields packed, and separated by writer    |
//! | `tree`                | the common part of `res_counter` and `page_counter`                     |
//! | `stock`               | a CPU's prepaid pages in front of either                                |
//! | `zone`                | 4.13 and 4.14: NUMA counters with per-CPU differences and thresholds    |
//! | `mem_cgroup`          | 4.16: statistics of a group, with its fields in a given layout          |
//! | `per_task`            | to 6.1: resident pages, kept by each task for 64 events                 |
//! | `per_cpu_cache`       | proposed in 2022: kept by each CPU for the address space that it runs   |
//! | `per_cpu_batch`       | from 6.2: a difference for each CPU, and a batch                        |
//! | `hierarchical`        | proposed in 2025: bits above the batch are carried into a tree          |
//!
//! Each shows the same values as the original, and reads and writes the same lines. The kernel disables preemption to
//! change a CPU's own words. Here such a change is made in one of two ways. If each thread has a CPU number to itself
//! (the argument `cpu`), the change is plain loads and stores. Otherwise it is atomics on the running CPU's word, which
//! cost somewhat more than in the kernel.

mod hierarchical;
mod lock;
mod mem_cgroup;
#[cfg(test)]
mod oracle;
mod page_counter;
mod page_counter_layout;
mod per_cpu_batch;
mod per_cpu_cache;
mod per_task;
mod res_counter;
mod stock;
mod tree;
mod word;
mod zone;

pub use hierarchical::Hierarchical;
pub use mem_cgroup::MemCgroup;
pub use page_counter::PageCounter;
pub use page_counter_layout::{Charged, Layout, Packed, Propagate, Split};
pub use per_cpu_batch::PerCpuBatch;
pub use per_cpu_cache::PerCpuCache;
pub use per_task::{PerTask, Task};
pub use res_counter::ResCounter;
pub use stock::Stock;
pub use tree::{Counter, Tree};
pub use zone::{BareZone, Difference, Zone};
