//! What a process is called in the ledger, whatever namespace it lives in.

use std::ffi::CStr;
use std::mem::MaybeUninit;

/// The kernel's process ids are below 2^22.
const PID_BITS: u32 = 22;
/// How far the numbers of two namespaces may lie apart.
const REACH: i64 = 512;

/// Where the process's namespace of process ids shows its number.
pub const OWN_NAMESPACE: &CStr = c"/proc/self/ns/pid";

/// A process: its id as its own namespace of process ids numbers it, and which namespace that is, as seen from the
/// run's (the supervisor's). The owner of its rows.
///
/// ```text
/// bits 31..22  0: the run's own namespace; 1023: not known; else 512 + its number - the run's number
/// bits 21..0   the process id in there
/// ```
///
/// A process id alone says nothing in another namespace: what is 1 in there is somebody else here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity(u32);

/// A namespace of process ids, by its distance from the run's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Namespace {
    /// The run's own.
    Same,
    /// Its number is so much larger than that of the run's, or smaller. Never 0.
    Apart(i64),
    /// It is too far away to be told, or its number cannot be read.
    Unknown,
}

impl Identity {
    /// The process with this id in a namespace.
    #[must_use]
    pub fn new(pid: u32, namespace: Namespace) -> Identity {
        let part = match namespace {
            Namespace::Same => 0,
            Namespace::Apart(distance) => (distance + REACH) as u32,
            Namespace::Unknown => 2 * REACH as u32 - 1,
        };
        Identity(part << PID_BITS | pid & ((1 << PID_BITS) - 1))
    }

    /// The calling process, where the run's namespace has this number (`None` is: nothing is known of namespaces,
    /// and all processes are in one). Allocates nothing.
    #[must_use]
    pub fn own(run: Option<u64>) -> Identity {
        // SAFETY: getpid has no preconditions.
        let pid = unsafe { libc::getpid() }.unsigned_abs();
        let namespace = match run {
            None => Namespace::Same,
            Some(run) => Namespace::between(run, number(OWN_NAMESPACE)),
        };
        Identity::new(pid, namespace)
    }

    /// The owner of a row.
    #[must_use]
    pub const fn from_owner(owner: u32) -> Identity {
        Identity(owner)
    }

    /// What is written into its rows.
    #[must_use]
    pub const fn owner(self) -> u32 {
        self.0
    }

    /// Its id, in its namespace.
    #[must_use]
    pub const fn pid(self) -> u32 {
        self.0 & ((1 << PID_BITS) - 1)
    }

    /// Its namespace.
    #[must_use]
    pub fn namespace(self) -> Namespace {
        match i64::from(self.0 >> PID_BITS) {
            0 => Namespace::Same,
            part if part == 2 * REACH - 1 => Namespace::Unknown,
            part => Namespace::Apart(part - REACH),
        }
    }

    /// Whether this may still hold memory, as a process in the same namespace as `asking` can tell. What cannot be
    /// told from there counts as alive: that memory of the dead is held for longer does less harm than that a living
    /// process's is taken for free. Allocates nothing.
    #[must_use]
    pub fn may_live(self, asking: Identity) -> bool {
        match self.namespace() {
            Namespace::Unknown => true,
            namespace => namespace != asking.namespace() || crate::alive(self.pid()),
        }
    }
}

impl Namespace {
    /// What the namespace with a number is to the run's.
    fn between(run: u64, other: Option<u64>) -> Namespace {
        match other.map(|other| other.wrapping_sub(run).cast_signed()) {
            Some(0) => Namespace::Same,
            Some(distance) if (1 - REACH..REACH - 1).contains(&distance) => {
                Namespace::Apart(distance)
            }
            _ => Namespace::Unknown,
        }
    }
}

/// The number of the namespace that a file of `/proc/…/ns` stands for.
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
    fn an_owner_says_which_process_and_where() {
        let spaces = [Namespace::Same, Namespace::Unknown, Namespace::Apart(-511)];
        let apart = [1, -1, 341, 510].map(Namespace::Apart);
        for namespace in spaces.into_iter().chain(apart) {
            for pid in [1, 4711, (1 << 22) - 1] {
                let owner = Identity::new(pid, namespace).owner();
                let read = Identity::from_owner(owner);
                assert_eq!((read.pid(), read.namespace()), (pid, namespace));
            }
        }
        // In the run's own namespace an owner is the process id, as ever.
        assert_eq!(Identity::new(4711, Namespace::Same).owner(), 4711);
    }

    #[test]
    fn namespaces_that_are_far_apart_are_unknown_and_never_mixed_up() {
        let run = 4_026_531_836;
        let mut seen = std::collections::HashSet::new();
        for other in run - 600..run + 600 {
            let namespace = Namespace::between(run, Some(other));
            let known = namespace != Namespace::Unknown;
            assert_eq!(known, (run - 511..=run + 510).contains(&other), "{other}");
            assert!(!known || seen.insert(Identity::new(1, namespace).owner()), "{other}");
        }
        assert_eq!(Namespace::between(run, None), Namespace::Unknown);
    }

    #[test]
    fn who_cannot_be_judged_from_here_counts_as_alive() {
        let here = Identity::own(number(OWN_NAMESPACE));
        assert_eq!(here.owner(), std::process::id());
        assert!(here.may_live(here));
        // No process has the largest id of all.
        let nobody = (1 << 22) - 1;
        assert!(!Identity::new(nobody, Namespace::Same).may_live(here));
        for namespace in [Namespace::Apart(7), Namespace::Unknown] {
            assert!(Identity::new(nobody, namespace).may_live(here));
            let there = Identity::new(1, namespace);
            assert_eq!(
                Identity::new(nobody, namespace).may_live(there),
                namespace == Namespace::Unknown
            );
        }
    }
}
