//! `ledgerline.Group`.

use crate::account::{self, Account};
use crate::entered::Entered;
use crate::ledger::{self, ledger};
use crate::seen;
use ledgerline::{DestroyError, Limit, size};
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// In a forked child of a process that announced its ledger: the child's groups lie below a row of its own.
pub fn after_fork() {
    let Some(ledger) = ledger::announced() else { return };
    account::forget();
    seen::forget();
    let pid = std::process::id();
    let own = ledger.attach_process(&format!("python-{pid}"), pid);
    *OWN_ROOT.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = own.ok();
}

/// The root of this process in a ledger that it has from its parent.
static OWN_ROOT: std::sync::Mutex<Option<ledgerline::Group<'static>>> = std::sync::Mutex::new(None);

/// A size as Python code says it: bytes, a text like `"64M"`, or `None` and `"max"` for no limit.
pub fn limit_of(value: &Bound<'_, PyAny>) -> PyResult<Limit> {
    if value.is_none() {
        return Ok(Limit::MAX);
    }
    if let Ok(text) = value.extract::<&str>() {
        let parsed = size::parse(text).map_err(|error| PyValueError::new_err(error.to_string()))?;
        return Ok(parsed.map_or(Limit::MAX, Limit::units));
    }
    if value.is_instance_of::<pyo3::types::PyBool>() {
        return Err(PyTypeError::new_err(
            "a limit is a number of bytes, a text like '64M', or None",
        ));
    }
    match value.extract::<i128>() {
        Ok(bytes) if bytes < 0 => Err(PyValueError::new_err("a limit is not negative")),
        Ok(bytes) => Ok(u64::try_from(bytes).map_or(Limit::MAX, Limit::units)),
        Err(_) => {
            Err(PyTypeError::new_err("a limit is a number of bytes, a text like '64M', or None"))
        }
    }
}

/// A group: an account of memory with limits, in a tree.
///
/// Groups are found and made by :func:`ledgerline.group`. Memory that Python code allocates while a group is entered
/// is charged to it and to all groups above it, until it is freed by any thread.
#[pyclass(frozen, module = "ledgerline", name = "Group", weakref)]
pub struct Group {
    group: ledgerline::Group<'static>,
    account: Option<&'static Account>,
    parent: Option<Py<Group>>,
}

// SAFETY: an account is read and written with the GIL alone (G1), and so are this class's methods.
unsafe impl Send for Group {}
// SAFETY: as above.
unsafe impl Sync for Group {}

impl Group {
    pub fn root(py: Python<'_>) -> PyResult<Py<Group>> {
        let own = *OWN_ROOT.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        Group::new(py, own.unwrap_or_else(|| ledger().root()), None)
    }

    fn new(
        py: Python<'_>,
        group: ledgerline::Group<'static>,
        parent: Option<Py<Group>>,
    ) -> PyResult<Py<Group>> {
        let above = parent.as_ref().and_then(|parent| parent.get().account());
        let account = account::open(group, above);
        Py::new(py, Group { group, account, parent })
    }

    /// The account that pays for this group: its own, or that of the nearest group above that exists.
    pub fn account(&self) -> Option<&'static Account> {
        match self.account {
            Some(account) if account.is_of(self.group) => Some(account),
            _ => self.parent.as_ref()?.get().account(),
        }
    }

    /// This group's own account.
    pub fn own(&self) -> Option<&'static Account> {
        self.account.filter(|account| account.is_of(self.group))
    }

    pub fn group(&self) -> ledgerline::Group<'static> {
        self.group
    }

    fn existing(&self) -> PyResult<ledgerline::Group<'static>> {
        match self.group.exists() {
            true => Ok(self.group),
            false => Err(PyRuntimeError::new_err("the group was destroyed")),
        }
    }

    /// The child of that name, which is made if there is none.
    fn below(slf: &Bound<'_, Group>, name: &str) -> PyResult<Py<Group>> {
        let group = slf.get().existing()?;
        let child = group.get_or_create(name).map_err(create_error)?;
        Group::new(slf.py(), child, Some(slf.clone().unbind()))
    }

    fn set(&self, max: Option<&Bound<'_, PyAny>>, high: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let [max, high] = [max, high].map(|limit| limit.map(limit_of).transpose());
        let (max, high) = (max?, high?);
        if let Some(max) = max {
            account::collect();
            let set = self.existing()?.set_max_now(max);
            set.map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        }
        if let Some(high) = high {
            self.existing()?.set_high(high);
        }
        Ok(())
    }
}

fn create_error(error: ledgerline::CreateError) -> PyErr {
    match error {
        ledgerline::CreateError::BadName(_) => PyValueError::new_err(error.to_string()),
        _ => PyRuntimeError::new_err(error.to_string()),
    }
}

fn bytes(limit: Limit) -> Option<u64> {
    limit.get()
}

/// Finds the group at a path, and makes what is missing.
pub fn at_path(
    py: Python<'_>,
    path: &str,
    max: Option<&Bound<'_, PyAny>>,
    high: Option<&Bound<'_, PyAny>>,
) -> PyResult<Py<Group>> {
    // A limit that makes no sense makes no group.
    for limit in [max, high].into_iter().flatten() {
        limit_of(limit)?;
    }
    let mut found = Group::root(py)?;
    for name in path.split('/').filter(|name| !name.is_empty()) {
        found = Group::below(found.bind(py), name)?;
    }
    found.get().set(max, high)?;
    Ok(found)
}

#[pymethods]
impl Group {
    /// The path, as ``/acme/q42``; the root's is ``/``.
    #[getter]
    fn path(&self) -> String {
        self.group.path()
    }

    /// The last name of the path.
    #[getter]
    fn name(&self) -> String {
        self.group.name()
    }

    /// The group above; ``None`` for the root.
    #[getter]
    fn parent(&self, py: Python<'_>) -> Option<Py<Group>> {
        self.parent.as_ref().map(|parent| parent.clone_ref(py))
    }

    /// ``False`` once the group was destroyed.
    #[getter]
    fn exists(&self) -> bool {
        self.group.exists()
    }

    /// The bytes that are charged to the group and to those below it.
    #[getter]
    fn current(&self) -> u64 {
        account::collect();
        self.group.precise()
    }

    /// The most bytes that were charged at a time. It may be up to some hundred KiB too high: what was charged ahead counts.
    #[getter]
    fn peak(&self) -> u64 {
        account::collect();
        self.group.peak().value.max(self.group.precise())
    }

    /// Begins a new :attr:`peak` at what is in use now.
    fn reset_peak(&self) {
        account::collect();
        self.group.reset_peak();
    }

    /// The limit in bytes; ``None`` if there is none. It may be set to bytes, to a text like ``"64M"``, or to ``None``, and holds at
    /// once: if more is in use, all that is asked for is refused until usage has come down.
    #[getter]
    fn max(&self) -> Option<u64> {
        bytes(self.group.max())
    }

    #[setter]
    fn set_max(&self, max: &Bound<'_, PyAny>) -> PyResult<()> {
        self.set(Some(max), None)
    }

    /// A mark below the limit. Nothing is refused there: ``events["high"]`` counts how often usage passed it.
    #[getter]
    fn high(&self) -> Option<u64> {
        bytes(self.group.high())
    }

    #[setter]
    fn set_high(&self, high: &Bound<'_, PyAny>) -> PyResult<()> {
        self.set(None, Some(high))
    }

    /// How often the group's own limits were met: ``{"max": 3, "high": 10}``. At ``max`` every block counts that was refused, or
    /// granted over the limit so that the error could be raised at a good place.
    #[getter]
    fn events<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let events = PyDict::new(py);
        events.set_item("max", self.group.max_events())?;
        events.set_item("high", self.group.high_events())?;
        Ok(events)
    }

    /// How many blocks a limit refused, or granted over itself, while this very group was charged.
    #[getter]
    fn refused(&self) -> u64 {
        self.own().map_or(0, |account| account.standing.count())
    }

    /// The groups right below this one.
    fn children(slf: &Bound<'_, Group>) -> PyResult<Vec<Py<Group>>> {
        let groups: Vec<_> = slf.get().group.children().collect();
        let child = |group| Group::new(slf.py(), group, Some(slf.clone().unbind()));
        groups.into_iter().map(child).collect()
    }

    /// Finds the child of that name, or makes it.
    #[pyo3(signature = (name, *, max=None, high=None))]
    fn child(
        slf: &Bound<'_, Group>,
        name: &str,
        max: Option<&Bound<'_, PyAny>>,
        high: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<Group>> {
        for limit in [max, high].into_iter().flatten() {
            limit_of(limit)?;
        }
        let child = Group::below(slf, name)?;
        child.get().set(max, high)?;
        Ok(child)
    }

    /// Ends the group and all below it. Returns the bytes that are still in use: they stay charged to the groups above until they are
    /// freed.
    fn destroy(&self) -> PyResult<u64> {
        seen::leaving(|| {
            if let Some(account) = self.own() {
                account.empty();
            }
            match self.group.destroy() {
                Ok(settled) => {
                    if let Some(account) = self.account.filter(|it| it.group() == Some(self.group))
                    {
                        account.end();
                    }
                    return Ok(settled.leftover);
                }
                Err(DestroyError::HasChildren { .. }) => {}
                Err(error) => return Err(PyRuntimeError::new_err(error.to_string())),
            }
            account::collect();
            let destroyed = self.group.destroy_tree();
            account::end_destroyed();
            match destroyed {
                Ok(settled) => Ok(settled.last().map_or(0, |settled| settled.leftover)),
                Err(error) => Err(PyRuntimeError::new_err(error.to_string())),
            }
        })
    }

    /// Returns a context manager: inside, what is allocated is charged to this group.
    ///
    /// The group belongs to the context (:mod:`contextvars`): tasks that are made inside have it, and so have functions that
    /// :func:`asyncio.to_thread` runs. At a limit a :class:`MemoryError` is raised inside, and leaves as
    /// :class:`ledgerline.GroupFull`. In a plain generator no ``yield`` may stand inside: use :func:`ledgerline.limited` for those.
    fn enter(slf: &Bound<'_, Group>) -> PyResult<Entered> {
        slf.get().existing()?;
        Ok(Entered::new(slf.as_any()))
    }

    fn __repr__(&self) -> String {
        if !self.group.exists() {
            return "<ledgerline.Group (destroyed)>".into();
        }
        account::collect();
        let (path, used) = (self.group.path(), size::format(self.group.precise()));
        match self.group.max().get() {
            Some(max) => format!("<ledgerline.Group {path}: {used} of max {}>", size::format(max)),
            None => format!("<ledgerline.Group {path}: {used}>"),
        }
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Group>().is_ok_and(|other| other.get().group == self.group)
    }

    fn __hash__(&self) -> u64 {
        u64::from(self.group.id().index()) << 16 | u64::from(self.group.id().generation())
    }
}

/// The group that is current; `None` if there is none.
pub fn current(py: Python<'_>) -> PyResult<Option<Py<Group>>> {
    let variable = seen::variable();
    if variable.is_null() {
        return Ok(None);
    }
    let mut value = std::ptr::null_mut();
    // SAFETY: the GIL is held; the value is a new reference, or null.
    let value = unsafe {
        if pyo3::ffi::PyContextVar_Get(variable, std::ptr::null_mut(), &raw mut value) < 0 {
            return Err(PyErr::fetch(py));
        }
        Bound::from_owned_ptr_or_opt(py, value)
    };
    Ok(value.and_then(|value| value.cast_into::<Group>().ok()).map(Bound::unbind))
}

/// The account of a value of the context variable.
pub fn account_of(value: &Bound<'_, PyAny>) -> Option<&'static Account> {
    value.cast::<Group>().ok()?.get().account()
}
