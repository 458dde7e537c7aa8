//! Attaches and looks at a ledger of arbitrary bytes: the common part of fuzzers and
//! `crates/cli/tests/main/damaged.rs`. Panics if a reported value is impossible.

use crate::watch::counted::MOST;
use crate::watch::{Look, Source, State, Tempo};
use ledgerline::{GroupId, Ledger, Limit, name};
use ledgerline_protocol::Item;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

/// The bytes of a patch: a place, and the new bytes.
const PATCH: usize = 12;
/// Places from here on shorten the file.
const SHORTER: u32 = u32::MAX - 256;

/// A real ledger in a file, which can be overwritten and restored.
#[derive(Debug)]
pub struct Sample {
    file: File,
    /// The parts of the file that are not holes.
    parts: Vec<(u64, Vec<u8>)>,
    length: u64,
}

impl Sample {
    /// Makes a ledger like a run's, with some processes, threads, refusals and ended processes.
    ///
    /// # Errors
    /// Fails if the system gives no file in memory.
    pub fn new() -> io::Result<Sample> {
        // SAFETY: makes a new descriptor; the name ends in zero.
        let file = unsafe {
            match libc::memfd_create(c"sample".as_ptr(), libc::MFD_CLOEXEC) {
                -1 => return Err(io::Error::last_os_error()),
                file => File::from_raw_fd(file),
            }
        };
        let ledger = Ledger::builder().capacity(300).items(&Item::NAMES).create_in(&file)?;
        let other = |_| io::Error::other("the sample cannot be made");
        let _ = ledger.root().set_max(Limit::units(1 << 30));
        for process in 1..40u32 {
            let group = ledger.root().create(&format!("sort.{process}")).map_err(|_| other(()))?;
            for thread in 0..process % 4 {
                let below = group.create(&format!("t{thread}")).map_err(|_| other(()))?;
                let _ = below.charge_units(1000 * u64::from(process));
                ledger.items().for_each(|item| below.add_stat(item, i64::from(process)));
            }
            let _ = group.try_charge_units(2 << 30);
            if process % 5 == 0 {
                let _ = group.destroy_tree();
            }
        }
        drop(ledger);
        let length = file.metadata()?.len();
        let mut sample = Sample { file, parts: Vec::new(), length };
        let mut at = 0;
        while let Some(part) = sample.next_part(at)? {
            at = part.0 + part.1.len() as u64;
            sample.parts.push(part);
        }
        Ok(sample)
    }

    fn next_part(&self, from: u64) -> io::Result<Option<(u64, Vec<u8>)>> {
        let seek = |from: u64, whence| {
            // SAFETY: moves the position of an own descriptor, at which nothing is read.
            let found = unsafe { libc::lseek(self.file.as_raw_fd(), from as libc::off_t, whence) };
            u64::try_from(found).ok()
        };
        let Some(start) = seek(from, libc::SEEK_DATA) else { return Ok(None) };
        let end = seek(start, libc::SEEK_HOLE).unwrap_or(self.length);
        let mut bytes = vec![0; (end - start) as usize];
        self.file.read_exact_at(&mut bytes, start)?;
        Ok(Some((start, bytes)))
    }

    /// Restores the ledger. Holes that were written to stay, but no patch writes to any.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn mend(&self) -> io::Result<()> {
        self.file.set_len(self.length)?;
        self.parts.iter().try_for_each(|(start, bytes)| self.file.write_all_at(bytes, *start))
    }

    /// Overwrites some words, or shortens the file: each twelve bytes are a place in four, and new content in eight.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn patch(&self, patches: &[u8]) -> io::Result<()> {
        let words: u64 = self.parts.iter().map(|(_, bytes)| bytes.len() as u64 / 8).sum();
        for patch in patches.chunks_exact(PATCH) {
            let (place, value) = patch.split_at(4);
            let place = u32::from_le_bytes(place.try_into().expect("four bytes"));
            if place >= SHORTER {
                let length = u64::from_le_bytes(value.try_into().expect("eight bytes"));
                self.file.set_len(length % (self.length + 1))?;
                continue;
            }
            let mut word = u64::from(place) % words * 8;
            for (start, bytes) in &self.parts {
                let length = bytes.len() as u64;
                if word < length {
                    self.file.write_all_at(value, start + word)?;
                    break;
                }
                word -= length;
            }
        }
        Ok(())
    }

    /// Attaches to it like an observer.
    ///
    /// # Errors
    /// As for [`Source::open`].
    pub fn attach(&self) -> Result<Source, String> {
        Source::open(Path::new(&format!("/proc/self/fd/{}", self.file.as_raw_fd())))
    }
}

/// Checks a look against the invariants that hold for any bytes.
///
/// # Panics
/// Panics if one is violated.
pub fn check(look: &Look) {
    let root = look.root();
    assert!(root.path == "/" && root.depth == 0 && look.parents().len() == look.rows.len());
    for row in &look.rows {
        let shown = |text: &str| text == "/" || text.chars().all(name::allows);
        assert!(shown(&row.name) && row.path.split('/').all(shown), "{row:?}");
        assert!(row.depth < 32 && row.path.starts_with('/'), "{row:?}");
        let numbers = [
            row.current,
            row.peak,
            row.counts.charges,
            row.counts.uncharges,
            row.counts.refused / 2,
            row.counts.max_events,
            row.counts.high_events,
            row.counts.reclaimed,
        ];
        assert!(numbers.into_iter().all(|number| number <= MOST), "{row:?}");
        if row.state == State::Damaged {
            assert!(look.damaged && numbers == [0; 8], "{row:?}");
            let limits = (row.max, row.high, row.low, row.min, row.pid, row.items.len());
            assert_eq!(limits, (None, None, 0, 0, 0, 0), "{row:?}");
        }
    }
    let ids: std::collections::HashSet<GroupId> = look.rows.iter().map(|row| row.id).collect();
    assert_eq!(ids.len(), look.rows.len(), "each group once");
}

/// Patches a ledger, attaches and looks.
///
/// # Panics
/// Panics if a reported value is impossible.
pub fn look(patches: &[u8]) {
    static SAMPLE: OnceLock<Mutex<Sample>> = OnceLock::new();
    let sample = SAMPLE.get_or_init(|| Sample::new().expect("a file in memory").into());
    let sample = sample.lock().unwrap_or_else(PoisonError::into_inner);
    sample.mend().expect("the file is ours");
    // Attached before and after, since the header is checked at that time alone.
    let before = sample.attach().expect("it is whole");
    sample.patch(patches).expect("the file is ours");
    let mut tempo = Tempo::new();
    for source in [Some(before), sample.attach().ok()].into_iter().flatten() {
        for _ in 0..2 {
            let look = source.look();
            check(&look);
            for rates in tempo.rates(&look) {
                assert!(rates.growth.is_finite() && rates.counts.charges.is_finite());
            }
        }
    }
}
