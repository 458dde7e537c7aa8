//! A storm of messages: groups of processes, in each of which every sender writes to every receiver, like `hackbench`.

use super::super::trace::{Recorder, Trace};
use super::running::Size;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

const GROUPS: usize = 2;
/// Senders of a group, and receivers.
const PAIRS: usize = 10;
const BYTES: usize = 100;
/// Messages from each sender to each receiver.
const MESSAGES: usize = 100;
/// Seconds after which the kernel ends a process that still runs.
const SECONDS: u32 = 15;

pub(super) fn record(cpus: &[usize], size: Size) -> Result<Trace, String> {
    let (groups, messages) = if size.quick { (1, 5) } else { (GROUPS, MESSAGES) };
    let mut recorder = Recorder::begin(cpus)?;
    for _ in 0..size.passes {
        recorder
            .pass(|| storm(groups, messages))
            .map_err(|error| format!("the storm of messages failed: {error}"))?;
    }
    Ok(recorder.end())
}

fn storm(groups: usize, messages: usize) -> io::Result<()> {
    let mut all = Children::default();
    let mut pairs = Vec::new();
    for _ in 0..groups {
        let group = (0..PAIRS).map(|_| UnixStream::pair()).collect::<io::Result<Vec<_>>>()?;
        let mut page = [0; BYTES];
        for mut receiver in group.iter().map(|(receiver, _)| receiver) {
            all.start(|| (0..PAIRS * messages).all(|_| receiver.read_exact(&mut page).is_ok()))?;
        }
        let send = |mut sender: &UnixStream| sender.write_all(&page).is_ok();
        for _ in 0..PAIRS {
            all.start(|| (0..messages).all(|_| group.iter().all(|(_, sender)| send(sender))))?;
        }
        pairs.push(group);
    }
    all.succeed()
}

/// Processes that are killed on drop.
#[derive(Default)]
struct Children(Vec<Pid>);

impl Children {
    /// Starts a process that does `work` and ends.
    fn start(&mut self, work: impl FnOnce() -> bool) -> io::Result<()> {
        // SAFETY: the child makes system calls and writes its stack until it ends itself; it allocates nothing, since
        // other threads may hold the heap's lock, and does not return from here.
        let child = unsafe {
            match libc::fork() {
                0 => {
                    libc::alarm(SECONDS);
                    libc::_exit(if work() { 0 } else { 1 });
                }
                child => child,
            }
        };
        self.0.push(Pid::from_raw(child.max(0)).ok_or_else(io::Error::last_os_error)?);
        Ok(())
    }

    /// Waits until all have succeeded. If one fails, the others are killed.
    fn succeed(mut self) -> io::Result<()> {
        let deadline = Instant::now() + Duration::from_secs((SECONDS + 1).into());
        while let Some(&child) = self.0.last() {
            match waitpid(Some(child), WaitOptions::NOHANG)? {
                Some((_, status)) => {
                    self.0.pop();
                    if status.exit_status() != Some(0) {
                        return Err(io::Error::other("a process could not send or receive"));
                    }
                }
                None if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(1)),
                None => return Err(io::ErrorKind::TimedOut.into()),
            }
        }
        Ok(())
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        for &child in &self.0 {
            // These are our own children, which have not been waited for.
            let _ = kill_process(child, Signal::KILL);
            let _ = waitpid(Some(child), WaitOptions::empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storm_ends_and_leaves_nobody() {
        storm(1, 3).unwrap();
        let mut all = Children::default();
        all.start(|| false).unwrap();
        let (mut receiver, sender) = UnixStream::pair().unwrap();
        drop(sender);
        all.start(|| receiver.read_exact(&mut [0; 1]).is_ok()).unwrap();
        assert!(all.succeed().is_err());
    }
}
