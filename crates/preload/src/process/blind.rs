//! Programs that are not accounted: this process's record of them, and the part of the run's order that they keep.

use super::{
    OWN, Run, STATE, State, attached, attached_as, identity, note, note_in, program_name,
    push_process, run,
};
use crate::filter;
use crate::objects::own_path;
use crate::say::{environ, say, strings};
use crate::text::Text;
use crate::thread::Busy;
use ledgerline::{CreateError, Group, NAME_MAX};
use ledgerline_interpose::errno;
use ledgerline_protocol::blind::Blind;
use ledgerline_protocol::{Identity, Item, Which, is_of_order};
use std::cell::UnsafeCell;
use std::ffi::CStr;
use std::sync::atomic::{AtomicU32, Ordering};

/// The reason why this process is not accounted although it has a row: the number of a [`Blind`], or zero. A forked
/// child inherits the reason together with its cause.
static WHY: AtomicU32 = AtomicU32::new(0);

/// Notes that this process, or a part of it, is not accounted from now on, and reports it at once if there is a limit.
/// The first reason stays.
pub(crate) fn blind(why: Blind) {
    let is_first =
        WHY.compare_exchange(0, why as u32, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    if is_first {
        // It may be busy already, while the library starts.
        let _busy = Busy::enter();
        if attached_as().is_none() {
            // The new row gets the reason.
            let _ = attached();
        } else {
            tell(why);
        }
    }
}

/// Notes in a new row why the process is not accounted, if its program, or the process that it was forked from, found a
/// reason.
pub(super) fn attached_blind() {
    if let Some(why) = Blind::from_number(WHY.load(Ordering::Relaxed).into()) {
        tell(why);
    }
}

fn tell(why: Blind) {
    note(OWN, Item::Blind, why as i64);
    if run().is_some_and(Run::is_limited) {
        let mut name = Text::<NAME_MAX>::name();
        push_process(&mut name, program_name(), identity());
        announce(name.as_str().as_bytes(), why);
    }
}

/// Reports that a limit does not hold for a process.
pub(super) fn announce(process: &[u8], why: Blind) {
    say(&[
        process,
        b": ",
        why.name().as_bytes(),
        b": not accounted, so the limit may not hold for it",
    ]);
}

/// Returns whether a program that is executed now can open the ledger.
pub(crate) fn can_open(run: &Run) -> Result<(), Blind> {
    // SAFETY: no preconditions.
    let now = unsafe { libc::geteuid() };
    // The process may still use root's capabilities; the program may not.
    if now != run.user && now != 0 {
        return Err(Blind::OtherUser);
    }
    if address_space() < least_address_space(run) {
        return Err(Blind::AddressSpace);
    }
    // Nothing is known if the order was too long to be kept.
    let Some(path) = path(Which::Ledger) else { return Ok(()) };
    match access(path, libc::R_OK | libc::W_OK) {
        Ok(()) => access(own_path(), libc::R_OK).map_err(|_| Blind::Elsewhere),
        Err(libc::EACCES | libc::EPERM) => Err(Blind::OtherUser),
        Err(_) => Err(Blind::Elsewhere),
    }
}

/// Returns the limit of address space for this process and the programs that it executes.
fn address_space() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: writes one structure. An unreadable limit counts as none.
    unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) };
    limit.rlim_cur
}

/// Returns the address space that the tables of this library and the ledger take of any program. A program with no more
/// than that is better off without them: this library is loaded first, and the program's own libraries would find no
/// room after it.
fn least_address_space(run: &Run) -> u64 {
    (size_of::<State>() as u64).saturating_add(run.ledger.reserved())
}

/// Checks whether this process's effective user may open a file so.
pub(crate) fn access(path: &CStr, how: libc::c_int) -> Result<(), libc::c_int> {
    // SAFETY: the path ends in zero.
    match unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), how, libc::AT_EACCESS) } {
        0 => Ok(()),
        _ => Err(errno()),
    }
}

/// Returns the path of a ledger in the run's order.
pub(crate) fn path(which: Which) -> Option<&'static CStr> {
    // The variable is empty if there is no second ledger.
    let mut paths = order().filter_map(ledgerline_protocol::path_of);
    paths.find(|&(of, path)| of == which && !path.is_empty()).map(|(_, path)| path)
}

/// Makes a row for a process that executes a program which is not accounted.
pub(crate) fn name_blind(
    path: &CStr,
    process: libc::pid_t,
    blind: Blind,
) -> Option<Group<'static>> {
    let _busy = Busy::enter()?;
    let run = attached()?;
    // A child that shares its parent's memory is attached as its parent.
    let owner = Identity::new(process.unsigned_abs(), identity().distance())?;
    let program = path.to_bytes().rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    let mut name = Text::<NAME_MAX>::name();
    push_process(&mut name, program, owner);
    let group = match run.ledger.create_for_process(name.as_str(), owner.owner()) {
        Ok(group) => group,
        Err(CreateError::Full { .. }) => {
            count_left_out(1);
            return None;
        }
        Err(_) => return None,
    };
    note_in(group, Item::Blind, blind as i64);
    Some(group)
}

/// Removes such a row: the program was not executed.
pub(crate) fn unname_blind(row: Group<'static>, blind: Blind) {
    if filter::is_on() {
        // Ending a group may take a call. The row stays, without a reason.
        note_in(row, Item::Blind, -(blind as i64));
    } else {
        // It is new, and nothing is charged to it.
        let _ = row.destroy();
    }
}

/// Counts processes that found no free row.
pub(crate) fn count_left_out(more: i64) {
    if let Some(run) = run() {
        note_in(run.ledger.root(), Item::LeftOut, more);
    }
}

/// Uncounts a process without a row that is about to execute a program with this library: the program looks for a row
/// itself, and is counted if it finds none. Returns whether this is such a process. A child with this memory is not,
/// since its id differs.
pub(crate) fn leaves_anew(own: libc::pid_t) -> bool {
    let is_left_out =
        STATE.left_out.load(Ordering::Relaxed) != 0 && identity().pid() == own.unsigned_abs();
    if is_left_out {
        count_left_out(-1);
    }
    is_left_out
}

/// The strings of the environment that carry the order, each with its zero: programs keep these over `exec`.
struct Kept(UnsafeCell<([u8; 4096], usize)>);
// SAFETY: written once, before `opened` is 1; only read after that.
unsafe impl Sync for Kept {}
static KEPT: Kept = Kept(UnsafeCell::new(([0; 4096], 0)));

/// Copies the order's strings. If they are too long, none is kept.
///
/// # Safety
/// Only the attaching thread is here, and no thread reads before `opened` is 1.
pub(super) unsafe fn keep_order() {
    // SAFETY: the C library's list of strings, which ends in null; the rest by the caller's contract.
    unsafe {
        let (bytes, length) = &mut *KEPT.0.get();
        for text in strings(environ).filter(|string| is_of_order(string.to_bytes())) {
            let text = text.to_bytes_with_nul();
            let Some(room) = bytes.get_mut(*length..*length + text.len()) else {
                *length = 0;
                return;
            };
            room.copy_from_slice(text);
            *length += text.len();
        }
    }
}

/// Returns the strings that [`keep_order`] copied. Only after [`run`] returned a run.
pub(crate) fn order() -> impl Iterator<Item = &'static CStr> {
    // SAFETY: written once, before `opened` was 1.
    let (bytes, length) = unsafe { &*KEPT.0.get() };
    let strings = bytes[..*length].split_inclusive(|&byte| byte == 0);
    strings.filter_map(|string| CStr::from_bytes_with_nul(string).ok())
}
