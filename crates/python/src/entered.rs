//! The context manager of [`Group::enter`](crate::group::Group).

use crate::account::Account;
use crate::state::State;
use crate::{hooks, raise, seen};
use pyo3::exceptions::{PyMemoryError, PyRuntimeError};
use pyo3::ffi;
use pyo3::prelude::*;
use std::ptr;

/// The result of :meth:`ledgerline.Group.enter`: a context manager.
#[pyclass(module = "ledgerline", name = "Entered")]
pub struct Entered {
    group: Py<PyAny>,
    /// How to bring back what was current before; `None` before it is entered and once it was left.
    token: Option<Py<PyAny>>,
    /// How often the group's account had been refused, and how often all of them.
    refusals: u64,
    all_refusals: u64,
}

impl Entered {
    pub fn new(group: &Bound<'_, PyAny>) -> Entered {
        Entered { group: group.clone().unbind(), token: None, refusals: 0, all_refusals: 0 }
    }

    fn account(&self) -> Option<&'static Account> {
        // SAFETY: an object, and every method has the GIL.
        unsafe { seen::of_value(self.group.as_ptr()) }
    }

    /// Brings back what was current before. Never fails: the group is full, perhaps.
    fn leave(&mut self, py: Python<'_>) {
        let Some(token) = self.token.take() else { return };
        // SAFETY: the GIL is held. The token is another context's if a generator is closed elsewhere. Then there is nothing to
        // restore here, and the error is dropped.
        unsafe {
            if ffi::PyContextVar_Reset(seen::variable(), token.as_ptr()) < 0 {
                ffi::PyErr_Clear();
            }
        }
        drop(token.into_bound(py));
    }
}

#[pymethods]
impl Entered {
    fn __enter__(&mut self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        if self.token.is_some() {
            return Err(PyRuntimeError::new_err(
                "it is entered already: call enter() for each `with`",
            ));
        }
        hooks::install(py)?;
        let account = self.account();
        self.refusals = account.map_or(0, |account| account.standing.count());
        self.all_refusals = raise::refusals();
        // SAFETY: the GIL is held; the variable is one, and the token is a new reference.
        let token = unsafe {
            let token = ffi::PyContextVar_Set(seen::variable(), self.group.as_ptr());
            Bound::from_owned_ptr_or_err(py, token)?
        };
        self.token = Some(token.unbind());
        seen::forget();
        if !hooks::are_on_top() && !hooks::are_beneath() {
            seen::leaving(|| self.leave(py));
            return Err(PyRuntimeError::new_err(
                "another module took ledgerline's hooks of Python's allocator away: it put back what it had found before",
            ));
        }
        Ok(self.group.clone_ref(py))
    }

    #[pyo3(signature = (kind=None, error=None, traceback=None))]
    fn __exit__(
        &mut self,
        py: Python<'_>,
        kind: Option<&Bound<'_, PyAny>>,
        error: Option<&Bound<'_, PyAny>>,
        traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<bool> {
        let _ = (kind, traceback);
        if let Some(state) = State::running() {
            raise::leave(state);
        }
        seen::leaving(|| {
            self.leave(py);
            let Some(error) = error else { return Ok(false) };
            let full = raise::is_full(error);
            if full || !error.is_instance_of::<PyMemoryError>() {
                return Ok(false);
            }
            match self.refused() {
                Some(account) => {
                    Err(raise::error(py, account, Some(PyErr::from_value(error.clone()))))
                }
                None => Ok(false),
            }
        })
    }
}

impl Entered {
    /// The group's account, if it was refused since the group was entered; else that which was refused last, if it lies below.
    fn refused(&self) -> Option<&'static Account> {
        let own = self.account()?;
        if own.standing.count() > self.refusals {
            return Some(own);
        }
        let last = raise::noted().filter(|_| raise::refusals() > self.all_refusals)?;
        let mut above = Some(last);
        while let Some(account) = above {
            if ptr::eq(account, own) {
                return Some(last);
            }
            above = account.parent();
        }
        None
    }
}
