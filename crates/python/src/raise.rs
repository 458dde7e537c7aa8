//! Raises the error of blocks that were granted over a limit, at a place where Python code can well be interrupted.
//!
//! ```text
//! the main thread   a pending call, which Python makes where it looks for signals; it raises if the thread is in the group still
//! other threads     a helper waits for the GIL, so the thread stands at such a place (or in a call that let go of the GIL); it looks
//!                   at that thread's context and sets an asynchronous exception, which is raised when the thread goes on
//! ```
//!
//! A task that was suspended meanwhile gets no error before it asks for more: the event loop is in no group.

use crate::account::Account;
use crate::ledger::ledger;
use crate::seen;
use crate::state::State;
use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::cell::Cell;
use std::collections::VecDeque;
use std::ffi::{c_int, c_ulong, c_void};
use std::ptr::{self, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

/// R1: read and written with the GIL alone.
struct Raising {
    /// `threading.main_thread().ident`.
    main_thread: Cell<c_ulong>,
    /// The error's class; null before there is one.
    class: Cell<*mut ffi::PyObject>,
    /// The current group's account when a block went over the limit, and the account that paid.
    asked: Cell<Option<(&'static Account, &'static Account)>>,
    /// The last account that was refused, and how many refusals there were.
    noted: Cell<Option<&'static Account>>,
    refusals: Cell<u64>,
    /// The thread state in which an asynchronous exception is to be raised; `u64::MAX` for none.
    waiting: Cell<u64>,
}

// SAFETY: R1 (guarded by `tests/test_threads.py`).
unsafe impl Sync for Raising {}

static RAISING: Raising = Raising {
    main_thread: Cell::new(0),
    class: Cell::new(null_mut()),
    asked: Cell::new(None),
    noted: Cell::new(None),
    refusals: Cell::new(0),
    waiting: Cell::new(u64::MAX),
};

/// The interpreter ends: the helper takes the GIL no more.
static CLOSED: AtomicBool = AtomicBool::new(false);

/// Notes which thread is the main one, and the class of the error.
pub fn begin(main_thread: c_ulong, class: Option<Py<PyAny>>) {
    RAISING.main_thread.set(main_thread);
    if let Some(class) = class {
        // It stays for good.
        RAISING.class.set(class.into_ptr());
    }
}

pub fn is_main_thread() -> bool {
    State::running().is_some_and(|state| state.thread() == RAISING.main_thread.get())
}

/// An account was refused.
pub fn note(account: &'static Account) {
    RAISING.noted.set(Some(account));
    RAISING.refusals.set(RAISING.refusals.get() + 1);
}

pub fn noted() -> Option<&'static Account> {
    RAISING.noted.get()
}

/// How many refusals there were in the process.
pub fn refusals() -> u64 {
    RAISING.refusals.get()
}

/// Whether an exception is the error already.
pub fn is_full(error: &Bound<'_, PyAny>) -> bool {
    // SAFETY: null, or a class that stays for good.
    let class = unsafe { Bound::from_borrowed_ptr_or_opt(error.py(), RAISING.class.get()) };
    class.is_some_and(|class| error.is_instance(&class).unwrap_or(false))
}

/// In a forked child: what other threads were to be told is the parent's.
pub fn after_fork() {
    RAISING.waiting.set(u64::MAX);
    RAISING.asked.set(None);
}

/// The account whose refusal an error without arguments tells: that of the current group or one above, else the last one.
fn refused(state: State) -> Option<&'static Account> {
    RAISING.waiting.set(u64::MAX);
    let mut account = seen::account(state);
    while let Some(at) = account {
        if at.standing.last().is_some() {
            return Some(at);
        }
        account = at.parent();
    }
    RAISING.noted.get()
}

/// A block of `payer` was granted over a limit: has an error be raised in the current group.
pub fn ring(payer: &'static Account) {
    let Some(state) = State::running() else { return };
    let Some(target) = seen::account(state) else { return };
    if is_main_thread() {
        if RAISING.asked.replace(Some((target, payer))).is_none() {
            // SAFETY: it may be called anywhere, and allocates nothing.
            let queued = unsafe { ffi::Py_AddPendingCall(Some(pending), null_mut()) };
            if queued != 0 {
                // The queue is full: the next block asks again.
                RAISING.asked.set(None);
            }
        }
    } else if RAISING.waiting.get() != state.id() {
        Helper::ask(Asked { state: state.address(), id: state.id(), target, payer });
    }
}

/// The pending call.
extern "C" fn pending(_: *mut c_void) -> c_int {
    let Some((target, payer)) = RAISING.asked.take() else { return 0 };
    let Some(state) = State::running() else { return 0 };
    let here = seen::account(state).is_some_and(|account| ptr::eq(account, target));
    if !here || seen::is_leaving() {
        return 0;
    }
    let py = seen::unsafe_python();
    if seen::leaving(|| is_protected(py, state)) {
        return 0;
    }
    payer.standing.raised();
    seen::leaving(|| error(py, payer, None)).restore(py);
    -1
}

/// The refusal of an account in the terms of the error: the path of the full group, its limit, what was asked for, what was in
/// use.
fn told(account: &Account) -> Option<(String, u64, u64, u64)> {
    let refusal = account.standing.last()?;
    let path = ledger().group(refusal.group).path();
    Some((path, refusal.limit, refusal.requested, refusal.usage))
}

/// The last refusal in the current group or one above it: what an error without arguments says.
pub fn last_refusal() -> Option<(String, u64, u64, u64)> {
    refused(State::running()?).and_then(told)
}

/// Code in which no error is raised: this module's that enters and leaves groups, and Python's that keeps the state of others. An event
/// loop that lost a step of a task would wait for it for ever.
const PROTECTED: [&str; 8] = [
    "/ledgerline/_limited.py",
    "/asyncio/",
    "/concurrent/futures/",
    "/contextlib.py",
    "/queue.py",
    "/selectors.py",
    "/threading.py",
    "/anyio/",
];

/// Whether a thread runs such code. It comes back from there in a moment, or the next block asks again.
fn is_protected(py: Python<'_>, state: State) -> bool {
    // SAFETY: the state lives, and the GIL is held.
    let frame = unsafe {
        let frame = ffi::PyThreadState_GetFrame(state.address() as *mut ffi::PyThreadState);
        Bound::from_owned_ptr_or_opt(py, frame.cast())
    };
    let name = frame.and_then(|frame| {
        let code = frame.getattr("f_code").ok()?;
        code.getattr("co_filename").ok()?.extract::<String>().ok()
    });
    name.is_some_and(|name| PROTECTED.iter().any(|part| name.contains(part)))
}

/// The error of an account that was refused.
pub fn error(py: Python<'_>, account: &Account, cause: Option<PyErr>) -> PyErr {
    // SAFETY: null, or a class that stays for good.
    let class = unsafe { Bound::from_borrowed_ptr_or_opt(py, RAISING.class.get()) };
    let (Some(class), Some(told)) = (class, told(account)) else {
        return PyRuntimeError::new_err("the module ledgerline was not imported whole");
    };
    let error = match class.call1(told) {
        Ok(error) => PyErr::from_value(error),
        Err(error) => error,
    };
    if cause.is_some() {
        error.set_cause(py, cause);
    }
    error
}

/// A thread leaves a group: an exception that has not been raised in it yet is not raised.
pub fn leave(state: State) {
    if RAISING.waiting.get() == state.id() {
        RAISING.waiting.set(u64::MAX);
        // SAFETY: the GIL is held.
        unsafe { ffi::PyThreadState_SetAsyncExc(state.thread() as _, null_mut()) };
    }
}

/// A request to look at a thread.
struct Asked {
    state: usize,
    id: u64,
    target: &'static Account,
    payer: &'static Account,
}

// SAFETY: accounts are static, and the helper reads them with the GIL (R1).
unsafe impl Send for Asked {}

/// A thread without Python code that takes the GIL when a thread went over a limit. Each process has its own, from the first time
/// on: a forked child does not have its parent's.
struct Helper {
    process: u32,
    asked: Mutex<VecDeque<Asked>>,
    bell: Condvar,
    /// Held while the helper wants or has the GIL.
    gate: Mutex<()>,
}

static HELPER: AtomicPtr<Helper> = AtomicPtr::new(null_mut());

impl Helper {
    fn get() -> Option<&'static Helper> {
        // SAFETY: null, or leaked.
        let helper = unsafe { HELPER.load(Ordering::Acquire).as_ref() };
        helper.filter(|helper| helper.process == std::process::id())
    }

    /// The caller has the GIL, so one at a time.
    fn ask(asked: Asked) {
        let helper = Helper::get().unwrap_or_else(|| {
            let helper: &'static Helper = Box::leak(Box::new(Helper {
                process: std::process::id(),
                asked: Mutex::default(),
                bell: Condvar::new(),
                gate: Mutex::default(),
            }));
            let named = std::thread::Builder::new().name("ledgerline".into());
            // Without a thread small blocks are refused at the end of the overdraft.
            if named.spawn(|| helper.run()).is_ok() {
                HELPER.store(ptr::from_ref(helper).cast_mut(), Ordering::Release);
            }
            helper
        });
        let mut queue = helper.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if !queue.iter().any(|other| other.id == asked.id) {
            queue.push_back(asked);
            helper.bell.notify_one();
        }
    }

    fn run(&self) {
        loop {
            let mut queue = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            let asked = loop {
                match queue.pop_front() {
                    Some(asked) => break asked,
                    None => {
                        queue = self.bell.wait(queue).unwrap_or_else(PoisonError::into_inner);
                    }
                }
            };
            drop(queue);
            let _gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
            if CLOSED.load(Ordering::SeqCst) {
                return;
            }
            Python::attach(|_| raise_in(&asked));
        }
    }
}

/// Has an exception be raised in a thread if its context is in the group still.
fn raise_in(asked: &Asked) {
    let Some(state) = find(asked) else { return };
    // SAFETY: the GIL is held, so the thread's context stays; a context is a mapping. Errors are taken.
    let here = unsafe {
        let context = state.context();
        let variable = seen::variable();
        let value = match context.is_null() || variable.is_null() {
            true => null_mut(),
            false => ffi::PyObject_GetItem(context, variable),
        };
        let here = seen::of_value(value).is_some_and(|account| ptr::eq(account, asked.target));
        ffi::Py_XDECREF(value);
        ffi::PyErr_Clear();
        here
    };
    let class = RAISING.class.get();
    if !here || class.is_null() || is_protected(seen::unsafe_python(), state) {
        return;
    }
    asked.payer.standing.raised();
    RAISING.waiting.set(asked.id);
    // SAFETY: the GIL is held, and the class stays for good.
    unsafe { ffi::PyThreadState_SetAsyncExc(state.thread() as _, class) };
}

/// The thread's state, if it lives.
fn find(asked: &Asked) -> Option<State> {
    let wanted = State::at(asked.state);
    // SAFETY: the GIL is held. Threads delete their states with the GIL, so the list's links lead to states that live.
    unsafe {
        let mut next = ffi::PyInterpreterState_ThreadHead(ffi::PyInterpreterState_Get());
        while !next.is_null() {
            if next as usize == wanted.address() {
                return (wanted.id() == asked.id).then_some(wanted);
            }
            next = ffi::PyThreadState_Next(next);
        }
    }
    None
}

/// The interpreter is about to end.
pub fn close(py: Python<'_>) {
    py.detach(|| {
        let gate = Helper::get().map(|helper| helper.gate.lock());
        CLOSED.store(true, Ordering::SeqCst);
        drop(gate);
    });
    seen::end();
}
