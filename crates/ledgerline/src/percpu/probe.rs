//! The self-test that chooses the mode, once per process.

#[cfg(all(rseq, target_arch = "aarch64"))]
mod preemption;

use super::grounds::{Grounds, Index, Without};
use super::registration::{self, Registration};
use super::{Mode, membarrier, thread_slots};
use std::sync::OnceLock;
#[cfg(all(rseq, not(own_area)))]
use std::sync::atomic::AtomicIsize;
use std::sync::atomic::Ordering;

/// The environment variable that forces a mode.
const FORCE: &std::ffi::CStr = c"LEDGERLINE_PERCPU";

/// Returns the registration to use, or `None` without sections.
pub(crate) fn registration() -> Registration {
    found().0
}

/// Returns the mode of this process, and the reasons for it.
pub(crate) fn grounds() -> Grounds {
    found().1
}

fn found() -> (Registration, Grounds) {
    static FOUND: OnceLock<(Registration, Grounds)> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let forced = forced();
        let found = sections(forced);
        #[cfg(all(rseq, not(own_area)))]
        FAST_AREA.store(found.map_or(0, Registration::compact_area), Ordering::Relaxed);
        let owned = found.is_err().then(|| owned_columns(forced));
        let mode = match owned {
            None => Mode::Rseq,
            Some(Ok(())) => Mode::Owned,
            Some(Err(_)) => Mode::Fallback,
        };
        let sections = found.map(|found| match found {
            Registration::Compact { .. } => Index::Compact,
            _ => Index::Cpu,
        });
        (found.unwrap_or(Registration::None), Grounds { mode, forced, sections, owned })
    })
}

/// Offset of `rseq_cs` if the sections may use compact ids. Otherwise, and before the mode is known, it is zero, where
/// the thread control block itself lies. It is a static and not a field of each ledger, so that it takes one load
/// without an address to wait for.
#[cfg(all(rseq, not(own_area)))]
static FAST_AREA: AtomicIsize = AtomicIsize::new(0);

/// Returns `FAST_AREA`. Relaxed: the value publishes no other data.
#[inline(always)]
pub(crate) fn fast_area() -> isize {
    #[cfg(all(rseq, not(own_area)))]
    return FAST_AREA.load(Ordering::Relaxed);
    // Each thread has its own area, which is zero until the thread is registered.
    #[cfg(own_area)]
    return super::own_area::fast();
    #[cfg(not(rseq))]
    0
}

/// Returns whether the calling thread may use sections if the process does. With glibc that is always so, and without
/// sections never; both cost nothing.
#[inline(always)]
pub(crate) fn serves_this_thread() -> bool {
    cfg!(all(rseq, not(own_area))) || fast_area() != 0
}

fn sections(forced: Option<Mode>) -> Result<Registration, Without> {
    if matches!(forced, Some(Mode::Fallback | Mode::Owned)) {
        return Err(Without::Forced);
    }
    let found = registration::adopt()?;
    if !membarrier::register() {
        return Err(Without::Fence);
    }
    if forced != Some(Mode::Rseq) {
        sections_abort(found)?;
    }
    Ok(found)
}

fn owned_columns(forced: Option<Mode>) -> Result<(), Without> {
    if forced == Some(Mode::Fallback) {
        return Err(Without::Forced);
    }
    if !membarrier::register_memory() {
        return Err(Without::Fence);
    }
    if thread_slots::begin(thread_slots::owned_columns()) { Ok(()) } else { Err(Without::Key) }
}

/// Returns the mode that the variable names. It allocates nothing, since this may run inside an allocator.
fn forced() -> Option<Mode> {
    // SAFETY: getenv takes a NUL-terminated name and returns a NUL-terminated string of the environment, which is read
    // here at once. As for every reader of the environment, the program must not change it at the same time from
    // another thread.
    let value = unsafe {
        let value = libc::getenv(FORCE.as_ptr());
        if value.is_null() {
            return None;
        }
        std::ffi::CStr::from_ptr(value).to_bytes()
    };
    match value {
        b"rseq" => Some(Mode::Rseq),
        b"owned" => Some(Mode::Owned),
        b"fallback" => Some(Mode::Fallback),
        _ => None,
    }
}

/// Tests on this machine that the kernel aborts a section: one thread stays inside a section while another fences. If
/// sections are not restarted, the section runs to its end instead: some sandboxes implement the system call but not
/// its guarantee.
fn sections_abort(found: Registration) -> Result<(), Without> {
    use crate::sync::thread;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    /// About a tenth of a second: far more than the other thread needs, even on one CPU.
    const TURNS: u64 = 8_000_000;
    /// A preemption between the other thread's check and its fence may abort the first try early; that is an abort,
    /// too. But no try may end by itself.
    const TRIES: usize = 2;

    let (Registration::Compact { area } | Registration::Cpu { area }) = found else {
        return Err(Without::Registration);
    };
    let entered = Arc::new(AtomicBool::new(false));
    let done = Arc::new(AtomicBool::new(false));
    let (has_entered, is_done) = (entered.clone(), done.clone());
    let fencer = thread::start(c"ledgerline-probe", move || {
        while !is_done.load(Ordering::Relaxed) {
            if has_entered.load(Ordering::Relaxed) && !membarrier::fence_sections() {
                return;
            }
            std::thread::yield_now();
        }
    });
    let Ok(fencer) = fencer else { return Err(Without::Thread) };
    let aborted = (0..TRIES).all(|_| {
        // SAFETY: this thread is registered: `adopt` read a valid CPU from its area.
        unsafe { super::rseq::spin_until_aborted(area, &entered, TURNS) }
    });
    done.store(true, Ordering::Relaxed);
    // The thread has ended when this returns.
    fencer.join();
    #[cfg(all(rseq, target_arch = "aarch64"))]
    let aborted = aborted && preemption::aborts(area);
    if aborted { Ok(()) } else { Err(Without::Restart) }
}
