//! Tokens, which tell work to stop, and victims, whose tokens may be cancelled if a group above them is full.

use crate::border::{Outcome, c_string, existing, fail, hand_out, out, register, run};
use crate::callback::Callback;
use crate::registrations::{self, Registered};
use crate::types::ledgerline_code_t::{self, *};
use crate::types::{
    ledgerline_cancelled_t, ledgerline_group_t, ledgerline_token_t, ledgerline_victim_t,
};
use ledgerline::{CancelToken, Kept, Killed, OwnedGroup, Victim};
use std::ffi::{c_char, c_void};
use std::sync::{Arc, Mutex, PoisonError};

/// A function that is called at a cancellation.
type Function = unsafe extern "C-unwind" fn(*mut c_void, *const c_char);

/// A token's callbacks; `None` once it was freed, so that none can be added.
#[derive(Clone)]
struct Callbacks(Arc<Mutex<Option<Vec<Arc<Callback>>>>>);

impl Callbacks {
    fn new() -> Callbacks {
        Callbacks(Arc::new(Mutex::new(Some(Vec::new()))))
    }

    fn with<T>(&self, act: impl FnOnce(&mut Option<Vec<Arc<Callback>>>) -> T) -> T {
        // Locked over a fork, so that no child finds it locked.
        registrations::briefly(|| act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Adds one; `false` if the token was freed meanwhile.
    fn add(&self, callback: Arc<Callback>) -> bool {
        self.with(|all| all.as_mut().map(|all| all.push(callback))).is_some()
    }

    /// Takes all of them out, and lets no others in. None of them is called from then on.
    fn close(&self) {
        let all = self.with(Option::take);
        all.into_iter().flatten().for_each(|callback| callback.close());
    }
}

struct Token {
    token: CancelToken,
    callbacks: Callbacks,
}

impl Token {
    fn on_cancel(&self, cancelled: Function, data: *mut c_void) -> Outcome {
        let callback = Arc::new(Callback::new(data, None));
        if !self.callbacks.add(callback.clone()) {
            return Err(fail(LEDGERLINE_ERROR_HANDLE, "another thread frees the token"));
        }
        self.token.on_cancel(move |killed| {
            let why = c_string(&killed.to_string());
            // SAFETY: the caller's function with its data, and a text that lives until it returns.
            callback.call(|data| unsafe { cancelled(data, why.as_ptr()) });
        });
        Ok(())
    }
}

impl Registered for Token {
    const WHAT: &'static str = "token";
}

type Added = Kept<Victim<'static>>;

impl Registered for Added {
    const WHAT: &'static str = "victim";
}

/// Makes a token that is not cancelled.
///
/// Errors: LEDGERLINE_ERROR_ARGUMENT. Threads: any. Signals: not async-signal-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ledgerline_token_new(token: *mut ledgerline_token_t) -> ledgerline_code_t {
    run(|| {
        // SAFETY: as the header asks of the caller.
        let into = unsafe { out(token, "the token")? };
        let callbacks = Callbacks::new();
        let kept = Token { token: CancelToken::new(), callbacks: callbacks.clone() };
        let number = registrations::add(0, kept, move || callbacks.close());
        into.set(ledgerline_token_t { number })
    })
}

/// Frees a token. Its callbacks are not called from then on. This waits for callbacks that run in other threads,
/// unless it is called inside one. Victims that were added with the token stay, and can still be cancelled.
///
/// Errors: LEDGERLINE_ERROR_HANDLE. Threads: any. Signals: not async-signal-safe.
#[unsafe(no_mangle)]
pub extern "C" fn ledgerline_token_free(token: ledgerline_token_t) -> ledgerline_code_t {
    run(|| registrations::take_out::<Token>(token.number))
}

/// Returns LEDGERLINE_OK while the work may continue, LEDGERLINE_ERROR_CANCELLED once it should stop. The last error
/// has the reason. Costs a lock for a few instructions.
///
/// Errors: LEDGERLINE_ERROR_CANCELLED, _HANDLE. Threads: any. Signals: not async-signal-safe.
#[unsafe(no_mangle)]
pub extern "C" fn ledgerline_token_check(token: ledgerline_token_t) -> ledgerline_code_t {
    run(|| {
        let token = registrations::get::<Token>(token.number)?;
        let check = token.token.check();
        check.map_err(|killed| fail(LEDGERLINE_ERROR_CANCELLED, killed))
    })
}

/// Writes why a token was cancelled. The buffer is filled as by ledgerline_last_error; empty while it is not.
///
/// Errors: LEDGERLINE_ERROR_BUFFER, _HANDLE, _ARGUMENT. Threads: any. Signals: not async-signal-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ledgerline_token_why(
    token: ledgerline_token_t,
    buffer: *mut c_char,
    size: usize,
    needed: *mut usize,
) -> ledgerline_code_t {
    let why = || {
        let token = registrations::get::<Token>(token.number)?;
        Ok(token.token.killed().map(Killed::to_string).unwrap_or_default())
    };
    // SAFETY: as the header asks of the caller.
    unsafe { hand_out(buffer, size, needed, why) }
}

/// Cancels a token by hand. Callbacks run in this call.
///
/// Errors: LEDGERLINE_ERROR_CANCELLED if it was cancelled before; _HANDLE. Threads: any. Signals: not async-signal-safe.
#[unsafe(no_mangle)]
pub extern "C" fn ledgerline_token_cancel(token: ledgerline_token_t) -> ledgerline_code_t {
    run(|| {
        let token = registrations::get::<Token>(token.number)?;
        if token.token.cancel(Killed::new("the work", 0, "the program", 0)) {
            return Ok(());
        }
        Err(fail(LEDGERLINE_ERROR_CANCELLED, "the token was cancelled before"))
    })
}

/// Registers a function that is called once when a token is cancelled, in the thread that cancels. If the token was
/// cancelled before, it is called at once.
///
/// Errors: LEDGERLINE_ERROR_ARGUMENT for a NULL function, _HANDLE. Threads: any. Signals: not async-signal-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ledgerline_token_on_cancel(
    token: ledgerline_token_t,
    cancelled: ledgerline_cancelled_t,
    data: *mut c_void,
) -> ledgerline_code_t {
    run(|| {
        let no_function = || fail(LEDGERLINE_ERROR_ARGUMENT, "the function is NULL");
        let cancelled = cancelled.ok_or_else(no_function)?;
        registrations::get::<Token>(token.number)?.on_cancel(cancelled, data)
    })
}

/// Adds a group as a victim. When a request with LEDGERLINE_OOM meets a full group above it, the token of the victim
/// that holds most above its protection is cancelled.
///
/// Errors: LEDGERLINE_ERROR_GONE, _HANDLE, _ARGUMENT. Threads: any. Signals: not async-signal-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ledgerline_add_victim(
    group: ledgerline_group_t,
    token: ledgerline_token_t,
    victim: *mut ledgerline_victim_t,
) -> ledgerline_code_t {
    run(|| {
        // SAFETY: as the header asks of the caller.
        let into = unsafe { out(victim, "the victim")? };
        let token = registrations::get::<Token>(token.number)?;
        let added = |owned: OwnedGroup| Ok((owned.add_victim(&token.token), || ()));
        into.set(ledgerline_victim_t { number: register(group, added)? })
    })
}

/// Takes a victim out, so that it is no longer cancelled.
///
/// Errors: LEDGERLINE_ERROR_HANDLE if it was taken out before, also by ledgerline_ledger_free. Threads: any. Signals:
/// not async-signal-safe.
#[unsafe(no_mangle)]
pub extern "C" fn ledgerline_remove_victim(victim: ledgerline_victim_t) -> ledgerline_code_t {
    run(|| registrations::take_out::<Added>(victim.number))
}

/// Sets whether all victims below a group are cancelled together when one of them is. `whole` is 0 or 1.
///
/// Errors: LEDGERLINE_ERROR_ARGUMENT for another number, _GONE, _HANDLE. Threads: any. Signals: as
/// ledgerline_try_charge_units.
#[unsafe(no_mangle)]
pub extern "C" fn ledgerline_group_set_oom_group(
    group: ledgerline_group_t,
    whole: u32,
) -> ledgerline_code_t {
    run(|| {
        if whole > 1 {
            return Err(fail(LEDGERLINE_ERROR_ARGUMENT, format_args!("{whole} is not 0 or 1")));
        }
        let named = existing(group)?;
        named.group().set_oom_group(whole == 1);
        named.exists()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    unsafe extern "C-unwind" fn count(data: *mut c_void, _why: *const c_char) {
        // SAFETY: each test passes a count that outlives the token.
        unsafe { &*data.cast::<AtomicU32>() }.fetch_add(1, SeqCst);
    }

    /// Another thread found the token just before it was freed. A victim may cancel it later, when the data is gone.
    #[test]
    fn what_is_added_while_the_token_is_freed_is_refused_and_not_called() {
        let called = AtomicU32::new(0);
        let data = (&raw const called).cast_mut().cast();
        let callbacks = Callbacks::new();
        let token = Token { token: CancelToken::new(), callbacks: callbacks.clone() };
        assert!(token.on_cancel(count, data).is_ok());
        callbacks.close();
        assert!(token.on_cancel(count, data).is_err());
        assert!(token.token.cancel(Killed::new("the work", 0, "the program", 0)));
        assert!(token.on_cancel(count, data).is_err(), "nor at once");
        assert_eq!(called.load(SeqCst), 0);
    }
}
