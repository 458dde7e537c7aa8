//! The version of the ABI, and the texts of errors.

use crate::border::{hand_out, run};
use crate::last::{self, Last};
use crate::registry;
use crate::types::ledgerline_code_t::{self, *};
use std::ffi::c_char;

/// The version of the ABI that this header describes. A library of the same number has all declarations of this
/// header.
pub const LEDGERLINE_ABI_VERSION: u32 = 1;

/// Returns the version of the library's ABI. A program compares it with LEDGERLINE_ABI_VERSION of its header:
/// ledgerline_check_abi does.
///
/// Errors: none. Threads: any. Signals: async-signal-safe.
#[unsafe(no_mangle)]
pub extern "C" fn ledgerline_abi_version() -> u32 {
    LEDGERLINE_ABI_VERSION
}

/// Returns LEDGERLINE_OK if a header with this LEDGERLINE_ABI_VERSION fits the library.
///
/// Errors: LEDGERLINE_ERROR_ABI if it does not. Threads: any. Signals: async-signal-safe but for the error.
#[unsafe(no_mangle)]
pub extern "C" fn ledgerline_fits_abi(version: u32) -> ledgerline_code_t {
    run(|| {
        if version == LEDGERLINE_ABI_VERSION {
            return Ok(());
        }
        let why = format_args!(
            "the program was compiled for ABI {version} of ledgerline, and the library has \
             {LEDGERLINE_ABI_VERSION}"
        );
        Err(crate::border::fail(LEDGERLINE_ERROR_ABI, why))
    })
}

/// Returns the version of the library, like "0.1.0". The text is never freed.
///
/// Errors: none. Threads: any. Signals: async-signal-safe.
#[unsafe(no_mangle)]
pub extern "C" fn ledgerline_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Returns a sentence for a code, also for an unknown one. The text is never freed.
///
/// Errors: none. Threads: any. Signals: async-signal-safe.
#[unsafe(no_mangle)]
pub extern "C" fn ledgerline_error_text(code: i32) -> *const c_char {
    const TEXTS: [&std::ffi::CStr; 24] = [
        c"done",
        c"the library made a mistake, which was stopped at its border",
        c"an argument is NULL, not aligned, or no value that the call knows",
        c"the handle names no ledger or registration of this library",
        c"the group does not exist (any more)",
        c"a limit leaves no room",
        c"the number is beyond what is allowed there",
        c"the name cannot be the name of a group or an item",
        c"the group was cancelled to make room for others",
        c"another program wrote over the ledger",
        c"there is no place for one more",
        c"the tree would have more than 32 levels",
        c"the group has children",
        c"the root cannot be destroyed",
        c"more is in use than that, or the group is busy",
        c"there is nothing of that name",
        c"the operating system said no",
        c"the file holds no ledger that this library knows",
        c"the buffer is too small",
        c"more was returned than was charged",
        c"the ledger is not kept for good",
        c"the ledger is kept for good",
        c"the library has another ABI than the header",
        c"the parent has a group of that name",
    ];
    let text = usize::try_from(-i64::from(code)).ok().and_then(|code| TEXTS.get(code));
    text.unwrap_or(&c"a code that this library does not know").as_ptr()
}

/// Writes the text of the last error in the calling thread. For a refusal it names the full group, the requested
/// units and the units in use. Empty if there was no error. A call that succeeds leaves the text unchanged.
///
/// Like snprintf it writes at most `size` bytes with the NUL, and stores the length of the whole text without the NUL
/// in `*needed`, which may be NULL. With a `size` of 0 the buffer may be NULL.
///
/// Errors: LEDGERLINE_ERROR_BUFFER if the text did not fit (it was cut between two characters);
/// LEDGERLINE_ERROR_ARGUMENT. Threads: any; each has its own. Signals: not async-signal-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ledgerline_last_error(
    buffer: *mut c_char,
    size: usize,
    needed: *mut usize,
) -> ledgerline_code_t {
    let said = || match last::get() {
        Last::Text(said) => said,
        Last::Refusal(ledger, refusal) => match registry::enter(ledger) {
            Some(visit) => visit.ledger().explain(&refusal).to_string(),
            None => refusal.to_string(),
        },
    };
    // SAFETY: as the header asks of the caller.
    unsafe { hand_out(buffer, size, needed, || Ok(said())) }
}
