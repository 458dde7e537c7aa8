//! The running thread state, and which context it is in.

use pyo3::ffi::{PyInterpreterState, PyObject, PyThreadState};
use std::ffi::c_ulong;

unsafe extern "C" {
    static ledgerline_offset_of_context: usize;
    static ledgerline_offset_of_version: usize;
    static ledgerline_offset_of_id: usize;
    static ledgerline_offset_of_thread: usize;
    static ledgerline_offset_of_interpreter: usize;

    #[cfg_attr(Py_3_13, link_name = "PyThreadState_GetUnchecked")]
    fn _PyThreadState_UncheckedGet() -> *mut PyThreadState;
    fn PyGILState_GetThisThreadState() -> *mut PyThreadState;
}

/// A thread state that lives.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct State(*mut PyThreadState);

/// One stay in one context: the number of a thread state, and how often that has changed its context. Neither is used twice.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Stay {
    id: u64,
    version: u64,
}

impl Stay {
    /// No stay of any thread.
    pub const NONE: Stay = Stay { id: u64::MAX, version: u64::MAX };
}

impl State {
    /// The state of the thread that has the GIL; `None` if none has it. For hooks that are called with the GIL, the calling
    /// thread's.
    #[inline(always)]
    pub fn running() -> Option<State> {
        // SAFETY: may be called by any thread. (3.11 has one such state for all threads, 3.12 one for each.)
        let state = unsafe { _PyThreadState_UncheckedGet() };
        (!state.is_null()).then_some(State(state))
    }

    /// The state of the calling thread, if it has the GIL.
    #[inline]
    pub fn mine() -> Option<State> {
        let running = State::running()?;
        if cfg!(Py_3_12) {
            return Some(running);
        }
        // SAFETY: may be called by any thread.
        let own = unsafe { PyGILState_GetThisThreadState() };
        (running.0 == own).then_some(running)
    }

    /// A state of which only the address is known, for [`is_alive`](Self::is_alive).
    pub fn at(address: usize) -> State {
        State(address as *mut PyThreadState)
    }

    pub fn address(self) -> usize {
        self.0 as usize
    }

    /// # Safety
    /// The state lives, the field has that type, and the caller has the GIL.
    #[inline(always)]
    unsafe fn field<T: Copy>(self, offset: usize) -> T {
        // SAFETY: the compiler that made the offset knows the fields of this version of Python.
        unsafe { self.0.cast::<u8>().add(offset).cast::<T>().read() }
    }

    #[inline(always)]
    pub fn stay(self) -> Stay {
        // SAFETY: the state lives while it runs; both fields are `uint64_t`. Guarded by `tests/test_context.py`.
        unsafe {
            Stay {
                id: self.field(ledgerline_offset_of_id),
                version: self.field(ledgerline_offset_of_version),
            }
        }
    }

    pub fn id(self) -> u64 {
        self.stay().id
    }

    /// The context, borrowed; null if the thread has none yet.
    pub fn context(self) -> *mut PyObject {
        // SAFETY: as above; the field is a `PyObject *`.
        unsafe { self.field(ledgerline_offset_of_context) }
    }

    /// Returns the thread's `threading.get_ident()`.
    pub fn thread(self) -> c_ulong {
        // SAFETY: as above; the field is an `unsigned long`.
        unsafe { self.field(ledgerline_offset_of_thread) }
    }

    pub fn interpreter(self) -> *mut PyInterpreterState {
        // SAFETY: as above; the field is a `PyInterpreterState *`.
        unsafe { self.field(ledgerline_offset_of_interpreter) }
    }
}
