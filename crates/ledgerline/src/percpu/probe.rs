//! The self-test that chooses the mode, once a process.

#[cfg(all(rseq, target_arch = "aarch64"))]
mod preemption;

use super::registration::{self, Registration};
use super::{Mode, membarrier, seats};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicIsize, Ordering};

/// Variable of the environment that forces a mode.
const FORCE: &std::ffi::CStr = c"LEDGERLINE_PERCPU";

/// The registration to use, or `None` without sections.
pub(crate) fn registration() -> Registration {
    found().0
}

/// The mode of this process.
pub(crate) fn mode() -> Mode {
    found().1
}

fn found() -> (Registration, Mode) {
    static FOUND: OnceLock<(Registration, Mode)> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let forced = forced();
        let found = find(forced);
        if let Registration::Compact { area } = found {
            FAST_AREA.store(area, Ordering::Relaxed);
        }
        let owns = || membarrier::register_memory() && seats::begin(seats::owned_columns());
        let mode = match forced {
            _ if found.is_some() => Mode::Rseq,
            forced if forced != Some(b"fallback") && owns() => Mode::Owned,
            _ => Mode::Fallback,
        };
        (found, mode)
    })
}

/// Offset of `rseq_cs` where the sections may use compact ids, zero (where the thread control block
/// itself lies) everywhere else, and before the mode is known. A static of its own and not a field of
/// each ledger: one load without an address to wait for.
static FAST_AREA: AtomicIsize = AtomicIsize::new(0);

/// See [`FAST_AREA`]. Relaxed: the value is all there is to see.
#[inline(always)]
pub(crate) fn fast_area() -> isize {
    FAST_AREA.load(Ordering::Relaxed)
}

fn find(forced: Option<&[u8]>) -> Registration {
    if matches!(forced, Some(b"fallback" | b"owned")) {
        return Registration::None;
    }
    let found = registration::adopt();
    if !found.is_some() || !membarrier::register() {
        return Registration::None;
    }
    if forced == Some(b"rseq") || sections_abort(found) { found } else { Registration::None }
}

/// The value of the variable, read without allocating (this may run inside an allocator).
fn forced() -> Option<&'static [u8]> {
    // SAFETY: getenv takes a NUL-terminated name; what it returns is a NUL-terminated string of
    // the environment, which is read here at once. As for every reader of the environment, the
    // program must not change it at the same time from another thread.
    unsafe {
        let value = libc::getenv(FORCE.as_ptr());
        (!value.is_null()).then(|| std::ffi::CStr::from_ptr(value).to_bytes())
    }
}

/// Proves on this machine that the kernel aborts a section: one thread stays inside a section,
/// another fences. Where sections are not really restarted (some sandboxes implement the system
/// call but not the promise), the section runs to its end instead.
#[cfg(rseq)]
fn sections_abort(found: Registration) -> bool {
    use crate::sync::thread;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    /// About a tenth of a second: far more than the other thread needs, even on one CPU.
    const TURNS: u64 = 8_000_000;
    /// A preemption between the other thread's look and its fence may abort the first try early;
    /// that, too, is an abort. What must not happen is a try that ends by itself.
    const TRIES: usize = 2;

    let (Registration::Compact { area } | Registration::Cpu { area }) = found else {
        return false;
    };
    let entered = Arc::new(AtomicBool::new(false));
    let done = Arc::new(AtomicBool::new(false));
    let (has_entered, is_done) = (entered.clone(), done.clone());
    let fencer = thread::start(c"ledgerline-probe", move || {
        while !is_done.load(Ordering::Relaxed) {
            if has_entered.load(Ordering::Relaxed) && !membarrier::fence() {
                return;
            }
            std::thread::yield_now();
        }
    });
    let Ok(fencer) = fencer else { return false };
    let aborted = (0..TRIES).all(|_| {
        // SAFETY: this thread is registered: `adopt` read a valid CPU from its area.
        unsafe { super::rseq::spin_until_aborted(area, &entered, TURNS) }
    });
    done.store(true, Ordering::Relaxed);
    // It is gone for good when this returns.
    fencer.join();
    #[cfg(target_arch = "aarch64")]
    let aborted = aborted && preemption::aborts(area);
    aborted
}

#[cfg(not(rseq))]
fn sections_abort(_: Registration) -> bool {
    false
}
