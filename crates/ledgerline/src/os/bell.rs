//! A bell: a descriptor that becomes readable when it is rung. It is Linux's eventfd.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Bell(OwnedFd);

impl Bell {
    pub(crate) fn new() -> io::Result<Bell> {
        // SAFETY: eventfd takes no pointers.
        let bell = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if bell < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel just made the descriptor, and no other code has it.
        Ok(Bell(unsafe { OwnedFd::from_raw_fd(bell) }))
    }

    /// Returns the number by which [`ring_number`](Self::ring_number) finds it.
    pub(crate) fn number(&self) -> i32 {
        self.0.as_raw_fd()
    }

    /// Makes the bell with that number readable; the bell must live. Preserves `errno`, since the caller may be a signal
    /// handler or `malloc`.
    pub(crate) fn ring_number(number: i32) {
        let one = 1u64;
        // SAFETY: writes eight bytes of ours to a descriptor; a full one is readable already. `errno` is the thread's own.
        unsafe {
            let errno = libc::__errno_location();
            let before = *errno;
            libc::write(number, (&raw const one).cast(), size_of::<u64>());
            *errno = before;
        }
    }

    /// Returns whether it was rung since the previous call.
    pub(crate) fn was_rung(&self) -> bool {
        let mut rung = 0u64;
        let size = size_of::<u64>();
        // SAFETY: reads into eight bytes of ours; the descriptor does not block.
        let read = unsafe { libc::read(self.number(), (&raw mut rung).cast(), size) };
        read == size as isize
    }

    /// Waits until it is readable; returns `false` when the time is up.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> io::Result<bool> {
        let milliseconds = timeout.map_or(-1, |timeout| {
            libc::c_int::try_from(timeout.as_nanos().div_ceil(1_000_000))
                .unwrap_or(libc::c_int::MAX)
        });
        let mut poll = libc::pollfd { fd: self.number(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, which lives through the call.
        match unsafe { libc::poll(&raw mut poll, 1, milliseconds) } {
            -1 => Err(io::Error::last_os_error()),
            ready => Ok(ready > 0),
        }
    }
}

impl From<Bell> for OwnedFd {
    fn from(bell: Bell) -> OwnedFd {
        bell.0
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
