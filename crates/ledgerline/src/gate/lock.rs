//! The stock lock: its holder may change caps and take cells that other CPUs write.
//!
//! There is one lock for the process, because it guards rare steps (a cell's first cap, a drain) and because a fork has
//! to hold it. The charge paths only try it, and go on without a cap if it is taken. A drain waits for it, unless its
//! own thread holds it: a signal handler that interrupted a drain would wait for ever.

use crate::gate::{Gate, Pass, forked};
use crate::os;
use crate::sync::{PATIENCE, wait_until};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, compiler_fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The gate of all slow paths of this process.
pub(crate) static GATE: Gate = Gate::new();

static HOLDER: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// How often this thread is inside. A plain word with nothing to drop exists from the thread's first instruction to
    /// its last, and in signal handlers too. It is an atomic, since handlers change it and restore it.
    static DEPTH: AtomicU32 = const { AtomicU32::new(0) };
}

/// Proof that the stock lock is held. Dropping it releases the lock.
#[derive(Debug)]
pub(crate) struct Held(());

impl Drop for Held {
    fn drop(&mut self) {
        HOLDER.store(0, Ordering::Release);
    }
}

/// Proof that the thread is inside the gate. Dropping it leaves.
pub(crate) struct Inside {
    nested: bool,
    _pass: Pass<'static>,
    /// Keeps the value on its thread, whose depth it counts.
    _here: PhantomData<*const ()>,
}

impl Drop for Inside {
    fn drop(&mut self) {
        DEPTH.with(|depth| depth.store(depth.load(Ordering::Relaxed) - 1, Ordering::Relaxed));
        // The pass is dropped after that: once the closer has seen this thread leave, a signal handler must not find
        // the thread inside.
        compiler_fence(Ordering::SeqCst);
    }
}

impl Inside {
    /// Returns how long to wait for another walk: only briefly if this signal handler may have interrupted that very
    /// walk.
    pub(crate) fn patience(&self) -> u32 {
        if self.nested { PATIENCE.min(64) } else { PATIENCE }
    }
}

/// Passes the gate. A thread that is already inside does not wait: the thread that closes the gate waits for it, and
/// has not closed it yet. Nor does a signal handler wait if its thread is inside, or holds the lock for which the
/// closer may be waiting.
///
/// For a thread without a slot, counting in or out and changing the depth are a few instructions apart. A signal
/// handler that comes in between does not find its thread inside; if the gate is being closed, it waits until the
/// closer gives up. If the thread has a slot, the handler finds the slot.
pub(crate) fn pass() -> Inside {
    pass_through(&GATE)
}

/// Returns whether this thread is inside. In a signal handler this covers the interrupted code.
fn is_inside(gate: &Gate, me: usize) -> bool {
    DEPTH.with(|depth| depth.load(Ordering::Relaxed)) > 0 || gate.is_inside(me)
}

fn pass_through(gate: &'static Gate) -> Inside {
    let me = thread();
    let depth = DEPTH.with(|depth| depth.load(Ordering::Relaxed));
    let nested = HOLDER.load(Ordering::Relaxed) == me || is_inside(gate, me);
    let pass = if nested { gate.enter_anyway(me) } else { gate.enter(me) };
    // The depth is stored only once the thread is admitted: a handler that finds the thread inside enters, too.
    compiler_fence(Ordering::SeqCst);
    DEPTH.with(|now| now.store(depth + 1, Ordering::Relaxed));
    Inside { nested, _pass: pass, _here: PhantomData }
}

/// A mutex that is locked inside the gate, so that no fork finds it locked.
pub(crate) struct Gated<'m, T> {
    held: MutexGuard<'m, T>,
    /// Dropped after `held`, so the thread leaves the gate once the mutex is free again.
    _inside: Inside,
}

/// Locks a mutex inside the gate, so that forks wait for it. Poisoning is ignored: a panic leaves the contents of none
/// of our mutexes half-changed.
pub(crate) fn gated<T>(mutex: &Mutex<T>) -> Gated<'_, T> {
    guard_forks();
    let inside = pass();
    Gated { held: mutex.lock().unwrap_or_else(PoisonError::into_inner), _inside: inside }
}

impl<T> std::ops::Deref for Gated<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.held
    }
}

impl<T> std::ops::DerefMut for Gated<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.held
    }
}

/// Frees the lock and the gate from threads that this process does not have. For processes that were forked without the
/// handlers of [`guard_forks`]: an allocator cannot register them, and a raw fork runs none. Those threads finish their
/// steps in the parent, on the parent's cells and totals.
pub(crate) fn forget_others() {
    crate::percpu::forget_other_threads();
    HOLDER.store(0, Ordering::Release);
    GATE.forget_others();
}

/// Takes the lock if it is free.
pub(crate) fn try_lock() -> Option<Held> {
    HOLDER
        .compare_exchange(0, thread(), Ordering::Acquire, Ordering::Relaxed)
        .is_ok()
        .then(|| Held(()))
}

/// Waits for the lock. Returns `None` if this very thread holds it.
pub(crate) fn lock() -> Option<Held> {
    let mut held = None;
    wait_until(None, || {
        held = try_lock();
        held.is_some() || HOLDER.load(Ordering::Relaxed) == thread()
    });
    held
}

/// Returns the thread's number: its thread pointer. It is never zero, and no other living thread of the process has it.
pub(crate) fn thread() -> usize {
    crate::percpu::thread_pointer()
}

/// Registers handlers, once per process, that hold the gate and the lock across a fork. `fork` copies the memory of all
/// threads but only the calling thread itself, so a half-done step of another thread would stay half-done in the child.
///
/// Every function that makes a ledger in memory or locks a mutex of `std` inside the gate calls this. A ledger in a
/// file may belong to an allocator before `main`, which cannot register anything, and locks no such mutex.
///
/// The state is a number, not a `Once`: the registration may allocate and so come back here through the allocator, and
/// a forked child must not wait for ever for a registering thread that it does not have.
pub(crate) fn guard_forks() {
    static CLOSED: AtomicBool = AtomicBool::new(false);
    static LOCKED: AtomicBool = AtomicBool::new(false);

    /// How many turns a fork waits: some seconds. A preempted thread inside runs again in that time even if a hundred
    /// others compete for its CPU. A lock that it holds would stay locked in the child.
    const FORK_PATIENCE: u32 = 10 * PATIENCE;

    extern "C" fn before() {
        let me = thread();
        // If a signal handler forks while its own thread is inside, that thread will not leave.
        let patience = if is_inside(&GATE, me) { PATIENCE.min(64) } else { FORK_PATIENCE };
        // The gate is closed first: a thread inside may need the lock to get out.
        CLOSED.store(GATE.close_within(me, patience), Ordering::Relaxed);
        let held = lock();
        LOCKED.store(held.is_some(), Ordering::Relaxed);
        std::mem::forget(held);
    }

    extern "C" fn in_the_child() {
        forked::forget_others();
        crate::percpu::forget_other_threads();
        // The parent's other threads do not exist here. If the gate was closed, some of them may have been asking to
        // enter. If it could not be closed, some were inside, or one had closed it for a fork of its own. If this very
        // thread is inside, it leaves later in the normal way.
        if CLOSED.load(Ordering::Relaxed) {
            GATE.forget_askers();
        } else if is_inside(&GATE, thread()) {
            GATE.open();
        } else {
            GATE.forget_others();
        }
        after();
    }

    extern "C" fn after() {
        if LOCKED.swap(false, Ordering::Relaxed) {
            drop(Held(()));
        }
        if CLOSED.swap(false, Ordering::Relaxed) {
            GATE.open();
        }
    }

    /// Zero before the registration, and the number of the registering thread during it.
    static REGISTERED: AtomicUsize = AtomicUsize::new(0);
    const DONE: usize = 1;
    let me = thread();
    // Acquire, partner of the Release below.
    let is_done = || matches!(REGISTERED.load(Ordering::Acquire), DONE);
    if is_done() {
        return;
    }
    loop {
        let before = REGISTERED.load(Ordering::Acquire);
        if before == DONE || before == me {
            return;
        }
        // If a fork came before the handlers are registered, the child could find locked what this thread is about to
        // lock. So this waits for a thread that registers them, but not for ever: this may be a child that does not
        // have that thread.
        if before != 0 && wait_until(Some(PATIENCE), is_done) {
            return;
        }
        let take = REGISTERED.compare_exchange(before, me, Ordering::Acquire, Ordering::Relaxed);
        if take.is_ok() {
            break;
        }
    }
    // The handlers touch only the statics above. Guarded by the tests in tests/main/fork.rs.
    os::at_fork(before, after, in_the_child);
    REGISTERED.store(DONE, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_holds_it_is_not_made_to_wait_for_itself() {
        let held = lock().expect("not held by this thread");
        assert!(lock().is_none());
        assert!(try_lock().is_none());
        drop(held);
        assert!(lock().is_some());
    }

    /// Otherwise the thread would wait at the gate for the closer, which waits for this thread.
    #[test]
    fn a_thread_that_found_no_slot_knows_that_it_is_inside() {
        static ONE: Gate = Gate::new();
        // Threads of the same stripe, more than it has slots.
        let others: Vec<_> = (1..20).map(|other| ONE.enter(thread() ^ other)).collect();
        let outer = pass_through(&ONE);
        assert!(!outer.nested && !ONE.is_inside(thread()), "a slot was free");
        let inner = pass_through(&ONE);
        assert!(inner.nested);
        drop(inner);
        assert!(pass_through(&ONE).nested);
        drop(outer);
        assert!(!pass_through(&ONE).nested);
        drop(others);
        assert!(ONE.quiet().is_some());
    }

    /// Runs a test in a process of its own: while a fork waits, no thread passes this process's gate.
    fn alone(test: &str, body: impl FnOnce()) {
        const ALONE: &str = "LEDGERLINE_TEST_ALONE";
        if std::env::var_os(ALONE).is_some() {
            return body();
        }
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        let test = format!("gate::lock::tests::{test}");
        let output = command.args(["--exact", &test]).env(ALONE, "1").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
    }

    /// Forks, and returns how the child ended.
    fn child(act: impl FnOnce() -> i32) -> i32 {
        // SAFETY: the child only makes system calls and accesses atomics. It is killed if it hangs, and waited for.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::alarm(20);
                libc::_exit(act());
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -1 }
        }
    }

    /// Like a thread that was preempted on a busy machine.
    #[test]
    fn a_fork_waits_for_a_thread_that_is_inside_for_long() {
        static MUTEX: Mutex<()> = Mutex::new(());
        alone("a_fork_waits_for_a_thread_that_is_inside_for_long", || {
            let (sender, receiver) = std::sync::mpsc::channel();
            let slow = std::thread::spawn(move || {
                let held = gated(&MUTEX);
                sender.send(()).unwrap();
                std::thread::sleep(std::time::Duration::from_secs(1));
                drop(held);
            });
            receiver.recv().unwrap();
            assert_eq!(child(|| i32::from(MUTEX.try_lock().is_err())), 0);
            slow.join().unwrap();
        });
    }

    /// If a signal handler forks while its thread is inside, the fork cannot wait for that thread. Another thread may
    /// have closed the gate for a fork at that moment; the child does not have that thread.
    #[test]
    fn a_fork_from_inside_leaves_a_gate_that_opens() {
        alone("a_fork_from_inside_leaves_a_gate_that_opens", || {
            guard_forks();
            let inside = pass();
            GATE.closed_by.store(thread() ^ 64, Ordering::Relaxed);
            let opens = || {
                drop(inside);
                drop(pass());
                i32::from(!GATE.close(thread()))
            };
            assert_eq!(child(opens), 0);
            GATE.open();
        });
    }
}
