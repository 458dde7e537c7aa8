//! What this process says of programs that it executes and that are not accounted, and what they keep of the run's order.

use super::{INHERITED, Item, STATE, State, attached, identity, push_process};
use crate::filter;
use crate::objects::own_path;
use crate::say::errno;
use crate::text::Text;
use crate::thread::Busy;
use ledgerline::{CreateError, Group, NAME_MAX};
use ledgerline_protocol::blind::Blind;
use ledgerline_protocol::{Identity, Which};
use std::cell::UnsafeCell;
use std::ffi::CStr;
use std::sync::atomic::Ordering;

/// Whether this process may say of others that they are not accounted: it has opened the ledger.
pub(crate) fn may_account() -> bool {
    INHERITED.opened.load(Ordering::Acquire) == 1
}

/// Whether programs keep this library over `exec`. Only after [`may_account`] was true.
pub(crate) fn is_strict() -> bool {
    // SAFETY: written once, before `opened` was 1.
    unsafe { (*INHERITED.settings.get()).strict }
}

/// Whether a program that is executed now can open the ledger. Only after [`may_account`] was true.
pub(crate) fn can_open() -> Result<(), Blind> {
    // SAFETY: no preconditions; the user was written once, before `opened` was 1.
    let (now, before) = unsafe { (libc::geteuid(), (*INHERITED.settings.get()).user) };
    // (What a process may still do with root's capabilities, the program may not.)
    if now != before && now != 0 {
        return Err(Blind::OtherUser);
    }
    if address_space() < least_address_space() {
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
fn least_address_space() -> u64 {
    // SAFETY: `opened` is 1, so the ledger was opened, and it stays open for good.
    let ledger = unsafe { (*INHERITED.ledger.get()).assume_init_ref() };
    (size_of::<State>() as u64).saturating_add(ledger.reserved())
}

/// Whether a file can be opened so by this process's effective user, or the error.
pub(crate) fn access(path: &CStr, how: libc::c_int) -> Result<(), libc::c_int> {
    // SAFETY: the path ends in zero.
    match unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), how, libc::AT_EACCESS) } {
        0 => Ok(()),
        _ => Err(errno()),
    }
}

/// Where the run's order says that a ledger lies. Only after [`may_account`] was true.
pub(crate) fn path(which: Which) -> Option<&'static CStr> {
    let strings = order().unwrap_or_default().split_inclusive(|&byte| byte == 0);
    let mut paths = strings
        .filter_map(|string| ledgerline_protocol::path_of(CStr::from_bytes_with_nul(string).ok()?));
    // (Where there is no second ledger its variable is empty.)
    paths.find(|&(of, path)| of == which && !path.is_empty()).map(|(_, path)| path)
}

/// Makes a row for a process that executes a program which is not accounted.
pub(crate) fn name_blind(
    path: &CStr,
    process: libc::pid_t,
    blind: Blind,
) -> Option<Group<'static>> {
    let _busy = Busy::enter()?;
    if !attached() {
        return None;
    }
    // (A child that shares its parent's memory is attached as its parent.)
    let owner = Identity::new(process.unsigned_abs(), identity().distance())?;
    let program = path.to_bytes().rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    let mut name = Text::<NAME_MAX>::name();
    push_process(&mut name, program, owner);
    // SAFETY: the process is attached, so the ledger was opened, and it stays open for good.
    let (ledger, items) =
        unsafe { ((*INHERITED.ledger.get()).assume_init_ref(), (*INHERITED.settings.get()).items) };
    let group = match ledger.create_for_process(name.as_str(), owner.owner()) {
        Ok(group) => group,
        Err(CreateError::Full { .. }) => {
            count_left_out(1);
            return None;
        }
        Err(_) => return None,
    };
    if let Some(item) = items[Item::Blind as usize] {
        group.add_stat(item, blind as i64);
    }
    Some(group)
}

/// Takes such a row back: the program was not executed.
pub(crate) fn unname_blind(row: Group<'static>, blind: Blind) {
    // SAFETY: there is such a row, so the settings were written.
    let item = unsafe { (*INHERITED.settings.get()).items[Item::Blind as usize] };
    if filter::is_on() {
        // Ending a group may take a call. The row stays, and says nothing.
        if let Some(item) = item {
            row.add_stat(item, -(blind as i64));
        }
    } else {
        // (It is new, and nothing is charged to it.)
        let _ = row.destroy();
    }
}

/// Counts processes that found no row left. Only after [`may_account`] was true, or where it is about to be.
pub(super) fn count_left_out(more: i64) {
    // SAFETY: the ledger and the settings are there, as the caller says, and stay.
    let (ledger, items) =
        unsafe { ((*INHERITED.ledger.get()).assume_init_ref(), (*INHERITED.settings.get()).items) };
    if let Some(item) = items[Item::LeftOut as usize] {
        ledger.root().add_stat(item, more);
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

/// It was not executed.
pub(crate) fn stays_left_out() {
    count_left_out(1);
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
    unsafe extern "C" {
        static environ: *const *const libc::c_char;
    }
    // SAFETY: the C library's list of strings, which ends in null; the rest as the caller says.
    unsafe {
        let (bytes, length) = &mut *KEPT.0.get();
        let mut at = environ;
        while !at.is_null() && !(*at).is_null() {
            let string = CStr::from_ptr(*at);
            let text = string.to_bytes_with_nul();
            if ledgerline_protocol::is_of_order(string.to_bytes()) {
                let Some(room) = bytes.get_mut(*length..*length + text.len()) else {
                    *length = 0;
                    return;
                };
                room.copy_from_slice(text);
                *length += text.len();
            }
            at = at.add(1);
        }
    }
}

/// The strings that [`keep_order`] copied. Only after [`may_account`] was true.
pub(crate) fn order() -> Option<&'static [u8]> {
    // SAFETY: written once, before `opened` was 1.
    let (bytes, length) = unsafe { &*KEPT.0.get() };
    (*length > 0).then(|| &bytes[..*length])
}
