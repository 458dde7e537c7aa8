//! RSS beside the account: unreserved memory of the process reduces the room.
//!
//! Operators reserve the amounts that they expect to take. The process also holds unreserved memory: batches that
//! travel between operators, decoders, the allocator's own slack. The account of the pool does not include it. So a
//! watch reads the resident set periodically and subtracts the difference:
//!
//! ```text
//! uncounted       = resident - account               never below zero
//! room to grow    = spill_at  x limit - uncounted    beyond it, spillers are asked to spill
//! room for others = refuse_at x limit - uncounted    beyond it, all requests are refused
//! ```

use crate::share::Share;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Reads a number of bytes; `None` if it is not available.
type Reading = Box<dyn Fn() -> Option<u64> + Send + Sync>;

/// Watches the resident memory of the process beside the account of a pool
/// ([`LedgerPoolBuilder::watch_rss`](crate::LedgerPoolBuilder::watch_rss)).
///
/// A reading is taken in `try_grow`, at most once per period, by the first thread. It costs some microseconds, and each
/// other `try_grow` one look at the clock. Freed memory that the allocator keeps counts as resident, so a pool under a
/// watch may ask for spilling although there is room.
pub struct RssWatch {
    limit: u64,
    spill_at: Share,
    refuse_at: Share,
    period: Duration,
    reading: Reading,
    start: Instant,
    /// The time of the next reading, in microseconds since `start`. Relaxed: it only chooses the reading thread.
    due: AtomicU64,
    /// The memory beyond the account at the last reading. Relaxed: an independent number.
    uncounted: AtomicU64,
}

/// The room that a watch, or a max, leaves for the account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// The room for growing consumers that can spill.
    pub(crate) spill: u64,
    /// The room for all requests.
    pub(crate) refuse: u64,
    /// The process's memory beyond the account, if that limits the room.
    pub(crate) uncounted: Option<u64>,
}

impl Room {
    pub(crate) const ENDLESS: Room = Room { spill: u64::MAX, refuse: u64::MAX, uncounted: None };

    /// Returns the part of it below a max.
    pub(crate) fn within(self, max: u64) -> Room {
        let uncounted = self.uncounted.filter(|_| self.spill.min(self.refuse) < max);
        Room { spill: self.spill.min(max), refuse: self.refuse.min(max), uncounted }
    }
}

impl RssWatch {
    /// Keeps the process below `limit` resident bytes: spillers are asked at 85 % of it, and all requests are refused
    /// at 95 %. Reads `/proc/self/status` at most every 100 ms.
    pub fn new(limit: u64) -> RssWatch {
        RssWatch {
            limit,
            spill_at: Share::of(0.85),
            refuse_at: Share::of(0.95),
            period: Duration::from_millis(100),
            reading: Box::new(resident),
            start: Instant::now(),
            due: AtomicU64::new(0),
            uncounted: AtomicU64::new(0),
        }
    }

    /// Sets the part of the limit at which consumers that can spill are asked to.
    pub fn spill_at(mut self, fraction: f64) -> RssWatch {
        self.spill_at = Share::of(fraction);
        self
    }

    /// Sets the part of the limit at which all requests are refused.
    pub fn refuse_at(mut self, fraction: f64) -> RssWatch {
        self.refuse_at = Share::of(fraction);
        self
    }

    /// Sets the time for which a reading is used.
    pub fn every(mut self, period: Duration) -> RssWatch {
        self.period = period;
        self
    }

    /// Reads by `f` instead of `/proc/self/status`: the memory of a cgroup, for example, or the allocator's own number.
    /// If it returns `None`, the last reading holds.
    pub fn reading(mut self, f: impl Fn() -> Option<u64> + Send + Sync + 'static) -> RssWatch {
        self.reading = Box::new(f);
        self
    }

    /// Returns the room for an account that holds `account()` bytes; takes a new reading if that is due.
    pub(crate) fn room(&self, account: impl Fn() -> u64) -> Room {
        let now = u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX);
        let due = self.due.load(Relaxed);
        let next = now.saturating_add(u64::try_from(self.period.as_micros()).unwrap_or(u64::MAX));
        if now >= due
            && self.due.compare_exchange(due, next, Relaxed, Relaxed).is_ok()
            && let Some(resident) = (self.reading)()
        {
            self.uncounted.store(resident.saturating_sub(account()), Relaxed);
        }
        let uncounted = self.uncounted.load(Relaxed);
        let [spill, refuse] = [self.spill_at, self.refuse_at]
            .map(|share| share.part(self.limit).saturating_sub(uncounted));
        Room { spill, refuse, uncounted: Some(uncounted) }
    }
}

impl fmt::Debug for RssWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RssWatch")
            .field("limit", &self.limit)
            .field("spill_at", &self.spill_at)
            .field("refuse_at", &self.refuse_at)
            .field("period", &self.period)
            .field("uncounted", &self.uncounted)
            .finish_non_exhaustive()
    }
}

/// Returns the process's resident bytes from the kernel. `Rss*` of `/proc/self/status` is in KiB and needs no page
/// size; `VmRSS` is their sum.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn what_nobody_reserved_is_taken_off_the_room() {
        let watch = RssWatch::new(1000).every(Duration::ZERO).reading(|| Some(700));
        let room = |spill, refuse, uncounted| Room { spill, refuse, uncounted: Some(uncounted) };
        assert_eq!(watch.room(|| 500), room(650, 750, 200));
        assert_eq!(watch.room(|| 900), room(850, 950, 0), "the account is larger");
        let watch = watch.spill_at(0.5).refuse_at(0.6);
        assert_eq!(watch.room(|| 0), room(0, 0, 700));
    }

    #[test]
    fn a_max_is_told_where_it_leaves_less_than_the_watch() {
        let watched = Room { spill: 650, refuse: 750, uncounted: Some(200) };
        assert_eq!(watched.within(700), Room { spill: 650, refuse: 700, uncounted: Some(200) });
        assert_eq!(watched.within(650), Room { spill: 650, refuse: 650, uncounted: None });
        assert_eq!(Room::ENDLESS.within(9), Room { spill: 9, refuse: 9, uncounted: None });
    }

    #[test]
    fn readings_are_as_rare_as_was_asked_for() {
        let reads = Arc::new(AtomicU64::new(0));
        let counted = reads.clone();
        let watch = RssWatch::new(1000).every(Duration::from_secs(1 << 20)).reading(move || {
            counted.fetch_add(1, Relaxed);
            Some(0)
        });
        for _ in 0..1000 {
            watch.room(|| 0);
        }
        assert_eq!(reads.load(Relaxed), 1);
    }

    #[test]
    fn the_kernel_says_what_is_resident() {
        let block = std::hint::black_box(vec![1_u8; 64 << 20]);
        let with = resident().unwrap();
        assert!(with >= 64 << 20, "{with} of {}", block.len());
    }
}
