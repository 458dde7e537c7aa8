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
//! **Who is charged.** A block is charged to the group that is current ([`current`]) in the thread that
//! makes it, with the bytes that the program asks for (the layout's size). It stays that group's, whoever has it, grows
//! it or frees it: `realloc` charges the difference to the owner, in place where the allocator beneath can. Where nobody
//! is current the block is nobody's, unless there is a default ([`set_default`]).
//!
//! | what ends | what becomes of its blocks |
//! |---|---|
//! | the scope or task in which a group was current | they stay charged to the group until they are freed |
//! | the group ([`destroy`](crate::Group::destroy)) | they stay charged to its ancestors; [`Ledger::leaks`](crate::Ledger::leaks) tells them; a free is credited as ever. One that grows is charged to the nearest ancestor that exists from then on |
//! | the group, while it is still current somewhere | new blocks are charged to the nearest ancestor that exists, or to the root once another group has the row and blocks, or if the group never had a block |
//! | the process's own image, in a forked child | of a ledger in memory, the child has its own copy, blocks and all. Of a ledger in a file, inherited blocks are nobody's in the child: it frees them and touches no account; and it is charged for nothing until it [attaches](crate::Ledger::attach_process) and makes a group of its own current |
//!
//! **At a limit** an allocation is granted over it, and the work is marked: a [`Group::catch`](crate::Group::catch), or a
//! [`catch_future`](crate::Group::catch_future), ends at its next [`checkpoint`], poll or end, with all parts that it handed to
//! other threads. Beyond an allowance each allocation is slowed down. Outside of a `catch` nothing is ended. The root's limit holds:
//! an allocation that it has no room for waits up to a second while another group is over its own limit, and is then null, with a
//! line on standard error. [`Policy::NULL`] has every allocation null that does not fit, and [`last_refusal`] knows why.
//!
//! Nothing is reclaimed: a reclaimer is foreign code, which may hold the very lock that the allocating code holds. A program that wants
//! that charges a large buffer by [`Group::request`](crate::Group::request) first. For the same reason this allocator allocates
//! nothing that is charged and calls no code of the program's.
//!
//! **A panicking thread** charges nobody for its allocations, but for those that its purse serves.
//!
//! **What the library needs for itself is nobody's**, and no limit refuses it: the words of a refusal, a place in a queue, a
//! snapshot, the list of a shared charge, the end of a group. So is what a reclaimer allocates, whoever's charge it runs for.
//! A group that is full can be asked, refused, waited for and destroyed from inside.
//!
//! **Owners stand in a [shadow](crate::region::shadow)**: no header, and no byte, is added to a block. Two bytes beside
//! each 32 of heap name the block's owner, so 65 535 groups may hold blocks at a time. (A group keeps its number until it
//! is destroyed and holds nothing.) Blocks of the next group are charged to the nearest ancestor that has a number, so that
//! its own limits and its own `catch` do not see them, and [`counts`] tells how many were. Requests are passed on with 17
//! bytes at least and an alignment of 16 at least, which costs nothing with glibc, whose smallest block is that large.
//!
//! **What a free block costs elsewhere** is not known here: what the allocator beneath keeps is in no account.
//!
//! **Order.** A charge comes before the program has the block, and a credit before the free. The allocator beneath may have blocks
//! for an instant that are credited already, or not charged yet: one that [`Policy::NULL`] refuses goes back at once.
//!
//! **Cost.** A pair of `alloc` and `dealloc` costs the pair beneath, two additions to a word of the thread's own (its *purse*:
//! up to 64 KiB that it carries along, of one group at a time), and one load and two stores of shadow. `ledgerline bench alloc`
//! measures it: on a virtual EPYC (Zen 5) of 2026 it adds 1.8 to 2.3 ns to a pair of 64 bytes and 2.1 to 2.3 to mixed ones of up to
//! 4 KiB, on one thread and on two. Where the purse is another group's or has too few units, they are the CPU's cell's, two to five
//! nanoseconds more. (A thread takes it over after 128 allocations that it did not serve, and after up to 2048 where it served few
//! in between.) That holds for blocks that are small beside what a cell may hold, which is a sixteenth of the group's usage or
//! 32 KiB; where they are not, or close to a limit, a pair may walk to the root's totals, a quarter of a microsecond. The first
//! allocation of each scope that the purse does not serve finds the group's number, some ten nanoseconds: tasks of 64 groups by
//! turns, of eight blocks each, pay 8 ns a pair in all. A thread beyond a thousand has no purse, nor has one on a machine without
//! restartable sequences, nor for a ledger in a file.
//!
//! **Addresses.** On x86-64 a block beyond 47 bits ends the process with a message. Linux gives out such addresses only to an allocator
//! that asks for them by name.
//!
//! It allocates before `main` and in destructors of threads: its thread-local variables are constants without a
//! destructor. It is as async-signal-safe as the allocator beneath, which mostly is not.

mod caught;
#[cfg(all(rseq, test))]
mod held;
mod limit;
mod owner;

use crate::control::slow_path;
use crate::current;
pub use crate::current::refused::checkpoint;
use crate::current::slots::{self, Slot};
use crate::group::Group;
use crate::percpu::purse;
#[cfg(target_arch = "x86_64")]
use crate::region::shadow::ADDRESS_BITS;
use crate::region::shadow::Shadow;
pub use crate::scope::{OnLimit, Policy};
use crate::stock::AtLimit;
use crate::sync::Ordering;
use crate::table::handle::Packed;
pub use caught::Catching;
use limit::forget;
pub use limit::last_refusal;
use owner::{Charged, UNOWNED};
pub use owner::{set_accounting, set_default};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::AtomicU16;

/// The owner's number of the block that starts in each window; zero for nobody, and where none starts that has an owner.
static OWNERS: Shadow<AtomicU16> = Shadow::new();

/// What the allocator beneath is asked for at least, so that blocks start a window apart: their addresses are multiples
/// of `ALIGN_LEAST`, and more than that apart.
const SIZE_LEAST: usize = 17;
const ALIGN_LEAST: usize = 16;
const _: () = assert!(SIZE_LEAST.next_multiple_of(ALIGN_LEAST) == crate::region::shadow::WINDOW);

/// A global allocator that charges what it gives out to the current group; see [the module](self).
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
    /// Over the system's allocator.
    pub const fn system() -> Alloc {
        Alloc::new(System)
    }
}

impl<A> Alloc<A> {
    /// Over another allocator. Its blocks must come back through this one.
    pub const fn new(beneath: A) -> Alloc<A> {
        Alloc { beneath }
    }
}

/// What the allocator did otherwise than usual, since the process started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Blocks that were charged to an ancestor, since 65 535 other groups had numbers.
    pub above: u64,
    /// Blocks that have no owner though a group was current: one of another process (in a forked child), or there was no
    /// memory for the shadow.
    pub unowned: u64,
}

/// What the allocator did otherwise than usual.
pub fn counts() -> Counts {
    // Relaxed: numbers that are added up by themselves.
    let [above, unowned] = [&owner::ABOVE, &UNOWNED].map(|count| count.load(Ordering::Relaxed));
    Counts { above, unowned }
}

/// What the allocator beneath is asked for; a free computes the same.
#[inline(always)]
fn spaced(layout: Layout) -> Layout {
    let (size, align) = (layout.size().max(SIZE_LEAST), layout.align().max(ALIGN_LEAST));
    // No machine has so much, but it is a layout.
    if size > isize::MAX as usize - ALIGN_LEAST {
        return layout;
    }
    // SAFETY: a power of two; and the size, rounded up to it, is no larger than isize::MAX, since that holds of the
    // layout's own, and of sizes so small with an alignment of 16.
    unsafe { Layout::from_size_align_unchecked(size, align) }
}

/// [`spaced`] for a size that the fast half of a charge takes, and an alignment that needs nothing.
#[inline(always)]
fn spaced_small(size: usize) -> Layout {
    // SAFETY: 16 is a power of two, and the size is far below isize::MAX.
    unsafe { Layout::from_size_align_unchecked(size.max(SIZE_LEAST), ALIGN_LEAST) }
}

/// Returns units to the group of a slot.
#[cold]
#[inline(never)]
fn uncharge(slot: &Slot, units: usize) {
    if let Some(group) = slot.group() {
        // (An audit allocates. That is nobody's.)
        current::unattributed(|| group.uncharge_units(units as u64));
    }
}

/// A block that the allocator beneath gave, or null. Beyond the shadow there is none on x86-64, so that a free need not ask whether
/// its block lies there. (On arm64 an allocator may tag its addresses in bits beyond those of the shadow: they are nobody's.)
#[inline(always)]
fn within(block: *mut u8) -> *mut u8 {
    #[cfg(target_arch = "x86_64")]
    {
        let beyond: usize;
        // SAFETY: shifts a register. (A compiler that sees the bound keeps it in a register over the call beneath, which costs the
        // fast path half a nanosecond.)
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

/// Linux gives out such addresses to who asks for them by name alone, where the machine has them.
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

/// The entry of a block that this allocator gave.
///
/// # Safety
/// It is one.
#[inline(always)]
unsafe fn entry_of(block: *mut u8) -> Option<&'static AtomicU16> {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: `within` saw it, or it had an entry. Guarded by `a_block_beyond_the_addresses_of_a_process_stops_it`.
    return unsafe { OWNERS.entry_within(block.addr()) };
    #[cfg(not(target_arch = "x86_64"))]
    OWNERS.entry(block.addr())
}

/// Has a new block be nobody's, as most are already.
fn disown(block: *mut u8) {
    if let Some(entry) = OWNERS.entry(block.addr())
        && entry.load(Ordering::Relaxed) != 0
    {
        entry.store(0, Ordering::Relaxed);
    }
}

/// Notes the owner of a new block; without memory for that it is nobody's.
fn own(block: *mut u8, slot: &Slot, units: usize) {
    match slots::make(&OWNERS, block.addr()) {
        Some(entry) => entry.store(slot.number(), Ordering::Relaxed),
        None => {
            uncharge(slot, units);
            UNOWNED.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl<A: GlobalAlloc> Alloc<A> {
    /// Gets a block and charges it. The fast path is short in instructions and registers, since these are what it adds. So a
    /// small block comes first, and goes back where it is refused: then only its size is kept over the call beneath.
    #[inline(always)]
    fn obtain(&self, layout: Layout, get: impl Fn(&A, Layout) -> *mut u8) -> *mut u8 {
        let (size, align) = (layout.size(), layout.align());
        if size as u64 > purse::MOST || align > ALIGN_LEAST {
            return self.obtain_otherwise(layout, get);
        }
        // From here on the program's alignment is of no use, and no register is to be kept for it.
        let block = get(&self.beneath, spaced_small(size));
        let group = current::get().group.map_or(0, Packed::raw);
        if group != 0
            && let Some(entry) = OWNERS.entry_unless_null(block.addr())
            && purse::take(group, size as u64, entry)
        {
            return block;
        }
        self.charge_otherwise(block, size)
    }

    /// Charges a small block, where the thread's purse does not serve: nobody may be current, or another group.
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
        // (What a purse that did not serve has labelled.)
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
                    // SAFETY: it was made in this layout, and nobody else has seen it.
                    unsafe { self.beneath.dealloc(block, spaced_small(size)) }
                    return std::ptr::null_mut();
                }
            },
        }
        block
    }

    /// Gets a large block, or one that is strictly aligned, and charges it. A request that the machine cannot serve is not charged, so it
    /// neither fills the group for a moment nor shows in its peak.
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
                // SAFETY: it was made in this layout, and nobody else has seen it.
                unsafe { self.beneath.dealloc(block, spaced) }
                return std::ptr::null_mut();
            }
        }
        block
    }

    /// Whether the machine can serve so much more of a block. A charge for what it cannot would show in peaks, and mark the work.
    fn can_serve(&self, more: u64) -> bool {
        /// Less is served nearly always, and undone where not.
        const LARGE: u64 = 64 << 20;
        if more < LARGE {
            return true;
        }
        let Ok(layout) = Layout::from_size_align(more as usize, ALIGN_LEAST) else { return false };
        // SAFETY: the size is not zero; what is made is freed at once, in its layout.
        unsafe {
            let block = self.beneath.alloc(layout);
            if !block.is_null() {
                self.beneath.dealloc(block, layout);
            }
            !block.is_null()
        }
    }

    /// Frees a block whose owner's units the thread does not carry, or not with so much room.
    ///
    /// # Safety
    /// As `dealloc`; `entry` is the block's.
    #[inline(never)]
    unsafe fn dealloc_to_cell(&self, block: *mut u8, layout: Layout, entry: &AtomicU16) {
        let slot = slots::at(entry.load(Ordering::Relaxed));
        // Before the free: the next thread may get the block at once.
        entry.store(0, Ordering::Relaxed);
        if !owner::put(slot, layout.size() as u64) {
            uncharge(slot, layout.size());
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
            // Whoever gets the place next notes its own owner there.
            entry.store(0, Ordering::Relaxed);
            // SAFETY: as the caller says, in the layout that `obtain` asked for.
            within(unsafe { self.beneath.realloc(block, spaced(layout), new_size.max(SIZE_LEAST)) })
        };
        let Some(group) = slot.group() else { return beneath() };
        // An audit follows each block as one charge; otherwise only the difference is asked for, so that a block may
        // grow up to the limit.
        let audited = group.ledger().audit().is_some();
        let (more, less) = if audited {
            (new_size, layout.size())
        } else {
            (new_size.saturating_sub(layout.size()), layout.size().saturating_sub(new_size))
        };
        if !self.can_serve(more as u64) {
            forget();
            return std::ptr::null_mut();
        }
        let charged = match group.take_prepaid(more as u64) {
            true => Charged::To(slot),
            false => owner::charge_from(group, more as u64),
        };
        if let Charged::Refused = charged {
            return std::ptr::null_mut();
        }
        let moved = beneath();
        if moved.is_null() {
            entry.store(slot.number(), Ordering::Relaxed);
            if let Charged::To(charged) = charged {
                uncharge(charged, more);
            }
            forget();
            return moved;
        }
        let Charged::To(owner) = charged else {
            // It is nobody's from here on.
            uncharge(slot, layout.size());
            return moved;
        };
        match OWNERS.entry(moved.addr()) {
            Some(entry) => entry.store(owner.number(), Ordering::Relaxed),
            None => own(moved, owner, new_size),
        }
        if owner.group() == Some(group) {
            // (It counts as a charge and an uncharge, whatever the difference was.)
            if !group.put_prepaid(less as u64) {
                uncharge(slot, less);
            }
        } else {
            move_rest(group, owner, layout.size(), audited);
            if !audited && less > 0 {
                uncharge(owner, less);
            }
        }
        moved
    }
}

/// Moves what a block held from its destroyed owner to the group that was charged for its growth.
#[cold]
fn move_rest(from: Group<'static>, slot: &Slot, held: usize, audited: bool) {
    let held = held as u64;
    let Some(to) = slot.group() else { return };
    // (In an audited ledger it was charged for all of it.)
    let moved = !audited && slow_path::transfer(from, to, held, AtLimit::Overrun, true).is_ok();
    if !moved {
        current::unattributed(|| from.uncharge_units(held));
        if !audited {
            // This fails if the group ended in this very moment: then it lacks as much until the block is freed.
            let _ = to.charge_units(held);
        }
    }
}

// SAFETY: blocks are those of the allocator beneath, asked for and returned in one and the same layout, which is at least
// as large and as strictly aligned as the program's; null is returned where it gave null or where a limit says no. It
// does not unwind: nothing here panics, and calls no code of the program's but the allocator beneath. Guarded by
// `tests/alloc/`.
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
                    if size > purse::MOST || !purse::put(number, size) {
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
