//! Tells processes that still hold memory from ended ones.

use crate::blind::File;
use std::ffi::CStr;
use std::io::Write;

/// Returns whether a process still holds memory: it exists, and is not a zombie. Allocates nothing.
#[must_use]
pub fn alive(process: u32) -> bool {
    let Ok(number) = libc::pid_t::try_from(process) else { return false };
    // SAFETY: signal 0 only asks. A process that may not be signalled exists, too.
    let gone = unsafe { libc::kill(number, 0) } != 0
        && std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH);
    !gone && !zombie(process)
}

/// Returns whether `/proc` shows a process as ended; `false` if that cannot be read. A process whose first thread has
/// ended before others has the state of a zombie too, but has more than one thread.
fn zombie(process: u32) -> bool {
    let (mut path, mut text) = ([0; 32], [0; 512]);
    // The longest number fits, and the rest are zeros.
    let _ = write!(&mut path[..], "/proc/{process}/stat");
    let file = CStr::from_bytes_until_nul(&path).ok().and_then(File::open);
    let Some(file) = file else { return false };
    // "pid (name) S ...": the name may hold anything, so the last parenthesis counts.
    let text = file.read(&mut text, 0);
    let Some(end) = text.iter().rposition(|&byte| byte == b')') else { return false };
    // The state is the third field, and the number of threads the twentieth: man 5 proc_pid_stat.
    let mut fields = text[end + 1..].split(|&byte| byte == b' ').skip(1);
    match (fields.next(), fields.nth(16)) {
        (Some(b"Z"), threads) => matches!(threads, None | Some(b"0" | b"1")),
        (state, _) => matches!(state, Some(b"X" | b"x")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::time::{Duration, Instant};

    #[test]
    fn this_process_is_alive_and_one_that_was_not_reaped_is_not() {
        assert!(alive(std::process::id()));
        assert!(!alive(u32::MAX));
        let mut child = Command::new("true").spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        // No wait collects its status, so it exists as a zombie.
        while !zombie(child.id()) {
            assert!(Instant::now() < deadline, "`true` does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(!alive(child.id()));
        child.wait().unwrap();
        assert!(!alive(child.id()));
    }

    /// The kernel shows it as a zombie.
    #[test]
    fn a_process_whose_first_thread_has_ended_is_alive_as_long_as_others_run() {
        // SAFETY: the child makes a thread and ends its own; it is killed, and waited for.
        let child = unsafe {
            let child = libc::fork();
            if child == 0 {
                std::thread::spawn(|| std::thread::sleep(Duration::from_secs(60)));
                libc::syscall(libc::SYS_exit, 0);
            }
            child.unsigned_abs()
        };
        let state = || {
            let text = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap();
            text.rsplit(") ").next().and_then(|text| text.chars().next())
        };
        let deadline = Instant::now() + Duration::from_secs(20);
        while state() != Some('Z') {
            assert!(Instant::now() < deadline, "the first thread does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(alive(child));
        // SAFETY: the child is this test's own and has not been waited for.
        unsafe { libc::kill(child.cast_signed(), libc::SIGKILL) };
        while alive(child) {
            assert!(Instant::now() < deadline, "the other thread does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
        // SAFETY: as above.
        unsafe { libc::waitpid(child.cast_signed(), std::ptr::null_mut(), 0) };
    }
}
