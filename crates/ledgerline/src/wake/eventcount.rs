//! An eventcount: a thread looks for something, and sleeps until there may be more of it. No notice is lost.
//!
//! ```text
//! wait                                        notify (after a change)
//!   key = count                                 count += 1
//!   look: nothing yet                           fence
//!   sleepers += 1                               no thread sleeps: done
//!   fence                                       wake one
//!   sleep while count == key
//! ```
//!
//! A notice after the key was read prevents the sleep, so a thread that looks after reading the key misses nothing.
//! The two fences are SeqCst and each other's partner: of a concurrent notice and sleep, either the notice finds
//! the sleeper, or the sleeper finds the count changed (model: `of_a_notice_and_a_sleep_one_sees_the_other`). So a
//! notice makes no system call while no thread sleeps.

use crate::sync::{AtomicU32, Ordering, fence};

/// See the module's documentation. All zeros are an eventcount without waiters.
#[repr(C)]
#[derive(Debug)]
#[cfg_attr(loom, derive(Default))]
pub(crate) struct Eventcount {
    count: AtomicU32,
    sleepers: AtomicU32,
}

impl Eventcount {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        Eventcount { count: AtomicU32::new(0), sleepers: AtomicU32::new(0) }
    }

    /// Returns the key. The caller reads it before the look, and sleeps on it afterwards.
    pub(crate) fn key(&self) -> u32 {
        // Acquire, partner of the Release in `advance`: a look after this finds the change that the notice
        // announced.
        self.count.load(Ordering::Acquire)
    }

    /// Wakes one waiting thread, which looks again. Async-signal-safe.
    pub(crate) fn notify(&self) {
        if self.advance() {
            #[cfg(not(loom))]
            sleep::wake(&self.count, 1, Whose::Process);
        }
    }

    /// Counts a notice. Returns whether a thread may be asleep.
    pub(crate) fn advance(&self) -> bool {
        // Release, partner of the Acquire in `key`.
        self.count.fetch_add(1, Ordering::Release);
        // Partner of the fence in `is_past`, of a thread that announces a sleep or leaves an alarm.
        fence(Ordering::SeqCst);
        self.sleepers.load(Ordering::Relaxed) != 0
    }

    /// Returns whether there was a notice since the key was read. If the caller leaves an alarm first, every notice
    /// that this call does not see rings the alarm.
    pub(crate) fn is_past(&self, key: u32) -> bool {
        // Partner of the fence in `advance`.
        fence(Ordering::SeqCst);
        // Acquire: as in `key`.
        self.count.load(Ordering::Acquire) != key
    }

    /// Announces a sleep. Returns `false` if there was a notice since the key was read. In both cases
    /// [`retire`](Self::retire) ends the announcement.
    pub(crate) fn announce(&self, key: u32) -> bool {
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        !self.is_past(key)
    }

    pub(crate) fn retire(&self) {
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }

    /// Sleeps until a notice after the key was read, or until the time is up. Spurious returns are possible.
    #[cfg(not(loom))]
    pub(crate) fn wait(&self, key: u32, until: std::time::Instant) {
        if self.announce(key) {
            sleep::while_equal(&self.count, key, until, Whose::Process);
        }
        self.retire();
    }

    /// Like [`wait`](Self::wait), but on an eventcount in a file, which any process that maps the file may notify.
    /// A process that is killed in here leaves one sleeper too many, and from then on each notice makes a system
    /// call.
    #[cfg(not(loom))]
    pub(crate) fn wait_for_any_process(&self, key: u32, until: std::time::Instant) {
        if self.announce(key) {
            sleep::while_equal(&self.count, key, until, Whose::AnyProcess);
        }
        self.retire();
    }

    /// Wakes all threads that sleep on an eventcount in a file, after [`advance`](Self::advance).
    /// Async-signal-safe.
    #[cfg(not(loom))]
    pub(crate) fn wake_all_processes(&self) {
        sleep::wake(&self.count, libc::c_int::MAX, Whose::AnyProcess);
    }
}

/// The threads that sleep on a word and wake each other.
#[cfg(not(loom))]
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// Threads of this process.
    Process,
    /// Those of all processes that have the word's file mapped.
    AnyProcess,
}

/// Sleeping on a word: the futex of Linux, and short naps elsewhere.
#[cfg(all(not(loom), target_os = "linux"))]
mod sleep {
    use super::Whose;
    use std::sync::atomic::AtomicU32;
    use std::time::Instant;

    /// Returns the flag of the futex calls. The kernel finds a private word by its address, and a word in a file by
    /// its offset.
    fn flag(whose: Whose) -> libc::c_int {
        if whose == Whose::Process { libc::FUTEX_PRIVATE_FLAG } else { 0 }
    }

    pub(super) fn while_equal(word: &AtomicU32, value: u32, until: Instant, whose: Whose) {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = libc::timespec {
            // A longer wait ends after 68 years, as a spurious return.
            tv_sec: left.as_secs().min(i32::MAX as u64) as _,
            // The field has 32 or 64 bits.
            tv_nsec: left.subsec_nanos() as _,
        };
        // SAFETY: waits on a word of ours; the timeout lives through the call.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                word.as_ptr(),
                libc::FUTEX_WAIT | flag(whose),
                value,
                &raw const timeout,
            );
        }
    }

    pub(super) fn wake(word: &AtomicU32, most: libc::c_int, whose: Whose) {
        // SAFETY: wakes threads that wait on a word of ours. `errno` is the calling thread's own and is restored.
        unsafe {
            let errno = libc::__errno_location();
            let before = *errno;
            libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | flag(whose), most);
            *errno = before;
        }
    }
}

#[cfg(all(not(loom), not(target_os = "linux")))]
mod sleep {
    use super::Whose;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::{Duration, Instant};

    pub(super) fn while_equal(word: &AtomicU32, value: u32, until: Instant, _: Whose) {
        while word.load(Ordering::Relaxed) == value && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(super) fn wake(_: &AtomicU32, _: libc::c_int, _: Whose) {}
}
