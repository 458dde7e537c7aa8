//! The supervisor's view of which processes of a run still hold memory.
//!
//! Processes in the supervisor's own namespace of process ids are queried by their ids. Those in another are searched
//! in `/proc`, which shows the number of each process's namespace and its id in there, if that is below this one.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::CString;
use std::fs;
use std::os::unix::fs::MetadataExt;

use ledgerline_protocol::{Identity, OWN_NAMESPACE, alive, number};
use rustix::process::geteuid;

/// The processes of other namespaces that were found, with their ids here.
pub(super) struct Living {
    /// The number of the supervisor's namespace: the run's, for the processes under it.
    pub(super) namespace: Option<u64>,
    found: RefCell<HashMap<u32, u32>>,
}

impl Living {
    pub(super) fn new() -> Living {
        Living { namespace: number(OWN_NAMESPACE), found: RefCell::default() }
    }

    /// Returns whether the owner of a row may still hold memory. An owner that is not known to be dead may.
    pub(super) fn may(&self, owner: u32) -> bool {
        let process = Identity::from_owner(owner);
        match (process.distance(), self.namespace) {
            (0, _) => alive(process.pid()),
            (_, None) => true,
            (distance, Some(own)) => {
                self.look(owner, process.pid(), own.wrapping_add_signed(distance))
            }
        }
    }

    fn look(&self, owner: u32, pid: u32, namespace: u64) -> bool {
        let known = self.found.borrow().get(&owner).copied();
        if known.is_some_and(|here| is(here, pid, namespace) == Some(true)) {
            return true;
        }
        // A row is made after its process, so a living owner is in this list. An older list would not be enough.
        let Ok(entries) = fs::read_dir("/proc") else { return true };
        for entry in entries.flatten() {
            let Some(here) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            match is(here, pid, namespace) {
                Some(true) => {
                    self.found.borrow_mut().insert(owner, here);
                    return true;
                }
                Some(false) => {}
                // A process of this user whose namespace cannot be read might be the owner. Another user's is not the
                // run's: the loader preloads nothing into a program that changes its user.
                None if entry.metadata().is_ok_and(|entry| entry.uid() == geteuid().as_raw()) => {
                    return true;
                }
                None => {}
            }
        }
        false
    }
}

/// Returns whether the process with the id `here` in this namespace has that id in that namespace, and still holds
/// memory; `None` if its namespace cannot be read.
fn is(here: u32, pid: u32, namespace: u64) -> Option<bool> {
    let Ok(status) = fs::read_to_string(format!("/proc/{here}/status")) else { return Some(false) };
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    // Its ids, from this namespace down to its own. A process with only one lives in this namespace.
    let ids = field("NSpid:").unwrap_or_default().split_whitespace().skip(1);
    if ids.last() != Some(&*pid.to_string()) {
        return Some(false);
    }
    // A zombie has no namespace. Neither has a process whose first thread has ended before others, which still holds
    // memory.
    if !alive(here) {
        return Some(false);
    }
    let path = CString::new(format!("/proc/{here}/ns/pid")).ok()?;
    number(&path).map(|number| number == namespace)
}
