//! The identity of a process in the ledger, in any namespace.

use std::ffi::CStr;
use std::mem::MaybeUninit;

/// Set in the owner of a row whose process is in another namespace than the run's.
const APART: u32 = 1 << 31;
/// Bits of a process id in another namespace. Each namespace counts its processes from 1.
const PID_BITS: u32 = 17;
/// The largest distance between the numbers of two namespaces. The kernel gives each one the lowest free number.
const REACH: i64 = 1 << 13;

/// The link that shows the number of the process's namespace of process ids.
pub const OWN_NAMESPACE: &CStr = c"/proc/self/ns/pid";

/// A process: its id in its own namespace of process ids, and that namespace relative to the run's, which is the
/// supervisor's. The owner of the process's rows.
///
/// ```text
/// the run's own namespace:  bit 31 clear                  the process id
/// another:                  bit 31 set    bits 30..17     bits 16..0
///                                         8192 + its      the process id
///                                         number - the    in there
///                                         run's number
/// ```
///
/// A process id alone is ambiguous: process 1 of another namespace is not process 1 of this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity(u32);

impl Identity {
    /// Returns the identity of the process with this id in the namespace whose number is larger by `distance` than the
    /// run's; 0 is the run's own. `None` if the namespace is too far away, or the id too large, to be distinguished
    /// from others.
    #[must_use]
    pub fn new(pid: u32, distance: i64) -> Option<Identity> {
        if distance == 0 {
            return Some(Identity(pid & !APART));
        }
        let near = (-REACH..REACH).contains(&distance) && pid < 1 << PID_BITS;
        near.then(|| Identity(APART | ((distance + REACH) as u32) << PID_BITS | pid))
    }

    /// Returns the identity of the calling process. `run` is the number of the run's namespace; with `None` namespaces
    /// are unknown, and all processes count as in one. If the process's own namespace cannot be read, as in a chroot
    /// without `/proc`, it is that of `forked`, the process that it was forked from, unless the process is the first in
    /// its namespace. Returns `None` as [`new`](Self::new) does, or if nothing is known. Allocates nothing.
    #[must_use]
    pub fn own(run: Option<u64>, forked: Option<Identity>) -> Option<Identity> {
        // SAFETY: getpid has no preconditions.
        let pid = unsafe { libc::getpid() }.unsigned_abs();
        match run {
            None => Identity::new(pid, 0),
            Some(run) => match number(OWN_NAMESPACE) {
                Some(number) => Identity::new(pid, number.wrapping_sub(run).cast_signed()),
                None => Identity::forked(pid, forked?),
            },
        }
    }

    /// Returns the identity of the process with this id in the namespace of the process that it was forked from; `None`
    /// if it is the first in its own. Makes no system call.
    #[must_use]
    pub fn forked(pid: u32, from: Identity) -> Option<Identity> {
        if pid == 1 { None } else { Identity::new(pid, from.distance()) }
    }

    /// Returns the identity that is the owner of a row.
    #[must_use]
    pub const fn from_owner(owner: u32) -> Identity {
        Identity(owner)
    }

    /// Returns the number that is written into the process's rows.
    #[must_use]
    pub const fn owner(self) -> u32 {
        self.0
    }

    /// Returns the process's id in its namespace.
    #[must_use]
    pub const fn pid(self) -> u32 {
        if self.0 & APART == 0 { self.0 } else { self.0 & ((1 << PID_BITS) - 1) }
    }

    /// Returns the difference between the number of its namespace and that of the run's; 0 is the run's own.
    #[must_use]
    pub const fn distance(self) -> i64 {
        if self.0 & APART == 0 { 0 } else { ((self.0 & !APART) >> PID_BITS) as i64 - REACH }
    }

    /// Returns whether the process may still hold memory, as seen from the namespace of `asking`. A process in another
    /// namespace counts as alive: holding a dead process's memory for longer does less harm than freeing a living
    /// one's. Allocates nothing.
    #[must_use]
    pub fn may_live(self, asking: Identity) -> bool {
        self.distance() != asking.distance() || crate::alive(self.pid())
    }
}

/// Returns the program in the name of a process's row: `PROGRAM.PID` or, in another namespace, `PROGRAM.nsN.PID`.
#[must_use]
pub fn program(name: &str) -> &str {
    let before_number = |name| -> Option<&str> {
        let (before, number) = str::rsplit_once(name, '.')?;
        number.bytes().all(|digit| digit.is_ascii_digit()).then_some(before)
    };
    let Some(rest) = before_number(name) else { return name };
    let apart = rest.rsplit_once(".ns").filter(|(_, number)| number.parse::<i64>().is_ok());
    apart.map_or(rest, |(program, _)| program)
}

/// Returns the number of the namespace that a file of `/proc/…/ns` stands for.
#[must_use]
pub fn number(file: &CStr) -> Option<u64> {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the path ends in zero; the call fills the record where it returns 0.
    unsafe {
        let found = libc::stat(file.as_ptr(), status.as_mut_ptr()) == 0;
        found.then(|| status.assume_init().st_ino)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_says_which_process_and_where_and_is_nobody_elses() {
        let mut seen = std::collections::HashSet::new();
        for distance in [0, 1, -1, 341, 660, -8192, 8191] {
            for pid in [1, 2, 4711, (1 << 17) - 1] {
                let process = Identity::new(pid, distance).unwrap();
                assert!(seen.insert(process.owner()), "{process:?}");
                let read = Identity::from_owner(process.owner());
                assert_eq!((read.pid(), read.distance()), (pid, distance));
            }
        }
        // In the run's own namespace an owner is the process id, and the kernel's largest id fits.
        assert_eq!(Identity::new(4_194_303, 0).unwrap().owner(), 4_194_303);
    }

    #[test]
    fn a_name_says_which_program_a_process_ran() {
        for (name, of) in [
            ("sort.4711", "sort"),
            ("sort.ns341.7", "sort"),
            ("sort.ns-12.7", "sort"),
            ("python3.11.4711", "python3.11"),
            ("a.ns.4711", "a.ns"),
            (".1", ""),
            ("sort", "sort"),
            ("gr\u{f6}\u{df}e.9", "gr\u{f6}\u{df}e"),
        ] {
            assert_eq!(program(name), of);
        }
    }

    #[test]
    fn who_cannot_be_told_from_others_has_no_identity() {
        for (pid, distance) in [(1, 8192), (1, -8193), (1 << 17, 1), (1, i64::MIN)] {
            assert_eq!(Identity::new(pid, distance), None);
        }
    }

    #[test]
    fn who_cannot_be_judged_from_here_counts_as_alive() {
        let here = Identity::own(number(OWN_NAMESPACE), None).unwrap();
        assert_eq!(here.owner(), std::process::id());
        assert!(here.may_live(here));
        // No process has the largest id of all.
        assert!(!Identity::new((1 << 22) - 1, 0).unwrap().may_live(here));
        let there = Identity::new((1 << 17) - 1, 7).unwrap();
        assert!(there.may_live(here));
        assert!(here.may_live(there));
    }
}
