//! Per-CPU memory without locks: restartable sections, columns that threads own, the fallback, the remote fences.
//!
//! `README.md` in this folder has the pseudocode, the invariants and the proof sketch.
//!
//! | module          | what it holds                                                     |
//! |-----------------|-------------------------------------------------------------------|
//! | `registration`  | glibc's rseq registration, adopted                                |
//! | `own_area`      | the registration that this library makes where the C library makes none |
//! | `instructions`  | the instructions of all sections, a file for each machine         |
//! | `rseq`          | the sections of cells; how a section is armed is below, by architecture |
//! | `narrow`        | the sections of counters with a threshold                         |
//! | `sums`          | sections that return a sum, or test a mark                        |
//! | `words`         | one interface over those: words by column                         |
//! | `lent`          | the sections of charges that come by number                       |
//! | `word`          | the charge word and its portable update                           |
//! | `owned`         | the update of a column that a thread owns, and how it is taken    |
//! | `thread_slots`         | which thread owns which column                                    |
//! | `windows`       | a charge in the column that the thread owns; instructions are below, by architecture |
//! | `columns`       | one interface over all: cells by column                           |
//! | `linked`        | names and thread-local variables that the linker places           |
//! | `machine`       | how many CPUs there may be; the thread's pointer and stripe       |
//! | `node`          | the NUMA node of the running CPU                                  |
//! | `membarrier`    | the remote fences                                                 |
//! | `visit`         | the fence where a filter refuses `membarrier` after the start     |
//! | `probe`         | the self-test that chooses the mode                               |
//! | `grounds`       | why it is that mode, in words                                     |
//! | `array`         | bare per-CPU sums                                                 |
//! | `tagged`        | cells of several sums; a cell serves the group that its tag names |

#[cfg(not(loom))]
#[cfg_attr(not(rseq), allow(unused_macros, reason = "nothing runs a section"))]
#[macro_use]
pub(crate) mod instructions;

#[cfg(not(loom))]
mod array;
#[cfg(not(loom))]
mod columns;
mod grounds;
#[cfg(all(rseq, test))]
pub(crate) mod inject;
#[cfg(not(loom))]
#[cfg_attr(not(rseq), allow(unused, reason = "nothing runs a section"))]
mod lent;
#[cfg(rseq)]
mod linked;
#[cfg(not(loom))]
mod machine;
#[cfg(not(loom))]
pub(crate) mod membarrier;
#[cfg(not(loom))]
#[cfg_attr(not(rseq), allow(unused, reason = "nothing runs a section"))]
pub(crate) mod narrow;
#[cfg(not(loom))]
mod node;
#[cfg(own_area)]
mod own_area;
pub(crate) mod owned;
#[cfg(not(loom))]
pub(crate) mod probe;
#[cfg(not(loom))]
pub(crate) mod registration;
#[cfg(not(loom))]
#[cfg_attr(not(rseq), allow(unused, reason = "nothing runs a section"))]
pub(crate) mod rseq;
#[cfg(not(loom))]
#[cfg_attr(not(rseq), allow(unused, reason = "nothing runs a section"))]
pub(crate) mod sums;
#[cfg(not(loom))]
mod tagged;
pub(crate) mod thread_cache;
#[cfg(not(loom))]
pub(crate) mod thread_slots;
#[cfg(rseq)]
mod visit;
#[cfg(not(loom))]
pub(crate) mod windows;
pub(crate) mod word;
#[cfg(not(loom))]
mod words;

#[cfg(not(loom))]
pub use self::{
    array::Array,
    machine::{possible_cpus, tell_possible_cpus},
};
#[cfg(not(loom))]
pub(crate) use self::{
    columns::{Columns, columns_in_memory, put_fast, put_first, put_lent},
    columns::{take_fast, take_first, take_known, take_lent},
    lent::Lent,
    machine::{columns_in_files, columns_of_cpus, stripe, thread_pointer},
    membarrier::fence,
    node::running_node,
    tagged::Tagged,
    word::STRIDE,
    words::Words,
};
pub use grounds::{Grounds, Index, Without};

/// Releases the thread slots and thread caches of threads that do not exist in this process, a forked child.
#[cfg(not(loom))]
pub(crate) fn forget_other_threads() {
    thread_slots::forget_other_threads();
    thread_cache::places::forget_other_threads(thread_pointer());
}

/// The mark, bit 0 of a marked word: readers of the row know of this column. The value is in the 63 bits above.
const MARK: u64 = 1;

/// How this process updates its per-CPU memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Restartable sequences: plain instructions on the running CPU's column, restarted by the
    /// kernel when they are interrupted.
    Rseq,
    /// Plain instructions on a column that the running thread owns, and a fence for a thread that takes from it.
    /// Used if there are no restartable sequences: with glibc before 2.35, with musl in dynamic programs and on
    /// arm64, on Linux before 5.10, and on other architectures than x86-64 and arm64. This mode serves charges of
    /// ledgers in memory. A ledger in a file, statistics, counters and sums use atomics as in the fallback.
    Owned,
    /// Relaxed atomics on a column chosen by thread: for kernels before 4.14, sandboxes, other systems.
    Fallback,
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Mode::Rseq => "rseq",
            Mode::Owned => "owned",
            Mode::Fallback => "fallback",
        })
    }
}

/// Returns the mode of this process, which is determined on the first call.
///
/// The self-test comes first: a short-lived thread fences this one in the middle of a section, and the mode is
/// [`Mode::Rseq`] only if the section was aborted. On arm64, where kernels may lack that, another thread also takes
/// the section's CPU, and the section must be aborted then, too; that takes some milliseconds. Without sections the
/// mode is [`Mode::Owned`] if the kernel has `membarrier(PRIVATE_EXPEDITED)` (Linux 4.14) and the C library reports
/// when a thread ends; otherwise [`Mode::Fallback`]. [`grounds`] returns the reason.
///
/// `LEDGERLINE_PERCPU=fallback` forces the fallback. `LEDGERLINE_PERCPU=owned` leaves out the sections.
/// `LEDGERLINE_PERCPU=rseq` skips the self-test, for an environment in which it has passed before, but not the
/// check that the thread is registered. Any other value is ignored.
#[cfg(not(loom))]
pub fn detect() -> Mode {
    probe::grounds().mode
}

/// Returns the mode of this process and the reasons for it, which are determined on the first call of this or of
/// [`detect`].
///
/// ```
/// use ledgerline::percpu::{self, Mode};
///
/// let grounds = percpu::grounds();
/// assert_eq!(grounds.mode, percpu::detect());
/// if let Err(why) = grounds.sections {
///     println!("no restartable sequences: {why}; {}", why.remedy().unwrap_or("nothing changes that"));
/// }
/// ```
#[cfg(not(loom))]
pub fn grounds() -> Grounds {
    probe::grounds()
}
