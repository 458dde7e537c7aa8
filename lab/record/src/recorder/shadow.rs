//! The object at an address.
//!
//! ```text
//! address:  | 46 … 26 | 25 … 12 | 11 … 2 | 1 0 |
//!             span      page      granule
//! ```
//!
//! A span of 64 MiB has no leaf until the first object lies in it. So one load suffices for the stack, and for all
//! parts of a program without objects. A leaf has the object's number for each four bytes, and the number of objects
//! that touch each page, so that large blocks are searched by pages. It costs memory only for the places of objects.

use ledgerline_interpose::anonymous;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

const SPAN_BITS: u32 = 26;
const SPANS: usize = 1 << (47 - SPAN_BITS);
const GRANULES: usize = 1 << (SPAN_BITS - 2);
const PAGES: usize = 1 << (SPAN_BITS - 12);
/// Bytes of a page.
const PAGE: usize = 4096;

#[repr(C)]
struct Leaf {
    pages: [AtomicU32; PAGES],
    ids: [AtomicU32; GRANULES],
}

static LEAVES: [AtomicPtr<Leaf>; SPANS] = [const { AtomicPtr::new(std::ptr::null_mut()) }; SPANS];

#[inline(always)]
fn leaf(address: usize) -> Option<&'static Leaf> {
    let leaf = LEAVES.get(address >> SPAN_BITS)?.load(Ordering::Acquire);
    // SAFETY: a leaf is a mapping of zeros when it is stored, and stays for good.
    unsafe { leaf.as_ref() }
}

/// Returns the object at an address.
#[inline(always)]
pub(crate) fn at(address: usize) -> Option<u32> {
    let id = leaf(address)?.ids[address >> 2 & (GRANULES - 1)].load(Ordering::Relaxed);
    (id != 0).then_some(id)
}

/// Returns the first address from one on and before an end at which an object may lie: the next granule, or the next
/// page or span that has any.
fn next_place(address: usize, end: usize) -> Option<usize> {
    let mut address = address;
    while address < end {
        match leaf(address) {
            None => address = (address >> SPAN_BITS).checked_add(1)? << SPAN_BITS,
            Some(leaf) => {
                if leaf.pages[address / PAGE % PAGES].load(Ordering::Relaxed) != 0 {
                    return Some(address);
                }
                address = (address / PAGE + 1) * PAGE;
            }
        }
    }
    None
}

/// Returns the first object that touches the bytes from one address up to another, with the address at which it is
/// met.
pub(crate) fn first(from: usize, end: usize) -> Option<(usize, u32)> {
    // Programs have no addresses above. With a wrong size the search would take hours.
    let (mut address, end) = (from, end.min(SPANS << SPAN_BITS));
    while let Some(place) = next_place(address, end) {
        if let Some(id) = at(place) {
            return Some((place, id));
        }
        address = (place & !3) + 4;
    }
    None
}

/// Returns the last object that touches the bytes from one address up to another, which are few.
pub(crate) fn last(from: usize, end: usize) -> Option<u32> {
    (from >> 2..end >> 2).rev().find_map(|granule| at(granule << 2))
}

/// Notes an object; returns `false` if another lies there or there is no room for a leaf. The caller holds the lock.
pub(crate) fn claim(from: usize, end: usize, id: u32) -> bool {
    if end > SPANS << SPAN_BITS || first(from, end).is_some() {
        return false;
    }
    for slot in &LEAVES[from >> SPAN_BITS..=(end - 1) >> SPAN_BITS] {
        if slot.load(Ordering::Relaxed).is_null() && !make_leaf(slot) {
            return false;
        }
    }
    write(from, end, id, 1);
    true
}

/// Forgets an object that was claimed with the same bytes. The caller holds the lock.
pub(crate) fn release(from: usize, end: usize) {
    write(from, end, 0, u32::MAX);
}

/// Writes an object's number to its granules, and adds to its pages' counts.
fn write(from: usize, end: usize, id: u32, objects: u32) {
    for page in (from / PAGE)..=((end - 1) / PAGE) {
        if let Some(leaf) = leaf(page * PAGE) {
            leaf.pages[page % PAGES].fetch_add(objects, Ordering::Relaxed);
        }
    }
    for granule in (from >> 2)..=((end - 1) >> 2) {
        if let Some(leaf) = leaf(granule << 2) {
            leaf.ids[granule & (GRANULES - 1)].store(id, Ordering::Release);
        }
    }
}

fn make_leaf(slot: &AtomicPtr<Leaf>) -> bool {
    let Some(leaf) =
        anonymous(size_of::<Leaf>(), libc::PROT_READ | libc::PROT_WRITE, libc::MAP_NORESERVE)
    else {
        return false;
    };
    // Release, partner of the Acquire in `leaf`.
    slot.store(leaf.cast(), Ordering::Release);
    true
}
