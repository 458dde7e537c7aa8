//! A global allocator that charges every allocation to the current group.
//!
//! ```
//! use ledgerline::{Alloc, Ledger};
//!
//! #[global_allocator]
//! static ALLOC: Alloc = Alloc::system();
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let ledger = Ledger::new()?.into_static();
//!     let query = ledger.root().create("q42")?;
//!     let rows = query.scope(|| vec![0u8; 1 << 20]); // charged to q42
//!     assert_eq!(query.precise(), 1 << 20);
//!     std::thread::spawn(move || drop(rows)).join().unwrap(); // credited to q42, from any thread
//!     assert_eq!(query.precise(), 0);
//!     Ok(())
//! }
//! ```
//!
//! **Who is charged.** A block is charged to the group that is current ([`current`]) in the thread that allocates it.
//! The charge is the number of bytes that the program asks for (the layout's size). The block stays charged to that
//! group, regardless of which thread holds, grows or frees it. `realloc` charges the difference to the owner and
//! resizes in place where the allocator beneath can. Without a current group the block is not accounted, unless there
//! is a default ([`set_default`]).
//!
//! | what ends | what becomes of its blocks |
//! |---|---|
//! | the scope or task in which a group was current | they stay charged to the group until they are freed |
//! | the group ([`destroy`](crate::Group::destroy)) | they stay charged to its ancestors; [`Ledger::leaks`](crate::Ledger::leaks) lists them; a free is credited as before. A block that grows is charged to the nearest existing ancestor from then on |
//! | the group, while it is still current somewhere | new blocks are charged to the nearest existing ancestor. They are charged to the root if another group has the row and blocks, or if the group never had a block |
//! | the process's own image, in a forked child | for a ledger in memory, the child has its own copy, including the blocks. For a ledger in a file, inherited blocks are not accounted in the child: freeing them touches no account. The child is charged for nothing until it [attaches](crate::Ledger::attach_process) and makes a group of its own current |
//!
//! **At a limit** an allocation is granted over the limit, and the work is marked. A
//! [`Group::catch`](crate::Group::catch) or [`catch_future`](crate::Group::catch_future) ends at its next
//! [`checkpoint`], poll or end, together with all parts that it handed to other threads. Beyond an allowance each
//! allocation is slowed down. Outside of a `catch` nothing is ended. The root's limit holds: an allocation that
//! exceeds it waits up to a second while another group is over its own limit. Then it returns null and prints a line
//! to standard error. Under [`Policy::NULL`] every allocation that does not fit returns null, and [`last_refusal`]
//! returns the reason.
//!
//! Nothing is reclaimed: a reclaimer is foreign code, which may hold the very lock that the allocating code holds. A
//! program that wants to reclaim charges a large buffer by [`Group::request`](crate::Group::request) first. For the
//! same reason this allocator allocates nothing that is charged and calls no code of the program's.
//!
//! **A panicking thread** is not charged for its allocations, except for those that its thread cache serves.
//!
//! **The library's own allocations are not accounted**, and no limit refuses them: the text of a refusal, a place in
//! a queue, a snapshot, the list of a shared charge, the end of a group. The same holds for the allocations of a
//! reclaimer, for any charge. A thread inside a full group can inspect it, get a refusal, wait for it and destroy it.
//!
//! **Owners stand in a [shadow](crate::region::shadow)**: no header, and no byte, is added to a block. Two bytes
//! beside each 32 of heap name the block's owner, so 65 535 groups may hold blocks at a time. A group keeps its
//! number until it is destroyed and holds nothing. Blocks of the next group are charged to the nearest ancestor that
//! has a number. The group's own limits and its own `catch` do not see them, and [`counts`] counts them. Requests are
//! passed on with at least 17 bytes and an alignment of at least 16, which costs nothing with glibc, whose smallest
//! block is that large.
//!
//! **Free blocks** that the allocator beneath keeps are not known here, and in no account.
//!
//! **Order.** A charge comes before the program has the block, and a credit before the free. For an instant the
//! allocator beneath may have blocks that are credited already, or not charged yet: a block that [`Policy::NULL`]
//! refuses goes back at once.
//!
//! **Cost.** A pair of `alloc` and `dealloc` costs the pair beneath, two additions to a word of the thread's own, and
//! one load and two stores of shadow. The word is the thread's *thread cache*: up to 64 KiB of one group that the thread
//! carries along. `ledgerline bench alloc` measures it. On a virtual EPYC (Zen 5) of 2026 it adds 1.8 to 2.3 ns to a
//! pair of 64 bytes and 2.1 to 2.3 ns to mixed ones of up to 4 KiB, on one thread and on two.
//!
//! If the thread cache is another group's or has too few units, the units come from the CPU's cell, at two to five
//! nanoseconds more. A thread cache changes to the current group after 128 allocations that it did not serve, and after up
//! to 2048 if it served few in between. These costs hold as long as the cell has the units: for small blocks it holds a
//! sixteenth of the group's usage or 32 KiB, and for blocks above 16 KiB it has room for several, if all levels allow as
//! much idle stock. Otherwise, and close to a limit, a pair may walk to the root's totals, which takes a quarter of a
//! microsecond. The first allocation of each scope that the thread cache does
//! not serve finds the group's number in some ten nanoseconds: tasks that alternate between 64 groups, with eight
//! blocks each, pay 8 ns a pair in all. Threads beyond a thousand have no thread cache, nor has any thread on a machine
//! without restartable sequences, or for a ledger in a file.
//!
//! **Addresses.** On x86-64 a block beyond 47 bits ends the process with a message. Linux gives out such addresses
//! only to an allocator that asks for them explicitly.
//!
//! This allocator works before `main` and in destructors of threads: its thread-local variables are constants without
//! a destructor. It is as async-signal-safe as the allocator beneath, and most allocators are not.

pub mod block;
mod caught;
mod growth;
#[cfg(all(rseq, test))]
mod held;
mod limit;
mod owner;

use crate::current;
pub use crate::current::refused::checkpoint;
use crate::current::slots::{self, Slot};
use crate::percpu::thread_cache;
#[cfg(target_arch = "x86_64")]
use crate::region::shadow::ADDRESS_BITS;
use crate::region::shadow::Shadow;
pub use crate::scope::{OnLimit, Policy};
use crate::sync::Ordering;
use crate::table::handle::Packed;
pub use caught::Catching;
use growth::Growth;
use limit::forget;
pub use limit::last_refusal;
use owner::{Charged, UNOWNED};
pub use owner::{set_accounting, set_default};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::AtomicU16;

/// The owner's number of the block that starts in each window. Zero if no block starts there or the block has no
/// owner.
static OWNERS: Shadow<AtomicU16> = Shadow::new();

/// Minimum size of a request to the allocator beneath, so that blocks start a window apart: their addresses are
/// multiples of `ALIGN_LEAST`, and more than that apart.
const SIZE_LEAST: usize = 17;
const ALIGN_LEAST: usize = 16;
const _: () = assert!(SIZE_LEAST.next_multiple_of(ALIGN_LEAST) == crate::region::shadow::WINDOW);

/// A global allocator that charges its blocks to the current group; see [the module](self).
///
/// `A` is the allocator beneath: the system's, mimalloc, jemalloc or another.
///
/// ```
/// use ledgerline::Alloc;
/// use std::alloc::System;
///
/// #[global_allocator]
/// static ALLOC: Alloc<System> = Alloc::new(System); // or Alloc::new(mimalloc::MiMalloc)
/// # fn main() {}
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Alloc<A = System> {
    beneath: A,
}

impl Alloc {
    /// Creates an allocator over the system's.
    pub const fn system() -> Alloc {
        Alloc::new(System)
    }
}

impl<A> Alloc<A> {
    /// Creates an allocator over another one. Its blocks must come back through this one.
    pub const fn new(beneath: A) -> Alloc<A> {
        Alloc { beneath }
    }
}

/// Counters of unusual decisions of the allocator, since the process started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Blocks that were charged to an ancestor because 65 535 other groups had numbers.
    pub above: u64,
    /// Blocks without an owner although a group was current: the group was another process's (in a forked child), or
    /// there was no memory for the shadow.
    pub unowned: u64,
}

/// Returns the counters of the allocator's unusual decisions.
pub fn counts() -> Counts {
    // Relaxed: the numbers are independent.
    let [above, unowned] = [&owner::ABOVE, &UNOWNED].map(|count| count.load(Ordering::Relaxed));
    Counts { above, unowned }
}

/// Returns the layout to request from the allocator beneath. A free computes the same.
#[inline(always)]
fn spaced(layout: Layout) -> Layout {
    let (size, align) = (layout.size().max(SIZE_LEAST), layout.align().max(ALIGN_LEAST));
    // No machine has so much memory, but the layout is valid.
    if size > isize::MAX as usize - ALIGN_LEAST {
        return layout;
    }
    // SAFETY: the alignment is a power of two. The size, rounded up to it, is no larger than isize::MAX: this holds
    // for the program's layout, and for smaller sizes with an alignment of 16.
    unsafe { Layout::from_size_align_unchecked(size, align) }
}

/// Like [`spaced`], for a size that the fast half of a charge takes and an alignment of at most `ALIGN_LEAST`.
#[inline(always)]
fn spaced_small(size: usize) -> Layout {
    // SAFETY: 16 is a power of two, and the size is far below isize::MAX.
    unsafe { Layout::from_size_align_unchecked(size.max(SIZE_LEAST), ALIGN_LEAST) }
}

/// Returns units to the group of a slot.
#[cold]
#[inline(never)]
fn uncharge(slot: &Slot, units: u64) {
    if let Some(group) = slot.group() {
        // An audit allocates, and that must not be charged.
        current::unattributed(|| group.uncharge_units(units));
    }
}

/// Checks a block that the allocator beneath returned, or null. On x86-64 no block lies beyond the shadow, so a free
/// need not check. On arm64 an allocator may tag addresses in bits beyond those of the shadow; such blocks are not
/// accounted.
#[inline(always)]
fn within(block: *mut u8) -> *mut u8 {
    #[cfg(target_arch = "x86_64")]
    {
        let beyond: usize;
        // SAFETY: shifts a register. Written in assembly since a compiler that sees the bound keeps it in a register
        // over the call beneath, which costs the fast path half a nanosecond.
        unsafe {
            std::arch::asm!(
                "shr {beyond}, {bits}",
                beyond = inout(reg) block.addr() => beyond,
                bits = const ADDRESS_BITS,
                options(pure, nomem, nostack),
            );
        }
        if beyond != 0 {
            stop(block);
        }
    }
    block
}

/// Reports a block beyond the shadow and aborts. Linux gives out such addresses only on explicit request, and only on
/// machines that have them.
#[cfg(target_arch = "x86_64")]
#[cold]
#[inline(never)]
fn stop(block: *mut u8) -> ! {
    current::unattributed(|| {
        eprintln!(
            "ledgerline: the allocator beneath gave a block at {block:p}: more than {ADDRESS_BITS} bits"
        );
    });
    std::process::abort()
}

/// Returns the entry of a block that this allocator gave.
///
/// # Safety
/// This allocator gave the block.
#[inline(always)]
unsafe fn entry_of(block: *mut u8) -> Option<&'static AtomicU16> {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: `within` saw it, or it had an entry. Guarded by `a_block_beyond_the_addresses_of_a_process_stops_it`.
    return unsafe { OWNERS.entry_within(block.addr()) };
    #[cfg(not(target_arch = "x86_64"))]
    OWNERS.entry(block.addr())
}

/// Clears the owner of a new block. Most entries are clear already.
fn disown(block: *mut u8) {
    if let Some(entry) = OWNERS.entry(block.addr())
        && entry.load(Ordering::Relaxed) != 0
    {
        entry.store(0, Ordering::Relaxed);
    }
}

/// Notes the owner of a new block. Without memory for the shadow the block is not accounted.
fn own(block: *mut u8, slot: &Slot, units: usize) {
    match slots::make(&OWNERS, block.addr()) {
        Some(entry) => entry.store(slot.number(), Ordering::Relaxed),
        None => {
            uncharge(slot, units as u64);
            UNOWNED.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl<A: GlobalAlloc> Alloc<A> {
    /// Gets a block and charges it. The fast path has few instructions and registers, since they are all of its cost.
    /// So it gets a small block first, and returns it if the charge is refused: then only the size is kept over the
    /// call beneath.
    #[inline(always)]
    fn obtain(&self, layout: Layout, get: impl Fn(&A, Layout) -> *mut u8) -> *mut u8 {
        let (size, align) = (layout.size(), layout.align());
        if size as u64 > thread_cache::MOST || align > ALIGN_LEAST {
            return self.obtain_otherwise(layout, get);
        }
        // The program's alignment is not needed from here on, so that no register keeps it.
        let block = get(&self.beneath, spaced_small(size));
        let group = current::get().group.map_or(0, Packed::raw);
        if group != 0
            && let Some(entry) = OWNERS.entry_unless_null(block.addr())
            && thread_cache::take(group, size as u64, entry)
        {
            return block;
        }
        self.charge_otherwise(block, size)
    }

    /// Charges a small block that the thread's cache does not serve: there is no current group, or the thread cache is
    /// another group's.
    #[inline(never)]
    fn charge_otherwise(&self, block: *mut u8, size: usize) -> *mut u8 {
        if current::get().group.is_none() && !owner::has_default() {
            return within(block);
        }
        let block = within(block);
        if block.is_null() {
            forget();
            return block;
        }
        // Clears the label that a thread cache may have written before it failed.
        disown(block);
        if !owner::is_on() {
            return block;
        }
        match owner::take(size as u64) {
            Some(slot) => own(block, slot, size),
            None => match owner::charge(size as u64) {
                Charged::To(slot) => own(block, slot, size),
                Charged::Nobody => {}
                Charged::Refused => {
                    // SAFETY: it was made in this layout, and no other thread has seen it.
                    unsafe { self.beneath.dealloc(block, spaced_small(size)) }
                    return std::ptr::null_mut();
                }
            },
        }
        block
    }

    /// Gets a large or strictly aligned block and charges it. A request that the machine cannot serve is not charged,
    /// so it neither fills the group for a moment nor shows in its peak.
    #[cold]
    #[inline(never)]
    fn obtain_otherwise(&self, layout: Layout, get: impl Fn(&A, Layout) -> *mut u8) -> *mut u8 {
        let (size, spaced) = (layout.size(), spaced(layout));
        let block = within(get(&self.beneath, spaced));
        if block.is_null() {
            forget();
            return block;
        }
        match owner::charge(size as u64) {
            Charged::To(slot) => own(block, slot, size),
            Charged::Nobody => {}
            Charged::Refused => {
                // SAFETY: it was made in this layout, and no other thread has seen it.
                unsafe { self.beneath.dealloc(block, spaced) }
                return std::ptr::null_mut();
            }
        }
        block
    }

    /// Returns whether the machine can serve `more` bytes for a block. A charge for memory that it cannot serve would
    /// show in peaks, and mark the work.
    fn can_serve(&self, more: u64) -> bool {
        /// Smaller requests nearly always succeed. The charge is undone if they fail.
        const LARGE: u64 = 64 << 20;
        if more < LARGE {
            return true;
        }
        let Ok(layout) = Layout::from_size_align(more as usize, ALIGN_LEAST) else { return false };
        // SAFETY: the size is not zero; the block is freed at once, in its layout.
        unsafe {
            let block = self.beneath.alloc(layout);
            if !block.is_null() {
                self.beneath.dealloc(block, layout);
            }
            !block.is_null()
        }
    }

    /// Frees a block if the thread's cache is not its owner's, or has not enough room.
    ///
    /// # Safety
    /// As `dealloc`; `entry` is the block's.
    #[inline(never)]
    unsafe fn dealloc_to_cell(&self, block: *mut u8, layout: Layout, entry: &AtomicU16) {
        let slot = slots::at(entry.load(Ordering::Relaxed));
        // Before the free: the next thread may get the block at once.
        entry.store(0, Ordering::Relaxed);
        if !owner::put(slot, layout.size() as u64) {
            uncharge(slot, layout.size() as u64);
        }
        // SAFETY: as the caller says, in the layout that `obtain` asked for.
        unsafe { self.beneath.dealloc(block, spaced(layout)) }
    }

    /// Grows or shrinks a block that has an owner.
    ///
    /// # Safety
    /// As `realloc`; `entry` is the block's.
    unsafe fn realloc_owned(
        &self,
        block: *mut u8,
        layout: Layout,
        new_size: usize,
        entry: &AtomicU16,
    ) -> *mut u8 {
        let slot = slots::at(entry.load(Ordering::Relaxed));
        let beneath = || {
            // The next block at this place notes its own owner there.
            entry.store(0, Ordering::Relaxed);
            // SAFETY: as the caller says, in the layout that `obtain` asked for.
            within(unsafe { self.beneath.realloc(block, spaced(layout), new_size.max(SIZE_LEAST)) })
        };
        if slot.group().is_none() {
            return beneath();
        }
        // A charge for what the machine cannot serve would show in peaks, and mark the work.
        if !self.can_serve(new_size.saturating_sub(layout.size()) as u64) {
            forget();
            return std::ptr::null_mut();
        }
        let Some(growth) = Growth::charge(slot, layout.size() as u64, new_size as u64) else {
            return std::ptr::null_mut();
        };
        let moved = beneath();
        if moved.is_null() {
            entry.store(slot.number(), Ordering::Relaxed);
            growth.undo();
            forget();
            return moved;
        }
        let Some(owner) = growth.owner() else {
            growth.settle();
            return moved;
        };
        let entry = OWNERS.entry(moved.addr());
        if let Some(entry) = entry {
            entry.store(owner.number(), Ordering::Relaxed);
        }
        growth.settle();
        if entry.is_none() {
            own(moved, owner, new_size);
        }
        moved
    }
}

// SAFETY: blocks are those of the allocator beneath, requested and returned in one and the same layout, which is at
// least as large and as strictly aligned as the program's. The result is null if the allocator beneath returned null
// or a limit refuses. Nothing unwinds: nothing here panics, and no code of the program's is called but the allocator
// beneath. Guarded by `tests/alloc/`.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Alloc<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the size is not zero.
        self.obtain(layout, |beneath, layout| unsafe { beneath.alloc(layout) })
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the size is not zero.
        self.obtain(layout, |beneath, layout| unsafe { beneath.alloc_zeroed(layout) })
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as the caller says, in the layout that `obtain` asked for.
        unsafe {
            if let Some(entry) = entry_of(block) {
                let number = entry.load(Ordering::Relaxed);
                if number != 0 {
                    let size = layout.size() as u64;
                    if size > thread_cache::MOST || !thread_cache::put(number, size) {
                        return self.dealloc_to_cell(block, layout, entry);
                    }
                    // Before the free: the next thread may get the block at once.
                    entry.store(0, Ordering::Relaxed);
                }
            }
            self.beneath.dealloc(block, spaced(layout));
        }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: as the caller says.
        unsafe {
            match entry_of(block) {
                Some(entry) if entry.load(Ordering::Relaxed) != 0 => {
                    self.realloc_owned(block, layout, new_size, entry)
                }
                _ => within(self.beneath.realloc(block, spaced(layout), new_size.max(SIZE_LEAST))),
            }
        }
    }
}
