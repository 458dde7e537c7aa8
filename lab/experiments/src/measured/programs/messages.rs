//! A storm of messages: groups of processes, in each of which every sender writes to every receiver, as
//! `hackbench` does it.

use super::super::trace::{Recorder, Trace};
use super::running::Size;
use std::io;
use std::time::{Duration, Instant};

const GROUPS: usize = 2;
/// Senders of a group, and receivers.
const PAIRS: usize = 10;
const BYTES: usize = 100;
/// Messages from each sender to each receiver.
const MESSAGES: usize = 100;
/// Seconds after which a process that still runs is ended by the kernel.
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
        let group = (0..PAIRS).map(|_| pair()).collect::<io::Result<Vec<_>>>()?;
        // Made before the processes, which must not allocate: the other threads may hold the heap's lock.
        let mut page = vec![0u8; BYTES];
        for [receiver, _] in &group {
            all.start(|| (0..PAIRS * messages).all(|_| receive(receiver.0, &mut page)))?;
        }
        for _ in 0..PAIRS {
            all.start(|| {
                (0..messages).all(|_| group.iter().all(|[_, sender]| send(sender.0, &page)))
            })?;
        }
        pairs.push(group);
    }
    all.succeed()
}

/// A descriptor that is closed when dropped.
struct Socket(libc::c_int);

impl Drop for Socket {
    fn drop(&mut self) {
        // SAFETY: our own descriptor, which is used no more.
        unsafe { libc::close(self.0) };
    }
}

fn pair() -> io::Result<[Socket; 2]> {
    let mut sockets = [0; 2];
    // SAFETY: the kernel writes two descriptors, for which there is room.
    let result = unsafe {
        libc::socketpair(
            libc::AF_UNIX,
            libc::SOCK_STREAM | libc::SOCK_CLOEXEC,
            0,
            sockets.as_mut_ptr(),
        )
    };
    if result == 0 { Ok(sockets.map(Socket)) } else { Err(io::Error::last_os_error()) }
}

/// A whole message; `false` if it cannot be.
fn send(socket: libc::c_int, message: &[u8]) -> bool {
    let mut sent = 0;
    while sent < message.len() {
        let rest = &message[sent..];
        // SAFETY: reads `rest`, which lives here.
        let count =
            unsafe { libc::send(socket, rest.as_ptr().cast(), rest.len(), libc::MSG_NOSIGNAL) };
        let Ok(count) = usize::try_from(count) else { return false };
        sent += count;
    }
    true
}

fn receive(socket: libc::c_int, message: &mut [u8]) -> bool {
    let mut received = 0;
    while received < message.len() {
        let rest = &mut message[received..];
        // SAFETY: writes `rest`, which lives here.
        let count = unsafe { libc::read(socket, rest.as_mut_ptr().cast(), rest.len()) };
        match usize::try_from(count) {
            Ok(count) if count > 0 => received += count,
            _ => return false,
        }
    }
    true
}

/// Processes that end with this value.
#[derive(Default)]
struct Children(Vec<libc::pid_t>);

impl Children {
    /// Starts a process that does `work` and ends.
    fn start(&mut self, work: impl FnOnce() -> bool) -> io::Result<()> {
        // SAFETY: the child makes system calls and writes its stack until it ends itself; it touches no
        // lock, and does not return from here.
        unsafe {
            match libc::fork() {
                -1 => return Err(io::Error::last_os_error()),
                0 => {
                    libc::alarm(SECONDS);
                    libc::_exit(if work() { 0 } else { 1 });
                }
                child => self.0.push(child),
            }
        }
        Ok(())
    }

    /// Waits until all have succeeded. When one fails, the others are ended.
    fn succeed(mut self) -> io::Result<()> {
        let deadline = Instant::now() + Duration::from_secs((SECONDS + 1).into());
        while let Some(&child) = self.0.last() {
            let mut status = 0;
            // SAFETY: our own child, which has not been waited for; the kernel writes `status`.
            match unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } {
                0 if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(1)),
                0 => return Err(io::ErrorKind::TimedOut.into()),
                -1 => return Err(io::Error::last_os_error()),
                _ => {
                    self.0.pop();
                    if status != 0 {
                        return Err(io::Error::other("a process could not send or receive"));
                    }
                }
            }
        }
        Ok(())
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        for &child in &self.0 {
            let mut status = 0;
            // SAFETY: our own children, which have not been waited for.
            unsafe {
                libc::kill(child, libc::SIGKILL);
                libc::waitpid(child, &mut status, 0);
            }
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
        all.start(|| receive(-1, &mut [0; 1])).unwrap();
        assert!(all.succeed().is_err());
    }
}
