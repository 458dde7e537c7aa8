//! Columns that threads own: plain additions without restartable sequences.
//!
//! An owner changes a cell by a load, an addition and a store, in a critical section called a *window*. Nothing
//! restarts an owner that is preempted in the middle. So it publishes the cell that it is in, and a thread that steals
//! the cell (the *stealer*, with the stock lock) leaves it a *handshake*. This handshake never blocks: no thread waits for
//! another.
//!
//! ```text
//! update(cell, id, delta):                    seize(cell), which was frozen and fenced:
//!   at != 0:                     fail           again:
//!   at = cell                                     at != cell, and the word is frozen:       it is the stealer's
//!   sum = cell.word + delta                       at != cell, and it was stored over:       freeze, fence, again
//!   it does not pass:   at = 0,  fail             handshake says taken:                       it is empty
//!   cell.word = sum                               handshake = asked(cell)
//!   any handshakes:   settle                        fence
//!   at = 0                                        the word was stored over:                 freeze, fence, again
//!                                                 taken = cell.word
//! settle(cell, before, sum):                      handshake: asked -> taken                   it is the stealer's
//!   handshake: asked -> 0:      it stands           (the owner was quicker:                   again)
//!   taken is the sum:         it stands
//!   otherwise: cell.word = empty, frozen; handshake = 0; fail
//! ```
//!
//! `README.md` has the proof sketch.

use super::word::{self, Cell, FROZEN};
use crate::sync::{AtomicU64, AtomicUsize, Ordering, light_fence};

/// In a handshake, beside the address of a cell, which is a multiple of 16: a stealer wants the cell, and has not read the
/// word yet.
const ASKED: usize = 1;
/// Likewise: a stealer has taken the word that it read.
const TAKEN: usize = 2;
/// How often a stealer checks whether a window ends by itself before it asks.
#[cfg(not(loom))]
const LOOKS: usize = 64;
#[cfg(loom)]
const LOOKS: usize = 0;
/// An owner stores over a frozen word at most once, so more rounds mean that another program writes over the ledger.
const ROUNDS: usize = 100;

/// The number of handshakes of all owners. An owner checks this one word, which never moves and is hardly ever written.
#[cfg(not(loom))]
pub(super) static HANDSHAKES: AtomicUsize = AtomicUsize::new(0);

/// The state of a column's owner: the cell that it is in, and the handshake of a stealer.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Owner {
    /// The address of the cell in whose window the owner is; 0 outside. Written only by the owner.
    at: AtomicUsize,
    /// A cell with [`ASKED`] or [`TAKEN`], or 0. A handshake is counted from before it is stored until after it is
    /// removed.
    handshake: AtomicUsize,
    /// The word that a stealer found, if the handshake is [`TAKEN`].
    taken: AtomicU64,
    #[cfg(loom)]
    handshakes: AtomicUsize,
}

impl Owner {
    /// The offset of `at`, for the windows in assembly.
    #[cfg(owned_windows)]
    pub(super) const AT: usize = std::mem::offset_of!(Owner, at);

    #[cfg(not(loom))]
    pub(super) const fn new() -> Owner {
        Owner { at: AtomicUsize::new(0), handshake: AtomicUsize::new(0), taken: AtomicU64::new(0) }
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Owner {
        let [at, handshake, handshakes] = [0; 3].map(AtomicUsize::new);
        Owner { at, handshake, taken: AtomicU64::new(0), handshakes }
    }

    /// Like [`Cell::update`], but by the owner of the cell's column. Also returns `false` in a signal handler that
    /// interrupted a window of its thread. On x86-64 only tests call it: `windows/x86_64.rs` has the same in assembly.
    #[cfg(any(test, not(owned_windows)))]
    #[inline(always)]
    pub(crate) fn update(&self, cell: &Cell, id: u64, delta: u64, put: bool) -> bool {
        // Relaxed, here and below: only this thread writes it.
        if self.at.load(Ordering::Relaxed) != 0 {
            return false;
        }
        point(1);
        self.at.store(address(cell), Ordering::Relaxed);
        // Partner of the stealer's fence: the stealer sees the window, or this load sees the word frozen.
        light_fence();
        point(2);
        // Acquire, partner of the Release in `Cell::open`: a thread that sees an open word sees its cap.
        let word = cell.word.load(Ordering::Acquire);
        point(3);
        let sum = word.wrapping_add(delta);
        let fits = || !put || word::stock(sum) <= u64::from(cell.cap.load(Ordering::Relaxed));
        let stands = word::passes(sum, id) && fits();
        if stands {
            point(4);
            store(cell, sum);
            point(5);
            // Partner of the stealer's second fence: the stealer sees the sum, or this load sees that there is a handshake.
            light_fence();
            if self.handshakes().load(Ordering::Relaxed) != 0 {
                return self.settle_and_end(cell, word, sum);
            }
            point(6);
        }
        self.end();
        stands
    }

    /// Ends the window.
    #[inline(always)]
    fn end(&self) {
        // Release, partner of the Acquire in `is_in`: a thread that sees the window's end sees its sum.
        self.at.store(0, Ordering::Release);
    }

    /// Settles a sum that was stored after some stealer had asked for a cell, and ends the window. Returns whether the
    /// sum stands. The caller keeps nothing across this call, so it saves no registers.
    #[cold]
    #[inline(never)]
    fn settle_and_end(&self, cell: &Cell, before: u64, sum: u64) -> bool {
        let stands = self.settle(cell, before, sum);
        point(6);
        self.end();
        stands
    }

    /// Like `settle_and_end`, but for the open window of this thread: `delta` was added, and `sum` stored.
    #[cfg(owned_windows)]
    pub(super) fn settle_here(&self, sum: u64, delta: u64) -> bool {
        let at = self.at.load(Ordering::Relaxed);
        // SAFETY: this is the address of the cell in whose window this thread is, and the caller borrows the ledger.
        let cell = unsafe { &*std::ptr::with_exposed_provenance::<Cell>(at) };
        self.settle_and_end(cell, sum.wrapping_sub(delta), sum)
    }

    fn settle(&self, cell: &Cell, before: u64, sum: u64) -> bool {
        let taken = address(cell) | TAKEN;
        // Acquire, partner of the Release in `seize`: an owner that sees that its cell was taken sees the taken word.
        let mut handshake = self.handshake.load(Ordering::Acquire);
        while handshake != taken {
            // There is none, or the stealer has not read the word yet, so the sum was first. Or the handshake is about an
            // earlier window.
            if handshake == 0 || self.clear(handshake) {
                return true;
            }
            handshake = self.handshake.load(Ordering::Acquire);
        }
        let stands = self.taken.load(Ordering::Relaxed) == sum;
        if !stands {
            // The stealer had the word before the sum was stored over it. No other thread writes this cell before the
            // handshake is gone.
            store(cell, word::empty(word::generation(before)) | FROZEN);
        }
        self.clear(taken);
        stands
    }

    /// Takes the cell away from its owner, wherever the owner is. The caller has the stock lock, and has frozen the
    /// cell and fenced. `owner` returns the present owner of the cell's column, and is called repeatedly. Returns the
    /// word, which the caller owns until it opens the cell. Takes nothing and returns `None` if a fence is forbidden,
    /// or another program writes over the ledger.
    pub(crate) fn seize<'o>(
        owner: impl Fn() -> Option<&'o Owner>,
        cell: &Cell,
        fence: impl Fn() -> bool,
    ) -> Option<u64> {
        let (asked, taken) = (address(cell) | ASKED, address(cell) | TAKEN);
        for _ in 0..ROUNDS {
            // Read before the word: if a window has ended, its sum is visible.
            let inside = owner().filter(|owner| (0..=LOOKS).all(|_| owner.is_in(cell)));
            if let Some(owner) = inside
                && owner.handshake.load(Ordering::Acquire) == taken
            {
                // An earlier stealer had the cell, and this window has not ended since, so the word is void.
                let generation = word::generation(owner.taken.load(Ordering::Relaxed));
                return Some(word::empty(generation) | FROZEN);
            }
            let word = cell.word.load(Ordering::Acquire);
            if word & FROZEN == 0 {
                cell.freeze();
                if !fence() {
                    return None;
                }
                continue;
            }
            let Some(owner) = inside else { return Some(word) };
            owner.ask(asked);
            // From here on the owner sees the handshake, or its store is seen here.
            let fenced = fence();
            let word = cell.word.load(Ordering::Acquire);
            if fenced && owner.is_in(cell) && word & FROZEN != 0 {
                owner.taken.store(word & !FROZEN, Ordering::Relaxed);
                // Release, partner of the Acquire in `settle`. If it fails, the owner was quicker.
                let order = (Ordering::AcqRel, Ordering::Relaxed);
                if owner.handshake.compare_exchange(asked, taken, order.0, order.1).is_ok() {
                    return Some(word);
                }
            }
            // Unless the owner has already removed the question and is in another window.
            owner.clear(asked);
            if !fenced {
                return None;
            }
        }
        None
    }

    /// Returns whether the owner is in a window of this cell.
    fn is_in(&self, cell: &Cell) -> bool {
        // Acquire, partner of the Release in `update`.
        self.at.load(Ordering::Acquire) == address(cell)
    }

    /// Returns whether the calling owner may change its cells by atomics, which it may not in a signal handler that
    /// interrupted a window. If so, no handshake about an earlier window is left, and none comes.
    pub(crate) fn is_outside(&self) -> bool {
        let outside = self.at.load(Ordering::Relaxed) == 0;
        if outside {
            // Partner of the stealer's second fence: the stealer sees that the window has ended, or its question is seen
            // here.
            light_fence();
            self.void();
        }
        outside
    }

    /// Removes any handshake, since it is about a window that has ended. A stealer that has just asked finds its question
    /// gone and tries again. If a stealer answers at this moment, the answer is removed, too.
    fn void(&self) {
        loop {
            let handshake = self.handshake.load(Ordering::Relaxed);
            if handshake == 0 || self.clear(handshake) {
                return;
            }
        }
    }

    fn ask(&self, asked: usize) {
        self.handshakes().fetch_add(1, Ordering::Relaxed);
        if self.handshake.swap(asked, Ordering::AcqRel) != 0 {
            self.handshakes().fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Removes a handshake, if it is this one.
    fn clear(&self, handshake: usize) -> bool {
        // AcqRel: a stealer that finds no handshake finds what the owner stored before; the owner finds what the stealer wrote.
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        let cleared = self.handshake.compare_exchange(handshake, 0, order.0, order.1).is_ok();
        if cleared {
            self.handshakes().fetch_sub(1, Ordering::Relaxed);
        }
        cleared
    }

    /// Forgets the owner's window: its thread ends, or does not exist in this forked child.
    ///
    /// # Safety
    /// The cell of an open window is still mapped.
    #[cfg(not(loom))]
    pub(super) unsafe fn forget(&self) {
        let at = self.at.load(Ordering::Relaxed);
        let handshake = self.handshake.load(Ordering::Acquire);
        if at != 0 && handshake == at | TAKEN {
            // The sum may have been stored over the empty cell, and the owner will not take it back.
            let generation = word::generation(self.taken.load(Ordering::Relaxed));
            // SAFETY: `at` is the address of a cell, which is mapped.
            let cell = unsafe { &*std::ptr::with_exposed_provenance::<Cell>(at) };
            store(cell, word::empty(generation) | FROZEN);
        }
        if handshake != 0 {
            self.clear(handshake);
        }
        self.at.store(0, Ordering::Release);
    }

    #[inline(always)]
    fn handshakes(&self) -> &AtomicUsize {
        #[cfg(not(loom))]
        return &HANDSHAKES;
        #[cfg(loom)]
        &self.handshakes
    }
}

#[inline(always)]
fn address(cell: &Cell) -> usize {
    std::ptr::from_ref(cell).expose_provenance()
}

/// Makes the owner's store, a plain one on the machine. In the models it is an exchange whose result is ignored: loom
/// orders two stores only if one happens before the other, whereas hardware keeps one order for each word.
///
/// Release, partner of the Acquire with which other threads load the word: a thread that takes units sees the writes
/// before they were put.
#[inline(always)]
fn store(cell: &Cell, word: u64) {
    #[cfg(not(loom))]
    cell.word.store(word, Ordering::Release);
    #[cfg(loom)]
    cell.word.swap(word, Ordering::AcqRel);
}

/// Marks a numbered place inside a window at which a test can hold the thread (`owned/tests.rs`).
#[inline(always)]
fn point(_number: u32) {
    #[cfg(all(test, not(loom)))]
    tests::reach(_number);
}

#[cfg(all(test, not(loom)))]
pub(super) mod tests;
