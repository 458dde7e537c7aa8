//! What happens when a limit says no.

use crate::process;
use ledgerline::{Group, Refusal, name};
use std::ffi::CStr;

/// After a refusal: settles the rows of dead processes and, if there is room then, charges.
#[cold]
#[inline(never)]
pub(crate) fn try_again(group: Group<'_>, mut refusal: Refusal) -> bool {
    group.ledger().settle_dead(&alive);
    // Whether by this process or another. (Looked at first, since a refusal counts.)
    let usage = group.ledger().group(refusal.group).approximate().value;
    if usage.saturating_add(refusal.requested) <= refusal.limit {
        match group.try_charge_units(refusal.requested) {
            Ok(()) => return true,
            Err(again) => refusal = again,
        }
    }
    if process::settings().kill {
        kill(&refusal);
    }
    false
}

/// Whether a process still holds memory: it exists and is not merely waiting to be reaped.
fn alive(process: u32) -> bool {
    // SAFETY: signal 0 only asks. A process that may not be signalled exists, too.
    let gone = unsafe { libc::kill(process as libc::pid_t, 0) } != 0 && errno() == libc::ESRCH;
    !gone && !zombie(process)
}

/// Whether `/proc` shows a process as ended; `false` where it cannot be read.
fn zombie(process: u32) -> bool {
    let mut path = *b"/proc/0000000000/stat\0";
    let mut number = [0; 20];
    let number = digits(u64::from(process), &mut number);
    // The number padded with zeros is not what the file is called: it goes in front of "/stat".
    let start = b"/proc/".len();
    path[start..start + number.len()].copy_from_slice(number);
    path[start + number.len()..][..6].copy_from_slice(b"/stat\0");
    let mut text = [0u8; 256];
    // SAFETY: opens a NUL-terminated path and reads at most the buffer's length into it.
    let length = unsafe {
        let file = libc::open(path.as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC);
        if file < 0 {
            return false;
        }
        let length = libc::read(file, text.as_mut_ptr().cast(), text.len());
        libc::close(file);
        length.max(0) as usize
    };
    // "pid (name) S ...": the name may hold anything, so the last parenthesis counts.
    let text = &text[..length];
    let state = text.iter().rposition(|&byte| byte == b')').and_then(|at| text.get(at + 2));
    matches!(state, Some(b'Z' | b'X'))
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
    let length = compose(parts, &mut line);
    // SAFETY: writes from a buffer on the stack.
    unsafe { libc::write(2, line.as_ptr().cast(), length) };
}

/// The line, cut where it does not fit; its length. What would steer a terminal (paths come from the
/// environment) shows as `?`.
fn compose(parts: &[&[u8]], line: &mut [u8; 256]) -> usize {
    let mut length = 0;
    let room = line.len() - 1;
    let letters = [b"ledgerline: ".as_slice()].into_iter().chain(parts.iter().copied());
    let letters = letters.flat_map(<[u8]>::utf8_chunks).flat_map(|chunk| {
        let bad = if chunk.invalid().is_empty() { None } else { Some('?') };
        chunk.valid().chars().chain(bad)
    });
    for letter in letters {
        let letter = if letter == '/' || name::allows(letter) { letter } else { '?' };
        let end = length + letter.len_utf8();
        if end > room {
            break;
        }
        letter.encode_utf8(&mut line[length..end]);
        length = end;
    }
    line[length] = b'\n';
    length + 1
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
    fn this_process_is_alive_and_one_that_was_not_reaped_is_not() {
        assert!(alive(std::process::id()));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        while !zombie(child.id()) {
            std::thread::yield_now();
        }
        assert!(!alive(child.id()));
        child.wait().unwrap();
        assert!(!alive(child.id()));
    }

    #[test]
    fn a_line_ends_and_steers_no_terminal() {
        let mut line = [0; 256];
        let path = b"/tmp/\x1b[2J\xff\xe2\x80\xae\xc3\xa4";
        let length = compose(&[b"cannot open ", path], &mut line);
        assert_eq!(&line[..length], "ledgerline: cannot open /tmp/?[2J??\u{e4}\n".as_bytes());
        let length = compose(&["\u{e4}".repeat(300).as_bytes()], &mut line);
        assert!(
            length > 253 && std::str::from_utf8(&line[..length]).unwrap().ends_with("\u{e4}\n")
        );
    }

    #[test]
    fn numbers_are_printed_whole() {
        let mut buffer = [0; 20];
        assert_eq!(digits(0, &mut buffer), b"0");
        assert_eq!(digits(u64::MAX, &mut buffer), b"18446744073709551615");
        assert_eq!(digits(1024, &mut buffer), b"1024");
    }
}
