//! Charges blocks that another allocator made: that of a language's runtime, an arena, a library's pool.
//!
//! [`Alloc`](super::Alloc) is for a program whose allocator it becomes. A runtime that lets others hook its allocator
//! (CPython's `PyMem_SetAllocator`, a library's `malloc` and `free` callbacks) calls these functions beside each call of the
//! allocator beneath:
//!
//! | the allocator beneath         | the hook calls                                                          |
//! |-------------------------------|-------------------------------------------------------------------------|
//! | made a block                  | [`charge`] *after* it; on an error it frees the block and returns null  |
//! | is to free a block            | [`release`] *before* it                                                 |
//! | is to resize a block          | [`resize`] before it, then [`Resizing::moved`], or nothing if it failed |
//!
//! ```
//! use ledgerline::alloc::block;
//! use ledgerline::{Ledger, Limit};
//! use std::ptr::NonNull;
//!
//! let ledger = Ledger::new()?.into_static();
//! let tenant = ledger.root().create("acme")?;
//! # use std::alloc::{Layout, alloc, dealloc};
//! # let (malloc, free) = (|size| unsafe { alloc(Layout::from_size_align(size, 16).unwrap()) },
//! #     |block, size| unsafe { dealloc(block, Layout::from_size_align(size, 16).unwrap()) });
//! // A hook of `malloc`:
//! let block = NonNull::new(malloc(1000)).expect("there is memory");
//! tenant.scope(|| block::charge(block, 1000))?;
//! assert_eq!(tenant.precise(), 1000);
//! // A hook of `free`, which is told no size, on any thread:
//! assert_eq!(block::release(block), 1000);
//! free(block.as_ptr(), 1000);
//! assert_eq!(tenant.precise(), 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **A block has no header.** Its owner's number and its size stand [beside the heap](crate::shadow): four bytes for each 16
//! of it, in pages that cost memory where they are touched. So blocks start 16 bytes apart at least, at multiples of 16, as those
//! of every `malloc` and of `pymalloc` do. The free needs no size. The numbers are those of [`Alloc`](super::Alloc): 65 535
//! groups may hold blocks at a time, of either kind.
//!
//! **Some blocks are not accounted**: those made before the hooks were there, those made while no group was current, and
//! those for whose label there was no memory. [`release`] finds no label then and returns 0, and [`resize`] charges nothing.
//!
//! **The owner of a block** is as in [`alloc`](super): the thread's current group, or the default one. The block stays that
//! group's, whichever thread frees or grows it. The table there lists the fate of blocks whose group ends. At a limit the
//! policy decides, as for `Alloc`.
//!
//! **Prepaid units.** A runtime with a lock of its own (an interpreter lock) may charge a group for many blocks at once by
//! [`Group::try_charge_units`], hand them out under its lock, and label blocks by [`Owner::label`] and [`unlabel`]. Then the
//! units that [`unlabel`] returns are the runtime's to keep or to return.
//!
//! **Cost.** A pair of [`charge`] and [`release`] adds what `Alloc` adds, two loads of the shadow, and a call. `Owner::label`
//! and `unlabel` are two loads and a store each. All are async-signal-safe but for the first block in a GiB of addresses, and
//! none allocates.

mod label;

use super::growth::Growth;
use super::limit::{forget, last_refusal};
use super::owner::{self, Charged, UNOWNED};
use super::uncharge;
use crate::current;
use crate::current::slots::{self, Slot};
use crate::group::Group;
use crate::percpu::thread_cache;
use crate::stock::refusal::Refusal;
use crate::sync::Ordering;
use crate::table::handle::Packed;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU16;

/// The number by which labels name a group. It is the group's as long as a block is labelled with it, or units are charged to the
/// group.
#[derive(Clone, Copy, Debug)]
pub struct Owner {
    slot: &'static Slot,
    // Here, too, so that a label is written without a look at the slot.
    number: u16,
}

impl Owner {
    /// Returns the number of a group, which gets one if it has none. `None` for a group that was destroyed without one, in a
    /// process whose group it is not, and where 65 535 others have one. Costs some ten nanoseconds.
    pub fn of(group: Group<'static>) -> Option<Owner> {
        slots::of(group).ok().map(|slot| Owner { slot, number: slot.number() })
    }

    /// Returns the number: from 1 to 65 535, small ones first.
    #[inline(always)]
    pub fn number(self) -> u16 {
        self.number
    }

    /// Returns the group. `None` in a forked child that inherited blocks of a ledger that processes share: they belong to no group there.
    #[inline(always)]
    pub fn group(self) -> Option<Group<'static>> {
        self.slot.group()
    }

    /// Labels a block as this group's, with a size of at least one byte. The caller has charged the group for it. Says `false`
    /// where there is no memory for the label: then the units are still the caller's.
    #[inline(always)]
    #[must_use = "without a label the units are still the caller's"]
    pub fn label(self, block: NonNull<u8>, size: usize) -> bool {
        label::set(block.addr().get(), self.number, size as u64)
    }
}

/// The owner and the size that a block was labelled with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Labelled {
    /// The owner's number ([`Owner::number`]).
    pub number: u16,
    /// The bytes that were charged.
    pub size: usize,
}

impl Labelled {
    /// Returns the owner.
    #[inline(always)]
    pub fn owner(self) -> Owner {
        Owner { slot: slots::at(self.number), number: self.number }
    }

    #[inline(always)]
    fn of((number, size): (u16, u64)) -> Labelled {
        Labelled { number, size: size as usize }
    }
}

/// Returns the owner and the size of a block; `None` if it belongs to no group.
#[inline(always)]
pub fn labelled(block: NonNull<u8>) -> Option<Labelled> {
    label::get(block.addr().get()).map(Labelled::of)
}

/// Takes the label off a block, which belongs to no group from here on. Its units are the caller's to return.
#[inline(always)]
#[must_use = "the units of the block are the caller's from here on"]
pub fn unlabel(block: NonNull<u8>) -> Option<Labelled> {
    label::take(block.addr().get()).map(Labelled::of)
}

/// Charges a block that was just made, with `size` bytes or one if that is zero, to the thread's current group or to the default
/// one. Returns the group; `None` if the block belongs to no group.
///
/// # Errors
/// A limit says no, and so does the policy of the work. Nothing was charged, and the caller frees the block.
#[inline]
pub fn charge(block: NonNull<u8>, size: usize) -> Result<Option<Group<'static>>, Refusal> {
    let units = units_of(size);
    let group = current::get().group.map_or(0, Packed::raw);
    if group == 0 && !owner::has_default() {
        label::clear(block.addr().get());
        return Ok(None);
    }
    let number = AtomicU16::new(0);
    if group != 0 && units <= thread_cache::MOST && thread_cache::take(group, units, &number) {
        // (Relaxed: it is this function's.)
        let slot = slots::at(number.load(Ordering::Relaxed));
        return Ok(own(block, slot, units));
    }
    charge_otherwise(block, units)
}

#[cold]
#[inline(never)]
fn charge_otherwise(block: NonNull<u8>, units: u64) -> Result<Option<Group<'static>>, Refusal> {
    match owner::take(units) {
        Some(slot) => Ok(own(block, slot, units)),
        None => granted(block, owner::charge(units), units),
    }
}

/// As [`charge`], to a group that the caller names.
///
/// # Errors
/// As `charge`.
pub fn charge_to(
    group: Group<'static>,
    block: NonNull<u8>,
    size: usize,
) -> Result<Option<Group<'static>>, Refusal> {
    let units = units_of(size);
    let charged = if owner::is_on() { owner::charge_from(group, units) } else { Charged::Nobody };
    granted(block, charged, units)
}

fn granted(
    block: NonNull<u8>,
    charged: Charged,
    units: u64,
) -> Result<Option<Group<'static>>, Refusal> {
    match charged {
        Charged::To(slot) => Ok(own(block, slot, units)),
        Charged::Nobody => {
            label::clear(block.addr().get());
            Ok(None)
        }
        Charged::Refused => Err(refusal()),
    }
}

/// Labels a block whose owner was charged; without memory for that it belongs to no group.
#[inline(always)]
fn own(block: NonNull<u8>, slot: &'static Slot, units: u64) -> Option<Group<'static>> {
    if label::set(block.addr().get(), slot.number(), units) {
        return slot.group();
    }
    uncharge(slot, units);
    UNOWNED.fetch_add(1, Ordering::Relaxed);
    None
}

/// Credits a block's owner, before the block is freed: the next thread may get its place at once. Returns the bytes; 0 if
/// it belongs to no group.
#[inline]
pub fn release(block: NonNull<u8>) -> usize {
    let Some((number, units)) = label::take(block.addr().get()) else { return 0 };
    if units > thread_cache::MOST || !thread_cache::put(number, units) {
        let slot = slots::at(number);
        if !owner::put(slot, units) {
            uncharge(slot, units);
        }
    }
    units as usize
}

/// Charges a block's owner for what a new size adds, before the allocator beneath resizes it. The old label is taken off,
/// since another thread may get the old place before the allocator returns.
///
/// # Errors
/// As [`charge`]; then the block is as before, and its owner is not to be resized beyond its size.
pub fn resize(block: NonNull<u8>, new_size: usize) -> Result<Resizing, Refusal> {
    let address = block.addr().get();
    let Some((number, old)) = label::get(address) else { return Ok(Resizing { held: None }) };
    let (slot, new) = (slots::at(number), units_of(new_size));
    let growth = match slot.group() {
        Some(_) => Some(Growth::charge(slot, old, new).ok_or_else(refusal)?),
        None => None,
    };
    label::clear(address);
    Ok(Resizing { held: Some(Held { address, slot, old, new, growth }) })
}

/// A block that the allocator beneath resizes. If this is dropped, it failed: the block is as before.
#[must_use = "a resize that is dropped has failed"]
pub struct Resizing {
    held: Option<Held>,
}

impl std::fmt::Debug for Resizing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sizes = self.held.as_ref().map(|held| (held.old, held.new));
        f.debug_struct("Resizing").field("sizes", &sizes).finish()
    }
}

struct Held {
    address: usize,
    slot: &'static Slot,
    old: u64,
    new: u64,
    /// `None` for an inherited block that belongs to no group here.
    growth: Option<Growth>,
}

impl Resizing {
    /// The block has its new size, at this place, the old one or another.
    pub fn moved(mut self, block: NonNull<u8>) {
        let Some(Held { slot, new, growth, .. }) = self.held.take() else { return };
        let owner = match &growth {
            Some(growth) => growth.owner(),
            None => Some(slot),
        };
        let labelled = owner.map(|owner| (owner, owner.number()));
        let labelled =
            labelled.is_none_or(|(_, number)| label::set(block.addr().get(), number, new));
        if let Some(growth) = growth {
            growth.settle();
        }
        if !labelled && let Some(owner) = owner {
            uncharge(owner, new);
            UNOWNED.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Resizing {
    fn drop(&mut self) {
        let Some(Held { address, slot, old, growth, .. }) = self.held.take() else { return };
        // The place had a label before, so there is memory for it.
        let labelled = label::set(address, slot.number(), old);
        debug_assert!(labelled);
        if let Some(growth) = growth {
            growth.undo();
        }
        forget();
    }
}

/// Returns the units of a block. It has one at least, which keeps its owner's number in use.
#[inline(always)]
fn units_of(size: usize) -> u64 {
    size.max(1) as u64
}

/// The refusal that was noted for this thread.
#[cold]
fn refusal() -> Refusal {
    last_refusal().expect("a charge that was refused noted why")
}
