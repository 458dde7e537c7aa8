//! Spare blocks: small ones that a group's code freed, kept in front of Python's allocator for its next ones.
//!
//! A spare block belongs to no account: it has no label, and its units went back to the account. It is large enough for all sizes of its class,
//! since hooks ask the allocator beneath for whole classes.
//!
//! X1: lists are read and written with the GIL alone, and hold blocks of the allocator beneath the hooks of obj and mem, which is one
//! and the same: otherwise nothing is kept.

use std::cell::Cell;
use std::ptr::{NonNull, null_mut};

/// Blocks of a class differ by less than so many bytes.
const STEP: usize = 16;
/// The largest block of the last class.
pub const MOST: usize = 512;
const CLASSES: usize = MOST / STEP + 1;
/// How many are kept of each class: of small ones, and of others.
const KEPT: u8 = 64;
const KEPT_LARGE: u8 = 16;
/// Classes up to this one are of small blocks.
const SMALL: usize = 8;

/// The spare blocks of an account.
pub struct Spare {
    first: [Cell<*mut u8>; CLASSES],
    count: [Cell<u8>; CLASSES],
}

/// Frees a block beneath the hooks.
type Free = fn(*mut u8);

struct Beneath(Cell<Option<Free>>);

// SAFETY: X1 (guarded by `tests/test_threads.py`).
unsafe impl Sync for Beneath {}

static BENEATH: Beneath = Beneath(Cell::new(None));

/// From here on blocks are kept.
pub fn begin(free: Free) {
    BENEATH.0.set(Some(free));
}

/// The class of a block of at most [`MOST`] bytes.
#[inline(always)]
fn class(size: usize) -> usize {
    size.div_ceil(STEP)
}

/// The bytes that a hook asks for: those of the whole class.
#[inline(always)]
pub fn whole(size: usize) -> usize {
    if size <= MOST { class(size).max(1) * STEP } else { size }
}

impl Spare {
    pub const fn new() -> Spare {
        Spare {
            first: [const { Cell::new(null_mut()) }; CLASSES],
            count: [const { Cell::new(0) }; CLASSES],
        }
    }

    /// Takes a spare block for `size` bytes, from 1 to [`MOST`].
    #[inline(always)]
    pub fn pop(&self, size: usize) -> Option<NonNull<u8>> {
        let class = class(size);
        let block = NonNull::new(self.first[class].get())?;
        // SAFETY: a spare block, whose first word is the address of the next (X1).
        self.first[class].set(unsafe { block.cast::<*mut u8>().read() });
        self.count[class].set(self.count[class].get() - 1);
        Some(block)
    }

    /// Keeps a block of `size` bytes, from 1 to [`MOST`], unless there are enough of its class.
    #[inline(always)]
    pub fn push(&self, size: usize, block: NonNull<u8>) -> bool {
        let class = class(size);
        let count = self.count[class].get();
        let most = if class <= SMALL { KEPT } else { KEPT_LARGE };
        if count >= most || BENEATH.0.get().is_none() {
            return false;
        }
        // SAFETY: the block is free, has 16 bytes at least and is aligned to 16 (X1).
        unsafe { block.cast::<*mut u8>().write(self.first[class].get()) };
        self.first[class].set(block.as_ptr());
        self.count[class].set(count + 1);
        true
    }

    /// Frees all of them.
    pub fn empty(&self) {
        let Some(free) = BENEATH.0.get() else { return };
        for class in 1..CLASSES {
            while let Some(block) = self.pop(class * STEP) {
                free(block.as_ptr());
            }
        }
    }
}
