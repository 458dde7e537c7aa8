//! For systems without an eventfd.

use std::io;
use std::time::Duration;

/// A bell that cannot exist.
#[derive(Debug)]
pub(crate) enum Bell {}

impl Bell {
    pub(crate) fn new() -> io::Result<Bell> {
        Err(crate::os::lacks(
            "a watch needs the eventfd of Linux, which is not there",
            "ask `Group::events` from time to time",
        ))
    }

    pub(crate) fn number(&self) -> i32 {
        match *self {}
    }

    pub(crate) fn ring_number(_: i32) {}

    pub(crate) fn was_rung(&self) -> bool {
        match *self {}
    }

    pub(crate) fn wait(&self, _: Option<Duration>) -> io::Result<bool> {
        match *self {}
    }
}

#[cfg(unix)]
impl std::os::fd::AsFd for Bell {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        match *self {}
    }
}
