//! The container's limit: the root of a ledger follows the limit at which the kernel would kill.
//!
//! A server is killed by the kernel's limit, not by its own account. Every account drifts from the kernel's charges, by
//! fragmentation, stacks, code, page tables, and buffers that were never charged. A ledger that is built with
//! [`LedgerBuilder::container`](crate::LedgerBuilder::container) closes that gap:
//!
//! * The root's max is the kernel's [limit](Limits) less a margin, and follows it within a second when it changes.
//! * Memory that the kernel charges and the ledger does not know is measured, and charged to the row [`UNTRACKED`] below
//!   the root. So it reduces the room for charges, and is visible to all readers.
//! * When the row takes the root above its max, or the kernel reports pressure, the reclaimers are asked.
//!
//! ```
//! use ledgerline::Ledger;
//!
//! let ledger = Ledger::builder().container().anonymous()?;
//! let now = ledger.container().expect("it was built with one");
//! if let Some(limit) = &now.limit {
//!     println!("{limit}"); // 256.0M, memory.max of /sys/fs/cgroup/job
//! }
//! assert_eq!(ledger.root().max(), now.max);
//! // What this very program takes beside its charges, of which it has none.
//! assert!(now.untracked > 0);
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # Accuracy and delay
//!
//! The numbers are the kernel's at the last *sample*. The next one comes before memory that grows by a GiB a second, charged
//! or not, has used up the room and the margin, after 5 ms at the earliest and 250 ms at the latest
//! ([`Settings::longest`]). So the kernel may act first in two cases. The first is untracked memory that grows by more than
//! the margin within 5 ms, which is 3.2 GiB a second with the default margin of a container of 256 MiB. The second is
//! charges that use up all the room faster than a GiB a second, after untracked memory grew by more than the margin since
//! the last sample.
//!
//! Memory that is charged but not touched yet hides the same amount of untracked memory, since the kernel has not charged
//! it. So the row has the largest of the numbers of the last 50 to 100 ms. If more memory than that is charged and never
//! touched, the row is zero; it is too small by that amount, and the kernel may act when the memory is touched all at once.
//!
//! Page cache does not count beyond a sixteenth of the limit. A program that writes files faster than the disk, and never
//! syncs them, may get killed in a cgroup of version 1, whatever is charged: there the kernel does not slow it down, and
//! cannot reclaim pages under writeback. A larger [`Settings::margin`] leaves more room for that.
//!
//! Memory that was uncharged, but kept by the allocator, is untracked, too: the row has it until the allocator gives it back
//! to the kernel, or the program charges it again. A reclaimer of the row can release it:
//!
//! ```no_run
//! # use ledgerline::{Ledger, container::UNTRACKED};
//! let ledger: &'static Ledger = Box::leak(Box::new(Ledger::builder().container().anonymous()?));
//! let row = ledger.root().child(UNTRACKED).expect("the container's");
//! let _reclaimer = row.add_reclaimer(-1, move |_need| {
//!     ledger.release_untracked(|| {
//!         // SAFETY: it takes no pointers.
//!         unsafe { libc::malloc_trim(0) };
//!     })
//! });
//! # Ok::<(), std::io::Error>(())
//! ```

mod cgroup;
mod follow;
mod limits;
#[cfg_attr(not(target_os = "linux"), path = "pressure_nowhere.rs")]
mod pressure;
mod sampler;

pub use follow::Status;
pub use limits::{Bound, Limits, Source};
pub(crate) use sampler::start;

use crate::size::Limit;
use std::path::PathBuf;
use std::time::Duration;

/// The name of the row, below the root, for memory that the kernel charges and the ledger does not know.
pub const UNTRACKED: &str = "(untracked)";

/// The default of the longest time between two samples.
const LONGEST: Duration = Duration::from_millis(250);
/// The margin is this fraction of the limit, within these bounds, and at most the [`MOST`]th part of it.
///
/// The margin is also the kernel's own room when all the rest is charged.
const MARGIN: u64 = 16;
const MARGINS: std::ops::RangeInclusive<u64> = 4 << 20..=512 << 20;
const MOST: u64 = 8;

/// How a ledger follows its container ([`LedgerBuilder::container_with`](crate::LedgerBuilder::container_with)).
///
/// ```
/// use ledgerline::{Ledger, container::Settings};
///
/// let settings = Settings::new().at_most("1G".parse()?).margin(16 << 20).by_hand();
/// let ledger = Ledger::builder().container_with(settings).anonymous()?;
/// assert!(ledger.root().max() <= "1G".parse()?);
/// let now = ledger.update_container().expect("it was built with one");
/// assert_eq!(now.samples, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Settings {
    at_most: Limit,
    margin: Option<u64>,
    reserve: u64,
    longest: Duration,
    thread: bool,
    system: PathBuf,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings::new()
    }
}

impl Settings {
    /// Returns the defaults.
    pub fn new() -> Settings {
        Settings {
            at_most: Limit::MAX,
            margin: None,
            reserve: 0,
            longest: LONGEST,
            thread: true,
            system: PathBuf::from("/"),
        }
    }

    /// Sets a limit for the root besides the kernel's; the smaller one applies. Untracked memory counts against it, too. Use
    /// this instead of [`Group::set_max`](crate::Group::set_max) on the root: the container overwrites the root's max when
    /// the kernel's limit changes.
    pub fn at_most(mut self, limit: Limit) -> Settings {
        self.at_most = limit;
        self
    }

    /// Sets how many bytes the root's limit stays below the kernel's. The default is a sixteenth of the limit, at least 4 MiB
    /// and at most 512 MiB; it is never more than an eighth of the limit. The margin bounds how much untracked memory may
    /// grow between two samples, and it is the kernel's own room when all the rest is charged.
    pub fn margin(mut self, bytes: u64) -> Settings {
        self.margin = Some(bytes);
        self
    }

    /// Sets how many bytes are kept from the root's max, besides the margin, for charges that the program itself allows to
    /// exceed it (default none).
    pub fn reserve(mut self, bytes: u64) -> Settings {
        self.reserve = bytes;
        self
    }

    /// Sets the longest time between two samples (default 250 ms).
    pub fn longest(mut self, time: Duration) -> Settings {
        self.longest = time;
        self
    }

    /// Starts no thread. The row and the limit stay as [`Ledger::update_container`](crate::Ledger::update_container) last
    /// set them, and only that call notices pressure.
    pub fn by_hand(mut self) -> Settings {
        self.thread = false;
        self
    }

    /// Looks for `/proc` and the mounts of cgroups below this folder, as [`Limits::read_in`] does.
    pub fn system(mut self, folder: impl Into<PathBuf>) -> Settings {
        self.system = folder.into();
        self
    }

    /// Returns the margin below a limit.
    fn margin_below(&self, bytes: u64) -> u64 {
        let default = (bytes / MARGIN).clamp(*MARGINS.start(), *MARGINS.end());
        self.margin.unwrap_or(default).min(bytes / MOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_margin_leaves_at_least_seven_eighths_of_any_limit() {
        let settings = Settings::new();
        for (bytes, margin) in
            [(0, 0), (8, 1), (8 << 20, 1 << 20), (256 << 20, 16 << 20), (1 << 40, 512 << 20)]
        {
            assert_eq!(settings.margin_below(bytes), margin, "{bytes}");
        }
        let small = Settings::new().margin(100);
        assert_eq!((small.margin_below(1 << 30), small.margin_below(80)), (100, 10));
    }
}
