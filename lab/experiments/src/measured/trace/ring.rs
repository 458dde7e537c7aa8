//! The memory through which the kernel passes its records: a page with their begin and end, and a ring of bytes.

use memmap2::{MmapOptions, MmapRaw};
use perf_event_open_sys::bindings::perf_event_mmap_page;
use rustix::param::page_size;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// A mapped ring. This is its only reader.
pub(super) struct Ring {
    map: MmapRaw,
    page: usize,
    /// Its size, a power of two.
    size: usize,
}

impl Ring {
    /// Maps a ring of `size` bytes, a power of two of pages.
    pub(super) fn map(event: BorrowedFd<'_>, size: usize) -> io::Result<Ring> {
        let page = page_size();
        let map = MmapOptions::new().len(page + size).map_raw(event.as_raw_fd())?;
        Ok(Ring { map, page, size })
    }

    /// Appends all complete records, and releases their space.
    pub(super) fn drain(&mut self, into: &mut Vec<u8>) {
        let control: *mut perf_event_mmap_page = self.map.as_mut_ptr().cast();
        // SAFETY: both words lie, aligned, in the mapped control page, which outlives these references; the
        // kernel accesses them as single words.
        let (head, tail) = unsafe {
            (
                AtomicU64::from_ptr(&raw mut (*control).data_head),
                AtomicU64::from_ptr(&raw mut (*control).data_tail),
            )
        };
        // Acquire: pairs with the kernel's barrier, so the records up to here are visible.
        let end = head.load(Ordering::Acquire);
        let start = tail.load(Ordering::Relaxed);
        let length = (end.wrapping_sub(start) as usize).min(self.size);
        let from = start as usize & (self.size - 1);
        let first = length.min(self.size - from);
        // SAFETY: `from + first` and `length - first` are at most the ring's size, which is mapped behind
        // the control page; the kernel does not write there before the tail has passed.
        let (upper, lower) = unsafe {
            let data = self.map.as_ptr().add(self.page);
            (
                std::slice::from_raw_parts(data.add(from), first),
                std::slice::from_raw_parts(data, length - first),
            )
        };
        into.extend_from_slice(upper);
        into.extend_from_slice(lower);
        // Release: the bytes are read before the kernel may overwrite them.
        tail.store(end, Ordering::Release);
    }
}
