//! The reasons for the mode in which a process updates its per-CPU memory.

use super::Mode;
use std::fmt;

/// The reasons for a process's mode ([`grounds`](super::grounds)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grounds {
    /// The chosen mode.
    pub mode: Mode,
    /// The mode that `LEDGERLINE_PERCPU` names.
    pub forced: Option<Mode>,
    /// The number by which a restartable section finds its column, or the reason why there are no sections.
    pub sections: Result<Index, Without>,
    /// Without sections: whether threads can own columns, or the reason why not.
    pub owned: Option<Result<(), Without>>,
}

/// By which number a restartable section finds its column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Index {
    /// The kernel's compact id (Linux 6.3): as many columns are in use as threads run at once.
    Compact,
    /// The number of the CPU. On a machine with many CPUs, idle units are spread over more columns.
    Cpu,
}

impl fmt::Display for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Index::Compact => "compact id",
            Index::Cpu => "CPU number",
        })
    }
}

/// The reason why a mode is not available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Without {
    /// `LEDGERLINE_PERCPU` names another mode.
    Forced,
    /// The library has no sections for this system and architecture.
    Machine,
    /// The C library registers no rseq area for its threads.
    Library,
    /// The C library supports such areas, but this thread's is not registered: that was disabled, or the kernel
    /// refused.
    Registration,
    /// The kernel, or a filter of system calls, refuses `membarrier` with the command that the mode needs.
    Fence,
    /// The self-test stayed in a section that was not restarted.
    Restart,
    /// The self-test could not start its thread.
    Thread,
    /// The C library has no key left, which is needed to notice the end of a thread.
    Key,
}

impl Without {
    /// Returns a remedy, if there is one.
    pub fn remedy(self) -> Option<&'static str> {
        match self {
            Without::Forced => Some("unset LEDGERLINE_PERCPU"),
            // See `own_area.rs` for the reason. On arm64 there are no sections with musl.
            Without::Machine if cfg!(all(target_env = "musl", target_arch = "x86_64")) => {
                Some("link the program statically: with musl, dynamic programs have no sections")
            }
            Without::Machine => None,
            Without::Library => Some("glibc 2.35 or later"),
            Without::Registration => Some(
                "leave glibc.pthread.rseq out of GLIBC_TUNABLES; allow the system call rseq in the sandbox's filter; Linux \
                 4.18 or later",
            ),
            Without::Fence => Some(
                "allow the system call membarrier in the sandbox's filter; Linux 5.10 or later (4.14 for owned columns)",
            ),
            Without::Restart => {
                Some("another kernel, or no sandbox: this one does not restart sections")
            }
            Without::Thread => Some("a higher limit of threads (ulimit -u, pids.max)"),
            Without::Key => {
                Some("create the first ledger before other libraries take pthread keys")
            }
        }
    }
}

impl fmt::Display for Without {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Without::Forced => "LEDGERLINE_PERCPU asks for another mode",
            Without::Machine => "there are no sections for this system and architecture",
            Without::Library => "the C library registers no rseq area",
            Without::Registration => "this thread's rseq area is not registered",
            Without::Fence => "membarrier is refused",
            Without::Restart => "a section was not restarted by the self-test",
            Without::Thread => "the self-test could not start a thread",
            Without::Key => "no pthread key is left",
        })
    }
}
