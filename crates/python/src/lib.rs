//! The native half of the Python module `ledgerline`. `python/ledgerline/` has the other half.
//!
//! | module    | what                                                                  |
//! |-----------|-----------------------------------------------------------------------|
//! | `hooks`   | hooks of Python's allocators: which blocks are charged                |
//! | `numpy`   | the same for numpy's data                                             |
//! | `seen`    | the group of the running thread's context                             |
//! | `account` | prepaid units of each group, under the GIL                            |
//! | `limit`   | what a block gets at a limit: an overdraft, or NULL                   |
//! | `spare`   | free blocks that are kept for the next ones                            |
//! | `standing` | how far an account is over its limit, and whether it was told         |
//! | `ledger`  | the ledger of the process                                             |
//! | `raise`   | where the error of an overdraft is raised                             |
//! | `group`, `entered` | the classes                                                  |
//! | `state`   | fields of a thread state                                              |

mod account;
mod entered;
mod group;
mod hooks;
mod ledger;
mod limit;
mod numpy;
mod raise;
mod seen;
mod spare;
mod standing;
mod state;

use pyo3::prelude::*;
use std::ffi::c_ulong;

#[pymodule]
mod _ledgerline {
    #[pymodule_export]
    use super::entered::Entered;
    #[pymodule_export]
    use super::group::Group;
    use super::*;

    /// Finds the group at a path like ``/acme/q42``, and makes what is missing. Limits that are given are set.
    #[pyfunction]
    #[pyo3(signature = (path, *, max=None, high=None))]
    fn group(
        py: Python<'_>,
        path: &str,
        max: Option<&Bound<'_, PyAny>>,
        high: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<Group>> {
        crate::group::at_path(py, path, max, high)
    }

    /// Returns the root of all groups. Its limit holds for all of them together.
    #[pyfunction]
    fn root(py: Python<'_>) -> PyResult<Py<Group>> {
        Group::root(py)
    }

    /// Returns the group that is current here; ``None`` if there is none.
    #[pyfunction]
    fn current(py: Python<'_>) -> PyResult<Option<Py<Group>>> {
        crate::group::current(py)
    }

    #[pyfunction]
    fn _announce(name: &str) -> PyResult<String> {
        crate::ledger::announce(name)
    }

    #[pyfunction]
    fn _last_refusal() -> Option<(String, u64, u64, u64)> {
        crate::raise::last_refusal()
    }

    #[pyfunction]
    fn _format(units: u64) -> String {
        ledgerline::size::format(units)
    }

    /// Looks whether a size makes sense.
    #[pyfunction]
    #[pyo3(signature = (size))]
    fn _size(size: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
        crate::group::limit_of(size).map(ledgerline::Limit::get)
    }

    #[pyfunction]
    fn _begin(main_thread: c_ulong, full: Py<PyAny>) {
        crate::raise::begin(main_thread, Some(full));
    }

    #[pyfunction]
    fn _after_fork(main_thread: c_ulong) {
        crate::raise::begin(main_thread, None);
        crate::raise::after_fork();
        crate::group::after_fork();
    }

    #[pyfunction]
    fn _close(py: Python<'_>) {
        crate::raise::close(py);
    }

    #[pyfunction]
    fn _hook_numpy(module: &Bound<'_, PyAny>) -> PyResult<()> {
        crate::numpy::hook(module)
    }

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        seen::begin(module.py(), crate::group::account_of)?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
