//! A process, distinguished from a later one with the same number.

use crate::os;
use std::fs;

/// A process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process {
    /// Its number in its own PID namespace.
    pub(super) pid: u32,
    /// Its start time in the kernel's ticks; 0 if unknown.
    pub(super) start: u64,
    /// The number of its PID namespace; 0 if unknown.
    pub(super) namespace: u64,
}

impl Process {
    /// Returns the calling process.
    pub(super) fn own() -> Process {
        let pid = std::process::id();
        let start = state_and_start(pid).map_or(0, |(_, start)| start);
        Process { pid, start, namespace: own_namespace() }
    }

    /// Returns whether it may still run. A process in another namespace cannot be checked from here.
    pub(super) fn may_run(self) -> bool {
        if self.namespace == 0 || self.namespace != own_namespace() {
            return true;
        }
        match state_and_start(self.pid) {
            Some((state, start)) => !b"ZXx".contains(&state) && start == self.start,
            // There is no /proc, or it hides others' processes.
            None => fs::metadata("/proc/self").is_err() || os::is_process(self.pid),
        }
    }
}

fn own_namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| os::number_of(&namespace))
}

/// Returns a process's state and start time.
fn state_and_start(pid: u32) -> Option<(u8, u64)> {
    let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
    // "pid (name) S ...": the name may hold anything, so the last parenthesis counts.
    let rest = &text[text.iter().rposition(|&byte| byte == b')')? + 1..];
    let mut fields = std::str::from_utf8(rest).ok()?.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    // The 22nd field of all; the state is the third.
    Some((state, fields.nth(18)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_runs_until_it_ends_and_one_with_its_number_is_another() {
        let own = Process::own();
        assert!(own.may_run() && own.start > 0 && own.namespace > 0);
        assert!(!Process { start: own.start + 1, ..own }.may_run());
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let (_, start) = state_and_start(child.id()).unwrap();
        let process = Process { pid: child.id(), start, ..own };
        assert!(process.may_run() && start >= own.start);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!process.may_run());
        // Nothing is known about a process of another namespace.
        assert!(Process { namespace: own.namespace + 1, ..process }.may_run());
    }
}
