//! What happens when a limit says no.

use crate::process;
use ledgerline::Refusal;
use std::ffi::CStr;

/// Tries a charge that was refused once more after the rows of dead processes are settled.
#[cold]
#[inline(never)]
pub(crate) fn try_again(row: u32, units: u64) -> bool {
    let group = process::group(row);
    group.ledger().settle_dead(&alive);
    match group.try_charge_units(units) {
        Ok(()) => true,
        Err(refusal) if process::settings().kill => kill(&refusal),
        Err(_) => false,
    }
}

fn alive(process: u32) -> bool {
    // SAFETY: signal 0 only asks. A process that may not be signalled exists, too.
    let gone = unsafe { libc::kill(process as libc::pid_t, 0) } != 0;
    !(gone && errno() == libc::ESRCH)
}

/// `--on-max kill`: says who and why, and ends the process.
fn kill(refusal: &Refusal) -> ! {
    let (mut limit, mut usage, mut asked) = ([0; 20], [0; 20], [0; 20]);
    say(&[
        b"killed: max of ",
        digits(refusal.limit, &mut limit),
        b" bytes reached, ",
        digits(refusal.usage, &mut usage),
        b" in use, ",
        digits(refusal.requested, &mut asked),
        b" requested",
    ]);
    // SAFETY: signals this process; nothing runs after it.
    unsafe {
        libc::kill(libc::getpid(), libc::SIGKILL);
        libc::abort()
    }
}

/// Writes one line to standard error in one piece, without allocating.
pub(crate) fn say(parts: &[&[u8]]) {
    let mut line = [0u8; 256];
    let mut length = 0;
    for part in [b"ledgerline: ".as_slice()].iter().chain(parts).chain(&[b"\n".as_slice()]) {
        let take = part.len().min(line.len() - length);
        line[length..length + take].copy_from_slice(&part[..take]);
        length += take;
    }
    // SAFETY: writes from a buffer on the stack.
    unsafe { libc::write(2, line.as_ptr().cast(), length) };
}

/// A number in decimal, without allocating.
fn digits(mut number: u64, into: &mut [u8; 20]) -> &[u8] {
    let mut at = into.len();
    loop {
        at -= 1;
        into[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &into[at..];
        }
    }
}

/// The calling thread's `errno`.
pub(crate) fn errno() -> i32 {
    // SAFETY: the C library returns the address of the calling thread's variable.
    unsafe { *libc::__errno_location() }
}

/// Sets the calling thread's `errno`.
pub(crate) fn set_errno(value: i32) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = value };
}

/// A variable of the environment, read without allocating.
pub(crate) fn environment(name: &CStr) -> Option<&'static [u8]> {
    // SAFETY: the name is NUL-terminated; what is returned is a NUL-terminated string that lives as
    // long as the program leaves its environment alone, and is looked at only during start-up.
    unsafe {
        let value = libc::getenv(name.as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value).to_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_printed_whole() {
        let mut buffer = [0; 20];
        assert_eq!(digits(0, &mut buffer), b"0");
        assert_eq!(digits(u64::MAX, &mut buffer), b"18446744073709551615");
        assert_eq!(digits(1024, &mut buffer), b"1024");
    }
}
