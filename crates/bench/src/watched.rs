//! The cost that an observer adds to charges: the same pair in two ledgers with many groups. Another process looks at
//! one of them ten times a second.

use super::cases::{chain, pair};
use super::rounds::{Made, Work};
use ledgerline::{Ledger, View};
use memmap2::{MmapOptions, MmapRaw};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The interval between looks: at the beginning of each round, and then after this.
const PERIOD: Duration = Duration::from_millis(100);
/// The number of further groups in the ledgers.
const GROUPS: usize = 10_000;

/// Makes a file in memory.
fn file() -> io::Result<File> {
    // SAFETY: makes a new descriptor; the name ends in zero.
    unsafe {
        match libc::memfd_create(c"watched".as_ptr(), libc::MFD_CLOEXEC) {
            -1 => Err(io::Error::last_os_error()),
            file => Ok(File::from_raw_fd(file)),
        }
    }
}

/// Makes a ledger in a file in memory, like those that are observed.
pub(super) fn ledger(quick: bool) -> Made<(Ledger, File)> {
    let file = file()?;
    let ledger = Ledger::builder().create_in(&file)?;
    for n in 0..if quick { 100 } else { GROUPS } {
        let charged = ledger.root().create(&format!("g{n}"))?.charge_units(1000);
        charged.map_err(|error| error.to_string())?;
    }
    Ok((ledger, file))
}

/// Makes the pair three levels deep, as `pair_depth3` times it, while another process looks.
pub(super) fn watched<'l>(ledger: &'l Ledger, file: &File) -> Made<Work<'l>> {
    let (granule, pairs) = chain(ledger, 3, pair)?;
    let watcher = Watcher::start(file)?;
    let running = AtomicUsize::new(0);
    let body = move |thread, n| {
        // Any thread may begin first, and any may end last.
        if running.fetch_add(1, Ordering::Relaxed) == 0 {
            watcher.rounds().fetch_add(1, Ordering::Relaxed);
        }
        pairs(thread, n);
        if running.fetch_sub(1, Ordering::Relaxed) == 1 {
            watcher.rounds().fetch_add(1, Ordering::Relaxed);
        }
    };
    Ok((granule, Box::new(body)))
}

/// A process that looks during rounds, and ends with this one.
struct Watcher {
    /// The number of begun and ended rounds, in memory that both processes share: odd during one. A message would have
    /// to wait for an observer that is looking.
    rounds: MmapRaw,
    process: libc::pid_t,
}

impl Watcher {
    fn start(watched: &File) -> io::Result<Watcher> {
        let watched = File::open(format!("/proc/self/fd/{}", watched.as_raw_fd()))?;
        let shared = file()?;
        shared.set_len(size_of::<AtomicU64>() as u64)?;
        let mut watcher = Watcher { rounds: MmapOptions::new().map_raw(&shared)?, process: 0 };
        // SAFETY: the child reads the file and the number, and ends. It may allocate, since the C library makes its
        // malloc ready for that in a forked child.
        watcher.process = match unsafe { libc::fork() } {
            -1 => return Err(io::Error::last_os_error()),
            0 => {
                let status = i32::from(watch(watched, watcher.rounds()).is_err());
                // SAFETY: ends the child without the parent's exit handlers.
                unsafe { libc::_exit(status) }
            }
            process => process,
        };
        Ok(watcher)
    }

    fn rounds(&self) -> &AtomicU64 {
        // SAFETY: mapped for reading and writing until this is dropped, at the beginning of a page; both processes use
        // it only as an atomic.
        unsafe { AtomicU64::from_ptr(self.rounds.as_mut_ptr().cast()) }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        if self.process > 0 {
            // SAFETY: ends and collects a child of this process.
            unsafe {
                libc::kill(self.process, libc::SIGKILL);
                libc::waitpid(self.process, std::ptr::null_mut(), 0);
            }
        }
    }
}

/// Runs the observer until it is killed.
fn watch(file: File, rounds: &AtomicU64) -> Result<(), Box<dyn std::error::Error>> {
    // SAFETY: requests a signal at the end of the thread that started this process.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let view = View::open(file)?;
    let (mut last, mut looked) = (0, Instant::now());
    loop {
        let round = rounds.load(Ordering::Relaxed);
        if round % 2 == 1 && (round != last || looked.elapsed() >= PERIOD) {
            (last, looked) = (round, Instant::now());
            view.read()?;
        } else {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watcher_looks_while_it_is_told_to_and_ends() {
        let (ledger, file) = ledger(true).unwrap();
        let (granule, body) = watched(&ledger, &file).unwrap();
        for _ in 0..3 {
            body(0, granule * 1000);
        }
        assert_eq!(ledger.root().precise(), 100 * 1000);
        let level = ledger.snapshot().groups.into_iter().find(|group| group.depth == 2).unwrap();
        assert_eq!(level.charges, 3 * granule * 1000);
        drop(body);
    }
}
