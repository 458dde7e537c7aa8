//! Per-CPU memory without locks: restartable sections, their fallback, the remote fence.
//!
//! `README.md` in this folder has the pseudocode, the invariants and the proof sketch.
//!
//! | module          | what it holds                                                     |
//! |-----------------|-------------------------------------------------------------------|
//! | `registration`  | glibc's rseq registration, adopted                                |
//! | `rseq`          | the sections of cells; instructions are below, by architecture    |
//! | `narrow`        | the sections of counters with a threshold                         |
//! | `sums`          | sections that return a sum, or test a mark                        |
//! | `words`         | one interface over those: words by column                         |
//! | `lent`          | the sections of charges that come by number                       |
//! | `word`          | the charge word and its portable update                           |
//! | `columns`       | one interface over both: cells by column                          |
//! | `node`          | the NUMA node of the running CPU                                  |
//! | `membarrier`    | the remote fence                                                  |
//! | `probe`         | the self-test that chooses the mode                               |
//! | `array`         | bare per-CPU sums                                                 |
//! | `tagged`        | cells of several sums; a cell serves the group that its tag names |

#[cfg(not(loom))]
mod array;
#[cfg(not(loom))]
mod columns;
#[cfg(all(rseq, test))]
mod inject;
#[cfg(not(loom))]
mod lent;
#[cfg(not(loom))]
pub(crate) mod membarrier;
#[cfg(rseq)]
pub(crate) mod narrow;
#[cfg(not(loom))]
mod node;
#[cfg(not(loom))]
pub(crate) mod probe;
#[cfg(not(loom))]
pub(crate) mod registration;
#[cfg(rseq)]
pub(crate) mod rseq;
#[cfg(rseq)]
pub(crate) mod sums;
#[cfg(not(loom))]
mod tagged;
pub(crate) mod word;
#[cfg(not(loom))]
mod words;

#[cfg(not(loom))]
pub use array::Array;
#[cfg(not(loom))]
pub(crate) use columns::{
    Columns, possible_cpus, put_fast, put_first, put_lent, stripe, take_fast, take_first,
    take_known, take_lent, thread_pointer,
};
#[cfg(not(loom))]
pub(crate) use lent::Lent;
#[cfg(not(loom))]
pub(crate) use membarrier::fence;
#[cfg(not(loom))]
pub(crate) use node::running_node;
#[cfg(not(loom))]
pub(crate) use probe::fast_area;
#[cfg(not(loom))]
pub(crate) use tagged::Tagged;
#[cfg(not(loom))]
pub(crate) use word::STRIDE;
#[cfg(not(loom))]
pub(crate) use words::Words;

/// In a marked word, bit 0 says that readers of the row know of this column. The value is in the 63 bits
/// above.
const MARK: u64 = 1;

/// How this process updates its per-CPU memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Restartable sequences: plain instructions on the running CPU's column, restarted by the
    /// kernel when they are interrupted.
    Rseq,
    /// Relaxed atomics on a column chosen by thread: for old kernels, musl, sandboxes, valgrind, and
    /// architectures other than x86-64 and arm64.
    Fallback,
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Mode::Rseq => "rseq",
            Mode::Fallback => "fallback",
        })
    }
}

/// The mode of this process, found on the first call and kept.
///
/// `LEDGERLINE_PERCPU=fallback` forces the fallback. `LEDGERLINE_PERCPU=rseq` skips the self-test (it was
/// run before in this environment), not the check that glibc registered the thread. Any other value, or
/// none, runs the self-test: a short-lived thread fences this one in the middle of a section, and the mode
/// is [`Mode::Rseq`] only if the section was aborted. On arm64, where kernels may lack it, another thread also
/// takes its CPU there, and it must be aborted then, too; that takes some milliseconds.
#[cfg(not(loom))]
pub fn detect() -> Mode {
    if probe::registration().is_some() { Mode::Rseq } else { Mode::Fallback }
}
