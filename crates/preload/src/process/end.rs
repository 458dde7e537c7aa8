//! The notes that a process makes when it ends by itself.

use super::{OWN, STATE, attached_as, note};
use crate::filter;
use crate::thread::Busy;
use ledgerline_protocol::{Item, resident_ever};
use std::sync::atomic::Ordering;

/// Notes the peak of resident bytes of this process, which ends.
pub(crate) fn note_end() {
    let Some(_busy) = Busy::enter().filter(|_| !filter::is_on()) else { return };
    // A child that shares its parent's memory ends only itself.
    // SAFETY: no preconditions.
    let pid = unsafe { libc::getpid().unsigned_abs() };
    if attached_as().is_none_or(|process| process.pid() != pid) {
        return;
    }
    let before = STATE.resident_before.load(Ordering::Relaxed);
    // A higher peak before the exec hides the peak since then, so the file is read. A small peak is exact enough
    // without that: the file costs twenty times the call.
    let most = Some(resident_ever(libc::RUSAGE_SELF))
        .filter(|&most| most > before || most < SMALL_RESIDENT);
    if let Some(most) = most.or_else(ledgerline_protocol::most_resident) {
        // Once: an exit handler may end the process by itself.
        if STATE.resident_before.swap(u64::MAX, Ordering::Relaxed) != u64::MAX {
            note(OWN, Item::Resident, most.cast_signed());
        }
    }
}

/// Below this, the noted peak may be from before the process executed its program.
const SMALL_RESIDENT: u64 = 8 << 20;
