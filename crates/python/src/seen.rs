//! The group that is current: that of the running thread's context. It is looked up when a thread changed its context, or another
//! thread runs.
//!
//! S1: all of this is read and written with the GIL alone. (Subinterpreters of 3.12 may have a GIL of their own: hooks ask
//! [`is_main`] first.)

use crate::account::Account;
use crate::state::{State, Stay};
use ledgerline::current;
use pyo3::ffi::{self, PyInterpreterState, PyObject};
use pyo3::prelude::*;
use std::cell::Cell;
use std::ptr::null_mut;

struct Seen {
    stay: Cell<Stay>,
    account: Cell<Option<&'static Account>>,
    /// A hook calls the allocator beneath: what that asks of the raw domain is not charged there.
    passing: Cell<bool>,
    /// The thread state that is leaving a group; `u64::MAX` for none.
    leaving: Cell<u64>,
    /// The context variable whose value is the group; null before there is one, and when the interpreter ends.
    variable: Cell<*mut PyObject>,
    interpreter: Cell<*mut PyInterpreterState>,
    /// Reads the account of a value of that variable.
    read: Cell<Read>,
}

/// Reads the account of an object, with the GIL.
pub type Read = fn(&Bound<'_, PyAny>) -> Option<&'static Account>;

// SAFETY: S1 (guarded by `tests/test_threads.py`).
unsafe impl Sync for Seen {}

static SEEN: Seen = Seen {
    stay: Cell::new(Stay::NONE),
    account: Cell::new(None),
    passing: Cell::new(false),
    leaving: Cell::new(u64::MAX),
    variable: Cell::new(null_mut()),
    interpreter: Cell::new(null_mut()),
    read: Cell::new(|_| None),
};

/// Makes the context variable.
pub fn begin(py: Python<'_>, read: Read) -> PyResult<()> {
    // SAFETY: the GIL is held, and the name is a text of C.
    let variable = unsafe { ffi::PyContextVar_New(c"ledgerline".as_ptr(), null_mut()) };
    if variable.is_null() {
        return Err(PyErr::fetch(py));
    }
    let state = State::running().expect("this thread runs");
    SEEN.read.set(read);
    SEEN.interpreter.set(state.interpreter());
    // It stays for good.
    SEEN.variable.set(variable);
    forget();
    Ok(())
}

/// From here on new blocks belong to no account: the interpreter ends.
pub fn end() {
    SEEN.variable.set(null_mut());
    forget();
}

/// The token of a thread that has the GIL.
pub fn unsafe_python() -> Python<'static> {
    // SAFETY: every caller has the GIL (S1): hooks of the domains that need it, pending calls, and methods.
    unsafe { Python::assume_attached() }
}

pub fn variable() -> *mut PyObject {
    SEEN.variable.get()
}

/// Whether a thread runs in the interpreter that loaded the module.
#[inline(always)]
pub fn is_main(state: State) -> bool {
    !cfg!(Py_3_12) || state.interpreter() == SEEN.interpreter.get()
}

/// The account of the current group; `None` for no group. The caller has the GIL of the main interpreter.
#[inline(always)]
pub fn account(state: State) -> Option<&'static Account> {
    let stay = state.stay();
    if stay == SEEN.stay.get() { SEEN.account.get() } else { look(state, stay) }
}

#[cold]
#[inline(never)]
fn look(state: State, stay: Stay) -> Option<&'static Account> {
    let variable = SEEN.variable.get();
    let found = if variable.is_null() || state.interpreter() != SEEN.interpreter.get() {
        None
    } else {
        let mut value = null_mut();
        // SAFETY: the GIL is held. It allocates nothing: a look into a mapping by an identity whose hash is known. Guarded by
        // `tests/test_context.py`.
        unsafe {
            let _found = ffi::PyContextVar_Get(variable, null_mut(), &raw mut value);
            let found = of_value(value);
            // The context has another reference.
            ffi::Py_XDECREF(value);
            found
        }
    };
    SEEN.stay.set(stay);
    SEEN.account.set(found);
    // For what the thread allocates without the GIL.
    current::swap(found.and_then(Account::group).into());
    found
}

/// The account of a value of the context variable.
///
/// # Safety
/// Null, or an object. The GIL is held.
pub unsafe fn of_value(value: *mut PyObject) -> Option<&'static Account> {
    // SAFETY: as the caller says.
    let value = unsafe { Bound::from_borrowed_ptr_or_opt(unsafe_python(), value) }?;
    SEEN.read.get()(&value)
}

/// The current group has changed in this context, or an account.
pub fn forget() {
    SEEN.stay.set(Stay::NONE);
}

/// Calls the allocator beneath a hook.
#[inline(always)]
pub fn passing<R>(call: impl FnOnce() -> R) -> R {
    SEEN.passing.set(true);
    let done = call();
    SEEN.passing.set(false);
    done
}

/// Whether a hook above charges what the allocator beneath asks for. The caller has the GIL.
#[inline(always)]
pub fn is_passing() -> bool {
    SEEN.passing.get()
}

/// Whether the running thread leaves a group: nothing is refused to it.
pub fn is_leaving() -> bool {
    State::running().is_some_and(|state| state.id() == SEEN.leaving.get())
}

/// Does what must not fail though the current group is full, with no group current.
pub fn leaving<R>(work: impl FnOnce() -> R) -> R {
    let state = State::running().expect("the caller has the GIL");
    let before = SEEN.leaving.replace(state.id());
    SEEN.stay.set(state.stay());
    SEEN.account.set(None);
    let done = work();
    SEEN.leaving.set(before);
    forget();
    done
}
