//! Errors: a code, with a text that is kept for the thread.

use crate::last;
use crate::types::ledgerline_code_t::{self as Code, *};
use ledgerline::{CreateError, DestroyError, OpenError, Reason, Refusal, Refused, SetMaxError};
use std::fmt;

/// The most units that a ledger counts.
pub(crate) const UNITS_MAX: u64 = 1 << 62;

/// The failure of a call that had no effect: the code, with its text kept for the thread.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) Code);

pub(crate) type Outcome<T = ()> = Result<T, Failure>;

/// Keeps the text of an error for the calling thread.
#[cold]
pub(crate) fn fail(code: Code, text: impl fmt::Display) -> Failure {
    last::set(format_args!("{text}"));
    Failure(code)
}

/// Returns the code of a refusal by a group with that limit.
fn code_of(reason: Reason, limit: u64) -> Code {
    match reason {
        // A group without a limit refuses only charges that it cannot count.
        Reason::Limit if limit >= UNITS_MAX => LEDGERLINE_ERROR_RANGE,
        Reason::Limit | Reason::Queued => LEDGERLINE_ERROR_LIMIT,
        Reason::Gone => LEDGERLINE_ERROR_GONE,
        Reason::Cancelled => LEDGERLINE_ERROR_CANCELLED,
        Reason::Damaged => LEDGERLINE_ERROR_DAMAGED,
        _ => LEDGERLINE_ERROR_INTERNAL,
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Failure {
        fail(code_of(refused.reason, refused.limit), refused)
    }
}

/// Keeps a refusal as numbers. Async-signal-safe.
pub(crate) fn refused(ledger: u64, refusal: Refusal) -> Failure {
    last::set_refusal(ledger, refusal);
    Failure(code_of(refusal.reason, refusal.limit))
}

/// Like [`refused`], for a charge that no limit refuses: it fails only if a group, limited or not, cannot count it.
pub(crate) fn refused_over(ledger: u64, refusal: Refusal) -> Failure {
    match refused(ledger, refusal) {
        Failure(LEDGERLINE_ERROR_LIMIT) => Failure(LEDGERLINE_ERROR_RANGE),
        other => other,
    }
}

impl From<CreateError> for Failure {
    fn from(error: CreateError) -> Failure {
        let code = match error {
            CreateError::BadName(_) => LEDGERLINE_ERROR_NAME,
            CreateError::Gone => LEDGERLINE_ERROR_GONE,
            CreateError::Exists => LEDGERLINE_ERROR_EXISTS,
            CreateError::TooDeep => LEDGERLINE_ERROR_DEPTH,
            CreateError::Full { .. } => LEDGERLINE_ERROR_FULL,
            _ => LEDGERLINE_ERROR_INTERNAL,
        };
        fail(code, error)
    }
}

impl From<DestroyError> for Failure {
    fn from(error: DestroyError) -> Failure {
        let code = match error {
            DestroyError::Root => LEDGERLINE_ERROR_ROOT,
            DestroyError::HasChildren { .. } => LEDGERLINE_ERROR_CHILDREN,
            DestroyError::Gone => LEDGERLINE_ERROR_GONE,
            DestroyError::Busy => LEDGERLINE_ERROR_BUSY,
            _ => LEDGERLINE_ERROR_INTERNAL,
        };
        fail(code, error)
    }
}

impl From<SetMaxError> for Failure {
    fn from(error: SetMaxError) -> Failure {
        let code = match error {
            SetMaxError::Busy { .. } => LEDGERLINE_ERROR_BUSY,
            SetMaxError::Gone => LEDGERLINE_ERROR_GONE,
            SetMaxError::ReadOnly => LEDGERLINE_ERROR_SYSTEM,
            _ => LEDGERLINE_ERROR_INTERNAL,
        };
        fail(code, error)
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Failure {
        let code = match error {
            OpenError::Io(_) | OpenError::ReadOnly => LEDGERLINE_ERROR_SYSTEM,
            OpenError::Damaged => LEDGERLINE_ERROR_DAMAGED,
            _ => LEDGERLINE_ERROR_FORMAT,
        };
        fail(code, error)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        let code = match error.kind() {
            std::io::ErrorKind::InvalidInput => LEDGERLINE_ERROR_RANGE,
            std::io::ErrorKind::QuotaExceeded => LEDGERLINE_ERROR_FULL,
            std::io::ErrorKind::NotFound => LEDGERLINE_ERROR_GONE,
            _ => LEDGERLINE_ERROR_SYSTEM,
        };
        fail(code, error)
    }
}
