//! The allocators that accounting is compared with: designs of other projects, each over the system's allocator.
//!
//! `cap`, `stats_alloc` and `peak_alloc` are the crates of these names. Two designs are reimplemented here:
//! * [`Tracking`] is the design of the crate `tracking-allocator` 0.4, whose licence the command cannot bear: a word
//!   with the group before each block, a thread-local stack of groups that is taken while the tracker runs, and a
//!   tracker behind a virtual call. The tracker here adds to a counter of the group, like Vector's did.
//! * [`Header`] is the design of RisingWave's `TaskLocalAlloc` (risingwave#4785): eight bytes before each block with
//!   the address of a counter, which a thread-local variable holds for the task that is polled.

use crate::measure::padded::Padded;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Returns the layout of a block with a word before it, and the offset of the block.
#[inline(always)]
fn behind_a_word(layout: Layout) -> (Layout, usize) {
    let (with_word, offset) =
        Layout::new::<usize>().extend(layout).expect("a block of this benchmark is small");
    (with_word.pad_to_align(), offset)
}

/// The interface that [`Tracking`] calls for each block.
trait Tracker: Sync {
    fn allocated(&self, address: usize, size: usize, group: usize);
    fn deallocated(&self, address: usize, size: usize, group: usize, current: usize);
}

const GROUPS: usize = 4;

/// A counter for each group.
struct Counting([Padded<AtomicUsize>; GROUPS]);

impl Tracker for Counting {
    fn allocated(&self, _address: usize, size: usize, group: usize) {
        self.0[group % GROUPS].fetch_add(size, Ordering::Relaxed);
    }

    fn deallocated(&self, _address: usize, size: usize, group: usize, _current: usize) {
        self.0[group % GROUPS].fetch_sub(size, Ordering::Relaxed);
    }
}

static TRACKING: AtomicBool = AtomicBool::new(true);

thread_local! {
    /// The groups that the thread entered; the last is the current one.
    static STACK: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// The design described in the module's documentation.
pub(super) struct Tracking {
    tracker: Box<dyn Tracker>,
}

impl Tracking {
    pub(super) fn new() -> Tracking {
        Tracking { tracker: Box::new(Counting(std::array::from_fn(|_| Padded::default()))) }
    }

    /// Makes a group current in this thread.
    pub(super) fn enter(group: usize) {
        STACK.with_borrow_mut(|stack| *stack = vec![group]);
    }

    /// Calls the tracker, unless it is being called already.
    #[inline(always)]
    fn tell(&self, act: impl FnOnce(&dyn Tracker, usize)) {
        if TRACKING.load(Ordering::Relaxed) {
            let _ = STACK.try_with(|stack| {
                if let Ok(stack) = stack.try_borrow_mut() {
                    act(&*self.tracker, stack.last().copied().unwrap_or(1));
                }
            });
        }
    }
}

// SAFETY: blocks are the system's, each with a word before it.
unsafe impl GlobalAlloc for Tracking {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let (with_word, offset) = behind_a_word(layout);
        // SAFETY: not empty, and the word lies within the block.
        unsafe {
            let start = System.alloc(with_word);
            if start.is_null() {
                return start;
            }
            start.cast::<usize>().write(0);
            let block = start.add(offset);
            self.tell(|tracker, group| {
                start.cast::<usize>().write(group);
                tracker.allocated(block.addr(), layout.size(), group);
            });
            block
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let (with_word, offset) = behind_a_word(layout);
        // SAFETY: the block came from `alloc`.
        unsafe {
            let start = block.sub(offset);
            let group = start.cast::<usize>().read();
            System.dealloc(start, with_word);
            if group != 0 {
                self.tell(|tracker, current| {
                    tracker.deallocated(block.addr(), layout.size(), group, current);
                });
            }
        }
    }
}

thread_local! {
    static TASK: Cell<*const AtomicUsize> = const { Cell::new(std::ptr::null()) };
}

/// The design described in the module's documentation.
pub(super) struct Header;

impl Header {
    /// Makes a counter current in this thread.
    pub(super) fn enter(counter: &'static AtomicUsize) {
        TASK.set(counter);
    }
}

// SAFETY: blocks are the system's, each with a word before it.
unsafe impl GlobalAlloc for Header {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let (with_word, offset) = behind_a_word(layout);
        let counter = TASK.get();
        // SAFETY: a counter is never freed; the block is not empty, and the word lies within it.
        unsafe {
            if let Some(counter) = counter.as_ref() {
                counter.fetch_add(layout.size(), Ordering::Relaxed);
            }
            let start = System.alloc(with_word);
            if start.is_null() {
                return start;
            }
            start.cast::<*const AtomicUsize>().write(counter);
            start.add(offset)
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let (with_word, offset) = behind_a_word(layout);
        // SAFETY: the block came from `alloc`, and its counter is never freed.
        unsafe {
            let start = block.sub(offset);
            if let Some(counter) = start.cast::<*const AtomicUsize>().read().as_ref() {
                counter.fetch_sub(layout.size(), Ordering::Relaxed);
            }
            System.dealloc(start, with_word);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_designs_count_what_is_live_and_credit_the_owner() {
        let layout = Layout::from_size_align(100, 8).unwrap();
        let tracking = Tracking::new();
        static COUNTER: AtomicUsize = AtomicUsize::new(0);
        static OTHER: AtomicUsize = AtomicUsize::new(0);
        Tracking::enter(2);
        Header::enter(&COUNTER);
        // SAFETY: each block is freed in its layout, once.
        unsafe {
            let blocks = [tracking.alloc(layout), Header.alloc(layout)];
            assert_eq!(COUNTER.load(Ordering::Relaxed), 100);
            Tracking::enter(3);
            Header::enter(&OTHER);
            tracking.dealloc(blocks[0], layout);
            Header.dealloc(blocks[1], layout);
        }
        assert_eq!(
            [&COUNTER, &OTHER].map(|counter| counter.load(Ordering::Relaxed)),
            [0, 0],
            "the owner was credited"
        );
    }
}
