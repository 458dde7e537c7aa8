//! What this process says of programs that it executes and that are not accounted, and what they keep of the run's order.

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

/// Why this process is not accounted although it has a row: the number of a [`Blind`], zero without a reason. A forked child
/// inherits the reason, and what it comes from.
static WHY: AtomicU32 = AtomicU32::new(0);

/// Notes that this process, or a part of it, is not accounted from now on; where there is a limit, says so at once. The first
/// reason stays.
pub(crate) fn blind(why: Blind) {
    let is_first =
        WHY.compare_exchange(0, why as u32, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    if is_first {
        // (It may be busy already: the library starts.)
        let _busy = Busy::enter();
        if attached_as().is_none() {
            // The row that is made now has the reason.
            let _ = attached();
        } else {
            tell(why);
        }
    }
}

/// A process has its row: notes why it is not accounted, if its program, or the process that it was forked from, knew.
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

/// Says that a limit does not hold for a process.
pub(super) fn announce(process: &[u8], why: Blind) {
    say(&[
        process,
        b": ",
        why.name().as_bytes(),
        b": not accounted, so the limit may not hold for it",
    ]);
}

/// Whether a program that is executed now can open the ledger.
pub(crate) fn can_open(run: &Run) -> Result<(), Blind> {
    // SAFETY: no preconditions.
    let now = unsafe { libc::geteuid() };
    // (What a process may still do with root's capabilities, the program may not.)
    if now != run.user && now != 0 {
        return Err(Blind::OtherUser);
    }
    if address_space() < least_address_space(run) {
        return Err(Blind::AddressSpace);
    }
    // (Where the order was too long to be kept, nothing is known.)
    let Some(path) = path(Which::Ledger) else { return Ok(()) };
    match access(path, libc::R_OK | libc::W_OK) {
        Ok(()) => access(own_path(), libc::R_OK).map_err(|_| Blind::Elsewhere),
        Err(libc::EACCES | libc::EPERM) => Err(Blind::OtherUser),
        Err(_) => Err(Blind::Elsewhere),
    }
}

/// The address space that this process and what it executes may take.
fn address_space() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: writes one structure. (What cannot be asked is no limit.)
    unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) };
    limit.rlim_cur
}

/// The tables of this library and the ledger take so much of any program. Where one has no more, it is better off without
/// them: this library is loaded first, and what the program itself loads would find no room behind it.
fn least_address_space(run: &Run) -> u64 {
    (size_of::<State>() as u64).saturating_add(run.ledger.reserved())
}

/// Whether a file can be opened so by this process's effective user, or the error.
pub(crate) fn access(path: &CStr, how: libc::c_int) -> Result<(), libc::c_int> {
    // SAFETY: the path ends in zero.
    match unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), how, libc::AT_EACCESS) } {
        0 => Ok(()),
        _ => Err(errno()),
    }
}

/// Where the run's order says that a ledger lies.
pub(crate) fn path(which: Which) -> Option<&'static CStr> {
    // (Where there is no second ledger its variable is empty.)
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
    // (A child that shares its parent's memory is attached as its parent.)
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

/// Takes such a row back: the program was not executed.
pub(crate) fn unname_blind(row: Group<'static>, blind: Blind) {
    if filter::is_on() {
        // Ending a group may take a call. The row stays, and says nothing.
        note_in(row, Item::Blind, -(blind as i64));
    } else {
        // (It is new, and nothing is charged to it.)
        let _ = row.destroy();
    }
}

/// Counts processes that found no row left.
pub(crate) fn count_left_out(more: i64) {
    if let Some(run) = run() {
        note_in(run.ledger.root(), Item::LeftOut, more);
    }
}

/// A process that found no row is about to execute a program in which this library is: that one looks for a row itself,
/// and counts if it finds none. Says whether this is such a process. (A child with this memory, whose id is another, is
/// none.)
pub(crate) fn leaves_anew(own: libc::pid_t) -> bool {
    let is_left_out =
        STATE.left_out.load(Ordering::Relaxed) != 0 && identity().pid() == own.unsigned_abs();
    if is_left_out {
        count_left_out(-1);
    }
    is_left_out
}

/// The strings of the environment that carry the order, each with its zero: what programs keep over `exec`.
struct Kept(UnsafeCell<([u8; 4096], usize)>);
// SAFETY: written once, before `opened` is 1; read after that.
unsafe impl Sync for Kept {}
static KEPT: Kept = Kept(UnsafeCell::new(([0; 4096], 0)));

/// Copies the order's strings. (Where they are too long, none is kept.)
///
/// # Safety
/// Only the attaching thread is here, and nobody reads before `opened` is 1.
pub(super) unsafe fn keep_order() {
    // SAFETY: the C library's list of strings, which ends in null; the rest as the caller says.
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

/// The strings that [`keep_order`] copied. Only after [`run`] gave one.
pub(crate) fn order() -> impl Iterator<Item = &'static CStr> {
    // SAFETY: written once, before `opened` was 1.
    let (bytes, length) = unsafe { &*KEPT.0.get() };
    let strings = bytes[..*length].split_inclusive(|&byte| byte == 0);
    strings.filter_map(|string| CStr::from_bytes_with_nul(string).ok())
}
