//! Stubs for machines without sections. Nothing calls them, since no thread is registered there
//! (`registration::adopt`).

use crate::percpu::word::Cell;
use std::sync::atomic::AtomicBool;

pub(crate) unsafe fn index<const INDEX: isize>(_: isize) -> u32 {
    section!(index)
}

pub(crate) unsafe fn take_first<const INDEX: isize>(_: isize, _: *const Cell, _: u64) -> bool {
    section!(take_first)
}

pub(crate) unsafe fn put_first<const INDEX: isize>(_: isize, _: *const Cell, _: u64) -> bool {
    section!(put_first)
}

pub(crate) unsafe fn spin_until_aborted(_: isize, _: &AtomicBool, _: u64) -> bool {
    section!(spin_until_aborted)
}
