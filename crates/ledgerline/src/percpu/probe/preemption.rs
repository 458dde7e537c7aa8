//! The second half of the self-test, on arm64: a thread that was preempted in a section, and got the same CPU
//! back, must have been aborted. There is a report that Linux 6.19 does not abort it there.
//!
//! ```text
//! two threads, on one CPU:    one:    enter a section; stay there until `over`      aborted? good
//!                             other:  wait until one has entered; over = true
//! ```
//!
//! The other thread runs only once the first has lost the CPU. So the first is aborted, or sees that it was not.
//! That takes a time slice of the scheduler: some milliseconds.

use crate::percpu::rseq;
use crate::sync::thread;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// About a second in total. It ends the test if the other thread never gets the CPU, because the first has a
/// real-time priority.
const TURNS: u64 = 50_000_000;

/// Other events may abort the first try in a way that works even on kernels with the bug, so there is a second
/// one.
const TRIES: usize = 2;

/// Returns whether a section is aborted when its thread loses the CPU, and `false` if that cannot be tried.
/// `area` is a registration of all threads.
pub(super) fn aborts(area: isize) -> bool {
    (0..TRIES).all(|_| {
        // SAFETY: a glibc that registered one thread registers all of them.
        aborts_once(move |entered, over| unsafe {
            rseq::wait_until_aborted(area, entered, over, TURNS)
        })
    })
}

/// Makes one try. `wait` sets the first flag and waits until the second is set; it returns whether it was
/// aborted.
fn aborts_once(wait: impl Fn(&AtomicBool, &AtomicBool) -> bool + Send + 'static) -> bool {
    #[derive(Default)]
    struct Flags {
        entered: AtomicBool,
        over: AtomicBool,
        aborted: AtomicBool,
    }
    // SAFETY: has no preconditions.
    let Ok(cpu) = usize::try_from(unsafe { libc::sched_getcpu() }) else { return false };
    let flags = Arc::new(Flags::default());
    // Relaxed: the flags publish no other data, and a join makes a thread's writes visible.
    let (ones, others) = (flags.clone(), flags.clone());
    let one = thread::start(c"ledgerline-probe", move || {
        if pin(cpu) {
            ones.aborted.store(wait(&ones.entered, &ones.over), Relaxed);
        }
        // This lets the other thread end.
        ones.entered.store(true, Relaxed);
    });
    let Ok(one) = one else { return false };
    let other = thread::start(c"ledgerline-probe", move || {
        let on_that_cpu = pin(cpu);
        while !others.entered.load(Relaxed) {
            std::thread::yield_now();
        }
        if on_that_cpu {
            others.over.store(true, Relaxed);
        }
    });
    one.join();
    let Ok(other) = other else { return false };
    other.join();
    flags.aborted.load(Relaxed)
}

/// Keeps the calling thread on one CPU. Returns `false` if a sandbox forbids that, or this process may not use
/// the CPU.
fn pin(cpu: usize) -> bool {
    // SAFETY: the mask is on the stack and read by the call. `CPU_SET` checks the number.
    unsafe {
        let mut one: libc::cpu_set_t = std::mem::zeroed();
        cpu < libc::CPU_SETSIZE as usize && {
            libc::CPU_SET(cpu, &mut one);
            libc::sched_setaffinity(0, size_of_val(&one), &raw const one) == 0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::percpu::registration::{self, Registration};
    use crate::percpu::thread_pointer;

    #[test]
    fn this_kernel_aborts_a_section_that_lost_its_cpu() {
        let Ok(Registration::Compact { area } | Registration::Cpu { area }) = registration::adopt()
        else {
            return eprintln!("skipped: no restartable sequences here");
        };
        assert!(aborts(area));
    }

    /// Arms the section in a word that the kernel does not know, so nothing aborts it.
    #[test]
    fn a_kernel_that_does_not_abort_is_found() {
        static NOT_THE_AREA: AtomicBool = AtomicBool::new(false);
        let aborted = aborts_once(|entered, over| {
            let mut word = [0u64; 8];
            let area = (&raw mut word[2]).addr().wrapping_sub(thread_pointer());
            // SAFETY: the section stores its descriptor's address to a word of this function, and reads nothing
            // around it.
            let aborted = unsafe { rseq::wait_until_aborted(area as isize, entered, over, TURNS) };
            NOT_THE_AREA.store(word[2] != 0, Relaxed);
            aborted
        });
        assert!(NOT_THE_AREA.load(Relaxed), "the section was not entered");
        assert!(!aborted);
    }
}
