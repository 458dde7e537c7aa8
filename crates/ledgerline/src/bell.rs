//! A bell: somebody waits for units to come back, somebody returns some, and none is missed.
//!
//! ```text
//! wait                                        ring (whoever returned units)
//!   waiting += 1                                fence
//!   fence                                       waiting == 0: done
//!   seen = rung                                 rung += 1; wake one
//!   there is room: done
//!   sleep while rung == seen; again from `seen`
//! ```
//!
//! The two fences are SeqCst and each other's partner: of a ring and a wait at the same time, either
//! the ring sees somebody waiting, or the look for room comes after the units were returned. And a ring
//! after `seen` was read keeps the sleep from beginning. (Model: `of_a_ring_and_a_wait_one_sees_the_other`.)

use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Bell {
    waiting: AtomicU32,
    rung: AtomicU32,
}

impl Bell {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        Bell { waiting: AtomicU32::new(0), rung: AtomicU32::new(0) }
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Bell { waiting: AtomicU32::new(0), rung: AtomicU32::new(0) }
    }

    /// Announces a wait; [`leave`](Self::leave) ends it.
    pub(crate) fn arrive(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    pub(crate) fn leave(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// What to read before the look for room, and to sleep on after it.
    pub(crate) fn seen(&self) -> u32 {
        // Acquire, partner of the Release in `ring`: a look after this finds what was returned.
        self.rung.load(Ordering::Acquire)
    }

    /// Whether anybody waits, after the units were returned.
    #[inline]
    pub(crate) fn is_awaited(&self) -> bool {
        fence(Ordering::SeqCst);
        self.waiting.load(Ordering::Relaxed) != 0
    }

    /// Wakes one who waits. Async-signal-safe.
    pub(crate) fn ring(&self) {
        self.rung.fetch_add(1, Ordering::Release);
        #[cfg(not(loom))]
        sleep::wake_one(&self.rung);
    }

    /// Sleeps until a ring after `seen`, or until the time is up. (Or for no reason.)
    #[cfg(not(loom))]
    pub(crate) fn sleep(&self, seen: u32, until: std::time::Instant) {
        sleep::while_equal(&self.rung, seen, until);
    }
}

/// A bell whose sleeper must tell news from mere calls to look: how often it was rung for good.
#[derive(Debug)]
pub(crate) struct Rings {
    count: AtomicU64,
    /// What the sleeper sleeps on.
    pub(crate) bell: Bell,
}

impl Rings {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        Rings { count: AtomicU64::new(0), bell: Bell::new() }
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Rings { count: AtomicU64::new(0), bell: Bell::new() }
    }

    /// Tells of news. Async-signal-safe.
    pub(crate) fn ring(&self) {
        self.count.fetch_add(1, Ordering::Release);
        self.bell.ring();
    }

    pub(crate) fn count(&self) -> u64 {
        // Acquire, partner of the Release in `ring`: who counts a ring sees what it told of.
        self.count.load(Ordering::Acquire)
    }
}

/// Sleeping on a word: the futex of Linux, and short naps elsewhere.
#[cfg(all(not(loom), target_os = "linux"))]
mod sleep {
    use std::sync::atomic::AtomicU32;
    use std::time::Instant;

    pub(super) fn while_equal(word: &AtomicU32, value: u32, until: Instant) {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = libc::timespec {
            tv_sec: libc::time_t::try_from(left.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        // SAFETY: waits on a word of ours; the timeout lives through the call.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                word.as_ptr(),
                libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                value,
                &raw const timeout,
            );
        }
    }

    pub(super) fn wake_one(word: &AtomicU32) {
        // SAFETY: wakes whoever waits on a word of ours; `errno` is the thread's own, and stays.
        unsafe {
            let errno = libc::__errno_location();
            let before = *errno;
            libc::syscall(
                libc::SYS_futex,
                word.as_ptr(),
                libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                1,
            );
            *errno = before;
        }
    }
}

#[cfg(all(not(loom), not(target_os = "linux")))]
mod sleep {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::{Duration, Instant};

    pub(super) fn while_equal(word: &AtomicU32, value: u32, until: Instant) {
        while word.load(Ordering::Relaxed) == value && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(super) fn wake_one(_: &AtomicU32) {}
}
