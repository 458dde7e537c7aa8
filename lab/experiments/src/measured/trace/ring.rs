//! The memory through which the kernel hands over its records: a page that says where they begin and end,
//! and a ring of bytes.

use perf_event_open_sys::bindings::perf_event_mmap_page;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// A mapped ring, of which this is the only reader.
pub(super) struct Ring {
    base: *mut u8,
    page: usize,
    /// A power of two.
    size: usize,
}

// SAFETY: the mapping belongs to no thread; the kernel writes it, and only `drain`, which takes the ring
// by a unique reference, reads it.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps so many bytes, which are a power of two of pages.
    pub(super) fn map(event: BorrowedFd<'_>, size: usize) -> io::Result<Ring> {
        // SAFETY: sysconf takes a constant and has no preconditions.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                page + size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                event.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Ring { base: base.cast(), page, size })
    }

    /// Appends all records that are complete, and gives their room back.
    pub(super) fn drain(&mut self, into: &mut Vec<u8>) {
        let control: *mut perf_event_mmap_page = self.base.cast();
        // SAFETY: both words lie, aligned, in the mapped control page, which outlives these references; the
        // kernel accesses them as single words.
        let (head, tail) = unsafe {
            (
                AtomicU64::from_ptr(&raw mut (*control).data_head),
                AtomicU64::from_ptr(&raw mut (*control).data_tail),
            )
        };
        // Acquire: the records up to here were written before, by the kernel's barrier.
        let end = head.load(Ordering::Acquire);
        let start = tail.load(Ordering::Relaxed);
        let length = (end.wrapping_sub(start) as usize).min(self.size);
        let from = start as usize & (self.size - 1);
        let first = length.min(self.size - from);
        // SAFETY: `from + first` and `length - first` are at most the ring's size, which is mapped behind
        // the control page; the kernel does not write there before the tail has passed.
        let (upper, lower) = unsafe {
            let data = self.base.add(self.page);
            (
                std::slice::from_raw_parts(data.add(from), first),
                std::slice::from_raw_parts(data, length - first),
            )
        };
        into.extend_from_slice(upper);
        into.extend_from_slice(lower);
        // Release: the bytes were read before the kernel may write them again.
        tail.store(end, Ordering::Release);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which nobody uses any more.
        unsafe { libc::munmap(self.base.cast(), self.page + self.size) };
    }
}
