//! The border to C: stops panics, and checks pointers, texts and handles.

pub(crate) use crate::failure::{Failure, Outcome, UNITS_MAX, fail, refused, refused_over};
use crate::last;
use crate::registrations::{self, Registered};
use crate::registry::{self, Visit};
use crate::types::ledgerline_code_t::{self as Code, *};
use crate::types::{ledgerline_group_t, ledgerline_ledger_t};
use ledgerline::{Group, GroupId, OwnedGroup};
use std::ffi::c_char;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The longest text that is accepted from C. A path of 32 names is shorter.
const TEXT_MAX: usize = 4096;
/// The length of a text that ends with a NUL.
pub(crate) const NUL_TERMINATED: usize = usize::MAX;

/// Runs a call, and stops a panic.
#[inline(always)]
pub(crate) fn run(call: impl FnOnce() -> Outcome) -> Code {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => LEDGERLINE_OK,
        Ok(Err(Failure(code))) => code,
        Err(panic) => stopped(panic),
    }
}

#[cold]
fn stopped(panic: Box<dyn std::any::Any + Send>) -> Code {
    let said = (panic.downcast_ref::<&str>().copied())
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no text");
    last::set(format_args!("the library panicked, which is a mistake in it: {said}"));
    // The payload may panic again when it drops.
    std::mem::forget(panic);
    LEDGERLINE_ERROR_INTERNAL
}

/// Checks the place for a result.
///
/// # Safety
/// The pointer is NULL, or points to a `T` that may be written until the call returns.
pub(crate) unsafe fn out<'o, T>(pointer: *mut T, what: &str) -> Outcome<Out<'o, T>> {
    if pointer.is_null() || !pointer.is_aligned() {
        let how = if pointer.is_null() { "NULL" } else { "not aligned" };
        return Err(fail(LEDGERLINE_ERROR_ARGUMENT, format_args!("{what} is {how}")));
    }
    Ok(Out { pointer, lifetime: std::marker::PhantomData })
}

/// A place of the caller's for the result of a call that succeeds.
pub(crate) struct Out<'o, T> {
    pointer: *mut T,
    lifetime: std::marker::PhantomData<&'o mut T>,
}

impl<T> Out<'_, T> {
    /// Writes the result of a call, which has succeeded by then.
    pub(crate) fn set(&self, value: T) -> Outcome {
        // SAFETY: `out`'s caller vouches for the place, which may hold any value before.
        unsafe { self.pointer.write(value) }
        Ok(())
    }
}

/// Writes the result of a call, which has succeeded by then, to an optional place.
///
/// # Safety
/// Like [`out`].
pub(crate) unsafe fn set_if_asked<T>(pointer: *mut T, value: impl FnOnce() -> T) -> Outcome {
    if !pointer.is_null() && pointer.is_aligned() {
        // SAFETY: as `out`.
        unsafe { pointer.write(value()) }
    }
    Ok(())
}

/// Checks a text of the caller's.
///
/// # Safety
/// The pointer is NULL, or points to `length` bytes, or to a NUL-terminated text if `length` is `NUL_TERMINATED`.
pub(crate) unsafe fn text<'t>(pointer: *const c_char, length: usize) -> Outcome<&'t str> {
    if pointer.is_null() {
        return Err(fail(LEDGERLINE_ERROR_ARGUMENT, "the name is NULL"));
    }
    let length = if length == NUL_TERMINATED {
        // SAFETY: reads no byte behind the NUL, and no more than the bound.
        unsafe { libc::strnlen(pointer, TEXT_MAX + 1) }
    } else {
        length
    };
    if length > TEXT_MAX {
        return Err(fail(LEDGERLINE_ERROR_NAME, "the name is longer than any name or path"));
    }
    // SAFETY: as the caller says, and no longer than the text.
    let bytes = unsafe { std::slice::from_raw_parts(pointer.cast::<u8>(), length) };
    std::str::from_utf8(bytes).map_err(|error| {
        let at = error.valid_up_to();
        fail(LEDGERLINE_ERROR_NAME, format_args!("the name is not UTF-8 (at byte {at})"))
    })
}

/// Writes a text like `snprintf`: NUL-terminated, cut at a character if the buffer is too small.
///
/// # Safety
/// `buffer` is NULL and `size` zero, or it points to `size` bytes; `needed` as in [`out`].
pub(crate) unsafe fn hand_out(
    buffer: *mut c_char,
    size: usize,
    needed: *mut usize,
    said: impl FnOnce() -> Outcome<String>,
) -> Code {
    run(|| {
        let said = said()?;
        // SAFETY: as the caller says.
        unsafe { set_if_asked(needed, || said.len())? };
        if buffer.is_null() && size > 0 {
            return Err(fail(LEDGERLINE_ERROR_ARGUMENT, "the buffer is NULL"));
        }
        if size > 0 {
            let fits = said.floor_char_boundary(said.len().min(size - 1));
            // SAFETY: below `size`, with the NUL.
            unsafe {
                buffer.cast::<u8>().copy_from_nonoverlapping(said.as_ptr(), fits);
                buffer.add(fits).write(0);
            }
            if fits == said.len() {
                return Ok(());
            }
        }
        // Keeps the last error: this call may be reading it.
        Err(Failure(LEDGERLINE_ERROR_BUFFER))
    })
}

/// Converts a text for C, without NULs inside.
pub(crate) fn c_string(said: &str) -> std::ffi::CString {
    std::ffi::CString::new(said.replace('\0', " ")).unwrap_or_default()
}

/// Enters the ledger of a number.
pub(crate) fn ledger(ledger: ledgerline_ledger_t) -> Outcome<Visit> {
    registry::enter(ledger.number).ok_or_else(|| no_ledger(ledger.number))
}

#[cold]
fn no_ledger(number: u64) -> Failure {
    let why = if number == 0 { "the null handle" } else { "freed, or another's" };
    fail(LEDGERLINE_ERROR_HANDLE, format_args!("ledger {number:#x} is none of this library: {why}"))
}

/// A group that may be used until this is dropped.
pub(crate) struct Named {
    pub(crate) visit: Visit,
    id: GroupId,
}

impl Named {
    pub(crate) fn group(&self) -> Group<'_> {
        self.visit.ledger().group(self.id)
    }

    /// Returns the result of `read` if the group still existed afterwards.
    pub(crate) fn read<T>(&self, read: impl FnOnce(Group<'_>) -> T) -> Outcome<T> {
        let said = read(self.group());
        self.exists().map(|()| said)
    }

    pub(crate) fn exists(&self) -> Outcome {
        if self.group().exists() { Ok(()) } else { Err(self.gone()) }
    }

    #[cold]
    fn gone(&self) -> Failure {
        let id = self.id;
        fail(LEDGERLINE_ERROR_GONE, format_args!("there is no group {id} (any more)"))
    }
}

/// Returns the group of two numbers. Its use shows whether it exists.
pub(crate) fn named(group: ledgerline_group_t) -> Outcome<Named> {
    let visit = ledger(ledgerline_ledger_t { number: group.ledger })?;
    let id = GroupId::from_bits(group.id).ok_or_else(|| {
        fail(LEDGERLINE_ERROR_GONE, format_args!("{:#x} is the number of no group", group.id))
    })?;
    Ok(Named { visit, id })
}

/// Returns the group of two numbers, if it exists.
pub(crate) fn existing(group: ledgerline_group_t) -> Outcome<Named> {
    let named = named(group)?;
    named.exists()?;
    Ok(named)
}

/// Reads a value of a group into a place.
///
/// # Safety
/// Like [`out`].
pub(crate) unsafe fn reading<T>(
    group: ledgerline_group_t,
    place: *mut T,
    what: &str,
    read: impl FnOnce(Group<'_>) -> T,
) -> Code {
    run(|| {
        // SAFETY: as the caller says.
        let into = unsafe { out(place, what)? };
        into.set(named(group)?.read(read)?)
    })
}

/// Registers the result of `make` for a group, together with its end. Returns its number.
pub(crate) fn register<T: Registered, E: FnOnce() + Send + 'static>(
    group: ledgerline_group_t,
    make: impl FnOnce(OwnedGroup) -> Outcome<(T, E)>,
) -> Outcome<u64> {
    let named = existing(group)?;
    let ledger = named.visit.share();
    let owned = named.group().to_owned_in(&ledger).expect("it is that ledger's");
    let (added, end) = make(owned)?;
    let number = registrations::add(group.ledger, added, end);
    if !named.visit.is_open() {
        // The thread that frees the ledger may have taken out all registrations before this one was added.
        let _taken_out_by_either = registrations::take_out::<T>(number);
        return Err(registry::closing());
    }
    Ok(number)
}

/// Checks that a ledger can count this number of units.
pub(crate) fn units(units: u64) -> Outcome<u64> {
    if units <= UNITS_MAX { Ok(units) } else { Err(beyond(units)) }
}

#[cold]
fn beyond(units: u64) -> Failure {
    fail(LEDGERLINE_ERROR_RANGE, format_args!("{units} units: no group counts beyond {UNITS_MAX}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_stops_at_the_border_and_is_an_error_with_its_text() {
        assert_eq!(run(|| Ok(())), LEDGERLINE_OK);
        assert_eq!(run(|| panic!("a {}", "reason")), LEDGERLINE_ERROR_INTERNAL);
        let last::Last::Text(said) = last::get() else { panic!("a refusal") };
        assert!(said.ends_with("a mistake in it: a reason"), "{said}");
        struct Again;
        impl Drop for Again {
            fn drop(&mut self) {
                panic!("again");
            }
        }
        assert_eq!(run(|| std::panic::panic_any(Again)), LEDGERLINE_ERROR_INTERNAL);
    }

    #[test]
    fn a_text_is_cut_between_characters_and_its_length_is_told() {
        let mut buffer = [b'x' as c_char; 8];
        let mut needed = 0;
        // SAFETY: the places are this test's.
        let hand = |said: &str, size, buffer: &mut [c_char; 8], needed: &mut usize| unsafe {
            hand_out(buffer.as_mut_ptr(), size, needed, || Ok(said.into()))
        };
        assert_eq!(hand("äöü", 8, &mut buffer, &mut needed), LEDGERLINE_OK);
        for (size, fits) in [(7, "äöü"), (6, "äö"), (5, "äö"), (4, "ä"), (1, "")] {
            let said = hand("äöü", size, &mut buffer, &mut needed);
            let expected = if size == 7 { LEDGERLINE_OK } else { LEDGERLINE_ERROR_BUFFER };
            assert_eq!(said, expected);
            // SAFETY: NUL-terminated within the buffer, as the conversion asserts.
            let got = unsafe { std::ffi::CStr::from_ptr(buffer.as_ptr()) };
            assert_eq!((got.to_str().unwrap(), needed), (fits, 6));
        }
        buffer[0] = 7;
        assert_eq!(hand("a", 0, &mut buffer, &mut needed), LEDGERLINE_ERROR_BUFFER);
        assert_eq!((buffer[0], needed), (7, 1));
    }
}
