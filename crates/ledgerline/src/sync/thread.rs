//! The threads that the library starts by itself.
//!
//! They are made by the C library, not by `std::thread`. A thread of the standard library takes a process-wide lock
//! while it starts and while it ends (on Linux, to note its stack for the overflow message). A fork in between leaves
//! that lock locked in the child, and no thread there unlocks it: the first thread that the child starts waits for
//! ever, and so does a thread that joins it. The C library unlocks its own locks in a child. Guarded by
//! `a_forked_child_of_a_ledger_in_a_file_can_add_reclaimers`.
//!
//! Such a thread blocks all signals: the program's signals are not meant for it.

use crate::os;
use std::ffi::{CStr, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The standard library's stack size. Pages are touched only when they are needed.
const STACK: usize = 2 << 20;

/// A thread. Dropping this detaches it.
///
/// A forked child must forget the threads of its parent: the number names no thread there.
#[derive(Debug)]
pub(crate) struct Thread {
    id: libc::pthread_t,
}

// SAFETY: any thread may use the number (with musl, an address), and only one at a time ends it.
unsafe impl Send for Thread {}
// SAFETY: likewise.
unsafe impl Sync for Thread {}

struct Work {
    name: &'static CStr,
    run: Box<dyn FnOnce() + Send>,
}

/// Starts a thread. A panic in it ends that thread and nothing else.
///
/// # Errors
/// The system's, if it cannot make a thread.
pub(crate) fn start(
    name: &'static CStr,
    run: impl FnOnce() + Send + 'static,
) -> io::Result<Thread> {
    let work = Box::into_raw(Box::new(Work { name, run: Box::new(run) }));
    // SAFETY: the work is a box of its own, which the thread takes over.
    unsafe { with_signals_blocked(|| create(work.cast())) }.inspect_err(|_| {
        // SAFETY: no thread was made, so this function still owns the box.
        drop(unsafe { Box::from_raw(work) });
    })
}

impl Thread {
    /// Returns whether it is the calling thread.
    pub(crate) fn is_this(&self) -> bool {
        // SAFETY: neither thread was joined yet, so neither number was reused.
        unsafe { libc::pthread_equal(libc::pthread_self(), self.id) != 0 }
    }

    /// Waits for its end. It must not be the calling thread.
    pub(crate) fn join(self) {
        // SAFETY: the thread was neither joined nor detached: that takes this value.
        unsafe { libc::pthread_join(self.id, std::ptr::null_mut()) };
        std::mem::forget(self);
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        // SAFETY: as in `join`.
        unsafe { libc::pthread_detach(self.id) };
    }
}

/// # Safety
/// `work` is a [`Work`] in a box, which the new thread owns from now on.
unsafe fn create(work: *mut c_void) -> io::Result<Thread> {
    let mut attributes = MaybeUninit::uninit();
    let mut id = MaybeUninit::uninit();
    // SAFETY: the attributes are initialised first and destroyed last, and the number is read only if a thread was
    // made. If the system rejects the stack size, the default stays.
    unsafe {
        let code = libc::pthread_attr_init(attributes.as_mut_ptr());
        if code != 0 {
            return Err(io::Error::from_raw_os_error(code));
        }
        libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), STACK);
        let code = libc::pthread_create(id.as_mut_ptr(), attributes.as_ptr(), enter, work);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        if code == 0 {
            Ok(Thread { id: id.assume_init() })
        } else {
            Err(io::Error::from_raw_os_error(code))
        }
    }
}

extern "C" fn enter(work: *mut c_void) -> *mut c_void {
    // SAFETY: `start` gave this thread its box.
    let Work { name, run } = *unsafe { Box::from_raw(work.cast::<Work>()) };
    os::name_thread(name);
    // The starting thread may be gone, so no caller is left to report a panic to.
    let _ = catch_unwind(AssertUnwindSafe(run));
    std::ptr::null_mut()
}

/// Runs `act` while all signals are blocked: a new thread inherits the mask of the thread that starts it.
fn with_signals_blocked<T>(act: impl FnOnce() -> T) -> T {
    // SAFETY: the sets are this function's, and sigfillset fills the first before it is read.
    unsafe {
        let (mut all, mut before) = std::mem::zeroed::<(libc::sigset_t, libc::sigset_t)>();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let done = act();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_thread_has_its_name_and_no_signal_and_is_joined() {
        let (sender, receiver) = channel();
        let thread = start(c"ledgerline-name", move || {
            // SAFETY: the set is on the stack, and written by the call.
            let blocked = unsafe {
                let mut set = std::mem::zeroed::<libc::sigset_t>();
                libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), &raw mut set);
                [libc::SIGTERM, libc::SIGUSR1, libc::SIGCHLD]
                    .map(|s| libc::sigismember(&raw const set, s))
            };
            let name = std::fs::read_to_string("/proc/thread-self/comm").unwrap();
            sender.send((name, blocked)).unwrap();
        })
        .unwrap();
        assert!(!thread.is_this());
        thread.join();
        assert_eq!(receiver.try_recv().unwrap(), ("ledgerline-name\n".to_owned(), [1; 3]));
        // The starting thread still gets its signals. SAFETY: as above.
        let blocked = unsafe {
            let mut set = std::mem::zeroed::<libc::sigset_t>();
            libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), &raw mut set);
            libc::sigismember(&raw const set, libc::SIGTERM)
        };
        assert_eq!(blocked, 0);
    }

    #[test]
    fn a_thread_that_panics_ends_alone() {
        start(c"ledgerline-panic", || panic!("on purpose")).unwrap().join();
    }

    #[test]
    fn a_thread_knows_itself_and_may_go_on_alone() {
        let (sender, receiver) = channel::<Thread>();
        let (told, tells) = channel();
        let thread = start(c"ledgerline-self", move || {
            let own = receiver.recv().unwrap();
            told.send(own.is_this()).unwrap();
        })
        .unwrap();
        sender.send(thread).unwrap();
        assert!(tells.recv().unwrap());
    }
}
