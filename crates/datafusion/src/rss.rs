//! RSS beside the account: what the process holds and nobody reserved makes the room smaller.
//!
//! Operators reserve what they think they will take. The process also holds what nobody reserved: batches that
//! travel between operators, decoders, the allocator's own slack. The pool cannot see that in its account. So a
//! watch reads the resident set now and then and takes the difference off:
//!
//! ```text
//! uncounted       = resident - account               never below zero
//! room to grow    = spill_at  x limit - uncounted    beyond it, spillers are asked to spill
//! room for others = refuse_at x limit - uncounted    beyond it, nobody is granted anything
//! ```

use crate::share::Share;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Reads a number of bytes, or nothing if that is not to be had.
type Reading = Box<dyn Fn() -> Option<u64> + Send + Sync>;

/// Watches the resident memory of the process beside the account of a pool
/// ([`LedgerPoolBuilder::watch_rss`](crate::LedgerPoolBuilder::watch_rss)).
///
/// A reading is taken in `try_grow`, at most once a period, by the thread that comes first. It costs some
/// microseconds, and each other `try_grow` one look at the clock. Memory that was freed and that the allocator
/// keeps counts as resident, so a pool under a watch may ask for spilling when there would be room.
pub struct RssWatch {
    limit: u64,
    spill_at: Share,
    refuse_at: Share,
    period: Duration,
    reading: Reading,
    start: Instant,
    /// When the next reading is due, in microseconds since `start`. Relaxed: it only chooses who reads.
    due: AtomicU64,
    /// What the last reading found beyond the account. Relaxed: a number by itself.
    uncounted: AtomicU64,
}

/// What a watch leaves for the account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rooms {
    /// For growing consumers that can spill.
    pub(crate) spill: u64,
    /// For everybody.
    pub(crate) refuse: u64,
}

impl RssWatch {
    /// Watches that the process stays below `limit` bytes resident: spillers are asked at 85 % of it, and
    /// everybody is refused at 95 %. It reads `/proc/self/status` at most every 100 ms.
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

    /// Sets the part of the limit at which everybody is refused.
    pub fn refuse_at(mut self, fraction: f64) -> RssWatch {
        self.refuse_at = Share::of(fraction);
        self
    }

    /// Sets how long a reading is good for.
    pub fn every(mut self, period: Duration) -> RssWatch {
        self.period = period;
        self
    }

    /// Reads by `f` instead of `/proc/self/status`: the memory of a cgroup, say, or the allocator's own number.
    /// Where it returns `None`, the last reading holds.
    pub fn reading(mut self, f: impl Fn() -> Option<u64> + Send + Sync + 'static) -> RssWatch {
        self.reading = Box::new(f);
        self
    }

    /// What is left for an account that holds `account()` bytes; reads anew if that is due.
    pub(crate) fn rooms(&self, account: impl Fn() -> u64) -> Rooms {
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
        let room = |share: Share| share.part(self.limit).saturating_sub(uncounted);
        Rooms { spill: room(self.spill_at), refuse: room(self.refuse_at) }
    }

    /// What the last reading found beyond the account.
    pub(crate) fn uncounted(&self) -> u64 {
        self.uncounted.load(Relaxed)
    }
}

impl fmt::Debug for RssWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RssWatch")
            .field("limit", &self.limit)
            .field("spill_at", &self.spill_at)
            .field("refuse_at", &self.refuse_at)
            .field("period", &self.period)
            .field("uncounted", &self.uncounted())
            .finish_non_exhaustive()
    }
}

/// The process's resident bytes, as the kernel says. `Rss*` of `/proc/self/status` is in KiB and needs no page
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
        assert_eq!(watch.rooms(|| 500), Rooms { spill: 650, refuse: 750 });
        assert_eq!(watch.rooms(|| 900), Rooms { spill: 850, refuse: 950 }, "the account is larger");
        let watch = watch.spill_at(0.5).refuse_at(0.6);
        assert_eq!(watch.rooms(|| 0), Rooms { spill: 0, refuse: 0 });
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
            watch.rooms(|| 0);
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
