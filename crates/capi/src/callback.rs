//! A function of C with its data, which is not called any more once it was taken out.
//!
//! The library may have found a reclaimer or a token's callback just before it is taken out, and call it just after.
//! In Rust that is harmless, since a closure owns what it uses; the data of C is gone by then. So each call asks a gate.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::Duration;

/// The gate is closed. Below it is the number of calls under way.
const CLOSED: u64 = 1 << 63;

thread_local! {
    /// How many calls into C this thread is inside.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// A function's data, and who uses it.
#[derive(Debug)]
pub(crate) struct Callback {
    data: *mut c_void,
    calls: AtomicU64,
}

// SAFETY: the pointer is handed back to the function it came with, and not followed. The header says that the function
// may be called in any thread.
unsafe impl Send for Callback {}
// SAFETY: as above.
unsafe impl Sync for Callback {}

/// A call into C is under way until this is dropped.
struct UnderWay<'c>(&'c Callback);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
        // Release, partner of the Acquire in `close`: what the call did is done when the data goes.
        self.0.calls.fetch_sub(1, Release);
    }
}

impl Callback {
    pub(crate) fn new(data: *mut c_void) -> Callback {
        Callback { data, calls: AtomicU64::new(0) }
    }

    /// Calls, unless it was taken out.
    pub(crate) fn call<T>(&self, call: impl FnOnce(*mut c_void) -> T) -> Option<T> {
        // Acquire, partner of nothing but order: the call comes after it is counted.
        let entered = self
            .calls
            .fetch_update(Acquire, Relaxed, |calls| (calls & CLOSED == 0).then_some(calls + 1));
        entered.ok()?;
        DEPTH.set(DEPTH.get() + 1);
        let _under_way = UnderWay(self);
        Some(call(self.data))
    }

    /// Takes it out, and waits until no other thread is inside. A thread that is inside a callback itself does not
    /// wait: it may be this very one, or be waited for by this one.
    pub(crate) fn close(&self) {
        self.calls.fetch_or(CLOSED, AcqRel);
        let mut turn = 0u32;
        // Acquire, partner of the Release in `UnderWay::drop`.
        while DEPTH.get() == 0 && self.calls.load(Acquire) != CLOSED {
            match turn {
                0..64 => std::hint::spin_loop(),
                64..1000 => std::thread::yield_now(),
                _ => std::thread::sleep(Duration::from_micros(100)),
            }
            turn = turn.saturating_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn what_was_taken_out_is_not_called_and_is_waited_for() {
        let callback = Callback::new(std::ptr::null_mut());
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
        let callback = Callback::new(std::ptr::null_mut());
        assert_eq!(callback.call(|_| callback.close()), Some(()));
        assert_eq!(callback.call(|_| ()), None);
    }
}
