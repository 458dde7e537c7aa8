//! The ledger of the process.

use ledgerline::Ledger;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use std::sync::OnceLock;

/// The most groups at a time. A row costs memory once it is used.
const GROUPS_MOST: u32 = 1 << 16;

static LEDGER: OnceLock<&'static Ledger> = OnceLock::new();

/// The ledger of the process; made at the first use.
pub fn ledger() -> &'static Ledger {
    LEDGER.get_or_init(|| {
        let ledger = Ledger::builder().capacity(GROUPS_MOST).anonymous();
        ledger.expect("a process has addresses for a ledger").into_static()
    })
}

/// Makes the ledger where `ledgerline top` and the others find it.
pub fn announce(name: &str) -> PyResult<String> {
    let mut made = None;
    let mut error = None;
    let before = LEDGER.get().is_some();
    if !before {
        match Ledger::builder().capacity(GROUPS_MOST).announce(name) {
            Ok(ledger) => made = Some(ledger.into_static()),
            Err(said) => error = Some(said),
        }
    }
    if let Some(error) = error {
        return Err(match error.kind() {
            std::io::ErrorKind::InvalidInput => PyValueError::new_err(error.to_string()),
            _ => error.into(),
        });
    }
    match made {
        Some(ledger) if LEDGER.set(ledger).is_ok() => {
            let path = ledger.announced_at().unwrap_or_default();
            Ok(path.to_string_lossy().into_owned())
        }
        _ => Err(PyRuntimeError::new_err(
            "announce() comes before the first group, and once a process: its groups exist already",
        )),
    }
}

/// The ledger, if it was announced.
pub fn announced() -> Option<&'static Ledger> {
    LEDGER.get().copied().filter(|ledger| ledger.announced_at().is_some())
}
