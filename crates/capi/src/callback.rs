//! A function of C with its data, which is not called after it was taken out.
//!
//! The library may have found a reclaimer or a token's callback just before it is taken out, and call it just after.
//! In Rust that is harmless, since a closure owns its data. The data of C is gone by then, so each call asks a gate.

use crate::types::ledgerline_release_t;
use ledgerline::forked;
use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::Duration;

/// Flag: the gate is closed. Below it is the number of the thread that is inside (`ledgerline::forked`); zero if none
/// is. At most one thread calls at a time: a reclaimer has one run at a time, and a token's callback is called once.
const CLOSED: u64 = 1 << 63;

thread_local! {
    /// Number of calls into C that this thread is inside.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// A function's data, and the thread that uses it.
#[derive(Debug)]
pub(crate) struct Callback {
    data: *mut c_void,
    /// Frees the data, if the library owns it.
    release: ledgerline_release_t,
    inside: AtomicU64,
}

// SAFETY: the pointer is only passed to the function that it came with, and not followed. The header says that the
// function may be called in any thread.
unsafe impl Send for Callback {}
// SAFETY: as above.
unsafe impl Sync for Callback {}

/// A call into C that is under way until this is dropped.
struct UnderWay<'c>(&'c Callback);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
        // Release, partner of the Acquire in `close`: the call has ended when the data is freed.
        self.0.inside.fetch_and(CLOSED, Release);
    }
}

impl Callback {
    /// Creates a callback. `release`, if any, is called when the last reference is dropped. No thread is inside then,
    /// since a thread that is inside holds a reference.
    pub(crate) fn new(data: *mut c_void, release: ledgerline_release_t) -> Callback {
        Callback { data, release, inside: AtomicU64::new(0) }
    }

    /// Calls the function, unless it was taken out, or a fork left a thread inside that this child does not have.
    pub(crate) fn call<T>(&self, call: impl FnOnce(*mut c_void) -> T) -> Option<T> {
        // Acquire, partner of the Release in `UnderWay::drop`: each call sees the effects of the last one.
        self.inside.compare_exchange(0, forked::thread(), Acquire, Relaxed).ok()?;
        DEPTH.set(DEPTH.get() + 1);
        let _under_way = UnderWay(self);
        Some(call(self.data))
    }

    /// Takes the function out, and waits until no other thread is inside. A thread that is itself inside a callback
    /// does not wait: it may be this very one, or be waited for by this one. Threads that a fork left behind are not
    /// waited for.
    pub(crate) fn close(&self) {
        self.inside.fetch_or(CLOSED, AcqRel);
        let mut turn = 0u32;
        // Acquire, partner of the Release in `UnderWay::drop`.
        while DEPTH.get() == 0 && forked::is_here(self.inside.load(Acquire) & !CLOSED) {
            match turn {
                0..64 => std::hint::spin_loop(),
                64..1000 => std::thread::yield_now(),
                _ => std::thread::sleep(Duration::from_micros(100)),
            }
            turn = turn.saturating_add(1);
        }
    }
}

impl Drop for Callback {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: the caller's function with its data. It is called once, and nothing else uses the data any
            // more.
            unsafe { release(self.data) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn what_was_taken_out_is_not_called_and_is_waited_for() {
        let callback = Callback::new(std::ptr::null_mut(), None);
        let (inside, over) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                callback.call(|_| {
                    inside.store(true, SeqCst);
                    std::thread::sleep(Duration::from_millis(20));
                    over.store(true, SeqCst);
                })
            });
            while !inside.load(SeqCst) {
                std::thread::yield_now();
            }
            callback.close();
            assert!(over.load(SeqCst), "closed while it was called");
        });
        assert_eq!(callback.call(|_| 7), None);
    }

    #[test]
    fn a_callback_takes_itself_out_without_waiting() {
        let callback = Callback::new(std::ptr::null_mut(), None);
        assert_eq!(callback.call(|_| callback.close()), Some(()));
        assert_eq!(callback.call(|_| ()), None);
    }
}
