//! The remote fence of a process whose system call filter refuses `membarrier` after the start: the calling thread runs
//! on each CPU in turn.
//!
//! ```text
//! visit                                         a thread in a section on CPU c
//!   store what the fence is for                   area.rseq_cs = &descriptor
//!   for each CPU c that the process may use:      load, ...
//!     sched_setaffinity(0, {c})                     the kernel takes c away: the section is aborted
//!   sched_setaffinity(0, what it was)             restart: sees the store
//! ```
//!
//! A section ends when its thread loses its CPU, and the kernel passes a full barrier when it gives a CPU to another
//! thread. So once the caller has run on a CPU, each section that was running there when the visit began has committed
//! or is aborted, and the next one sees the caller's earlier stores. A thread that started, moved or slept meanwhile
//! went through the kernel's scheduler after the caller's stores, too. Only a thread that runs on one CPU all the time
//! must be met there, and that CPU is in its affinity. So every thread's affinity must lie within the CPUs that the
//! caller may visit. If a thread's affinity does not, or cannot be read, this is no fence.
//!
//! It costs some ten microseconds per idle CPU, and a time slice of the scheduler per busy CPU. It allocates nothing,
//! since an allocator may wait for it.
//!
//! If the process had all CPUs that its cpuset allows, it has them again at the end, including CPUs that the cpuset
//! gets later.

use std::sync::atomic::{Ordering, fence};

/// Words of a set of 1024 CPUs.
const WORDS: usize = 16;
/// How often the caller tries to get onto a CPU: another thread may set its affinity at the same time.
const TRIES: usize = 3;

type Cpus = [u64; WORDS];

/// Visits every CPU. Returns whether that was a fence.
#[cold]
#[inline(never)]
pub(super) fn every_cpu() -> bool {
    // SAFETY: the location is the calling thread's own.
    let errno = unsafe { &mut *libc::__errno_location() };
    let kept = *errno;
    let done = visit().is_some();
    *errno = kept;
    done
}

fn visit() -> Option<()> {
    // SeqCst, partner of the kernel's barrier on each visited CPU: the caller's earlier stores are seen there.
    fence(Ordering::SeqCst);
    let before = affinity(0)?;
    // All CPUs that the cpuset allows.
    set_affinity(&[!0; WORDS])?;
    let allowed = affinity(0).filter(|allowed| covers_all_threads(allowed) == Some(true));
    let visited = allowed.and_then(|allowed| each(&allowed).try_for_each(run_on));
    let had_all = allowed.is_some_and(|allowed| allowed == before);
    set_affinity(if had_all { &[!0; WORDS] } else { &before })?;
    // SeqCst, as above: the sections' committed stores are seen here.
    fence(Ordering::SeqCst);
    visited
}

/// Iterates over the numbers of a set.
fn each(cpus: &Cpus) -> impl Iterator<Item = usize> + '_ {
    (0..WORDS * 64).filter(|cpu| cpus[cpu / 64] >> (cpu % 64) & 1 != 0)
}

/// Runs on a CPU for a moment. A CPU that went away meanwhile took its threads through the scheduler.
fn run_on(cpu: usize) -> Option<()> {
    let mut only = [0; WORDS];
    only[cpu / 64] = 1 << (cpu % 64);
    for _ in 0..TRIES {
        set_affinity(&only)?;
        let mut now = u32::MAX;
        // SAFETY: the kernel writes one number, and accepts null for the others.
        unsafe { libc::syscall(libc::SYS_getcpu, &raw mut now, 0usize, 0usize) };
        if now as usize == cpu {
            return Some(());
        }
    }
    None
}

fn affinity(thread: libc::pid_t) -> Option<Cpus> {
    let mut cpus = [0; WORDS];
    // SAFETY: the kernel writes at most this many bytes. It refuses if that is too few for its CPUs.
    let done = unsafe {
        libc::syscall(libc::SYS_sched_getaffinity, thread, size_of::<Cpus>(), cpus.as_mut_ptr())
    };
    (done > 0).then_some(cpus)
}

fn set_affinity(cpus: &Cpus) -> Option<()> {
    // SAFETY: the kernel reads this many bytes, and changes only the calling thread.
    let done =
        unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, size_of::<Cpus>(), cpus.as_ptr()) };
    (done == 0).then_some(())
}

/// Returns whether all threads of this process run only on these CPUs, or `None` if that is unknown.
fn covers_all_threads(allowed: &Cpus) -> Option<bool> {
    /// The size of the header that the kernel writes before the name of each entry.
    const HEAD: usize = 19;
    // SAFETY: the path ends in a zero; gettid takes nothing.
    let (folder, own) = unsafe {
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
        (libc::open(c"/proc/self/task".as_ptr(), flags), libc::syscall(libc::SYS_gettid))
    };
    if folder < 0 {
        return None;
    }
    let mut entries = [0u8; 1024];
    let (mut covers, mut knows_own) = (true, false);
    let read_all = loop {
        // SAFETY: the kernel writes at most this many bytes.
        let read = unsafe {
            libc::syscall(libc::SYS_getdents64, folder, entries.as_mut_ptr(), entries.len())
        };
        let Ok(read) = usize::try_from(read) else { break false };
        if read == 0 {
            break true;
        }
        let mut at = 0;
        while at + HEAD < read {
            let length = u16::from_ne_bytes([entries[at + 16], entries[at + 17]]);
            let name = entries[at + HEAD..read].split(|&byte| byte == 0).next().unwrap_or_default();
            let thread = std::str::from_utf8(name).ok().and_then(|name| name.parse().ok());
            if let Some(thread) = thread {
                knows_own |= i64::from(thread) == own;
                // A thread that has ended has no affinity and runs nothing.
                let cpus: Cpus = affinity(thread).unwrap_or_default();
                covers &= cpus.iter().zip(allowed).all(|(cpus, allowed)| cpus & !allowed == 0);
            }
            at += usize::from(length).max(1);
        }
    };
    // SAFETY: this function owns the descriptor.
    unsafe { libc::close(folder) };
    // The own thread must be among them, since the numbers may be those of another namespace.
    (read_all && knows_own).then_some(covers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_visit_leaves_the_affinity_as_it_was() {
        let before = affinity(0).unwrap();
        assert!(every_cpu());
        assert_eq!(affinity(0), Some(before));
        let first = each(&before).next().unwrap();
        assert_eq!(run_on(first), Some(()));
        let one = affinity(0).unwrap();
        assert_eq!(each(&one).collect::<Vec<_>>(), [first]);
        assert!(every_cpu());
        assert_eq!(affinity(0), Some(one));
        set_affinity(&before).unwrap();
    }

    #[test]
    fn a_thread_on_a_cpu_that_cannot_be_visited_is_noticed() {
        let all = affinity(0).unwrap();
        assert_eq!(covers_all_threads(&all), Some(true));
        assert_eq!(covers_all_threads(&[0; WORDS]), Some(false));
    }
}
