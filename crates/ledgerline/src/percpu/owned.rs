//! Columns that threads own: plain additions without restartable sequences.
//!
//! An owner changes a cell by a load, an addition and a store, in a critical section called a *window*. Nothing
//! restarts an owner that is preempted in the middle. So it publishes the cell that it is in, and a thread that steals
//! the cell (the *taker*, with the stock lock) leaves it a *verdict*. This handshake never blocks: no thread waits for
//! another.
//!
//! ```text
//! update(cell, id, delta):                    seize(cell), which was frozen and fenced:
//!   at != 0:                     fail           again:
//!   at = cell                                     at != cell, and the word is frozen:       it is the taker's
//!   sum = cell.word + delta                       at != cell, and it was stored over:       freeze, fence, again
//!   it does not pass:   at = 0,  fail             verdict says taken:                       it is empty
//!   cell.word = sum                               verdict = asked(cell)
//!   any verdicts:   settle                        fence
//!   at = 0                                        the word was stored over:                 freeze, fence, again
//!                                                 taken = cell.word
//! settle(cell, before, sum):                      verdict: asked -> taken                   it is the taker's
//!   verdict: asked -> 0:      it stands           (the owner was quicker:                   again)
//!   taken is the sum:         it stands
//!   otherwise: cell.word = empty, frozen; verdict = 0; fail
//! ```
//!
//! `README.md` has the proof sketch.

use super::word::{self, Cell, FROZEN};
use crate::sync::{AtomicU64, AtomicUsize, Ordering, light_fence};

/// In a verdict, beside the address of a cell, which is a multiple of 16: a taker wants the cell, and has not read the
/// word yet.
const ASKED: usize = 1;
/// Likewise: a taker has taken the word that it read.
const TAKEN: usize = 2;
/// How often a taker checks whether a window ends by itself before it asks.
#[cfg(not(loom))]
const LOOKS: usize = 64;
#[cfg(loom)]
const LOOKS: usize = 0;
/// An owner stores over a frozen word at most once, so more rounds mean that another program writes over the ledger.
const ROUNDS: usize = 100;

/// The number of verdicts of all owners. An owner checks this one word, which never moves and is hardly ever written.
#[cfg(not(loom))]
pub(super) static VERDICTS: AtomicUsize = AtomicUsize::new(0);

/// The state of a column's owner: the cell that it is in, and the verdict of a taker.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Owner {
    /// The address of the cell in whose window the owner is; 0 outside. Written only by the owner.
    at: AtomicUsize,
    /// A cell with [`ASKED`] or [`TAKEN`], or 0. A verdict is counted from before it is stored until after it is
    /// removed.
    verdict: AtomicUsize,
    /// The word that a taker found, if the verdict is [`TAKEN`].
    taken: AtomicU64,
    #[cfg(loom)]
    verdicts: AtomicUsize,
}

impl Owner {
    /// The offset of `at`, for the windows in assembly.
    #[cfg(owned_windows)]
    pub(super) const AT: usize = std::mem::offset_of!(Owner, at);

    #[cfg(not(loom))]
    pub(super) const fn new() -> Owner {
        Owner { at: AtomicUsize::new(0), verdict: AtomicUsize::new(0), taken: AtomicU64::new(0) }
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Owner {
        let [at, verdict, verdicts] = [0; 3].map(AtomicUsize::new);
        Owner { at, verdict, taken: AtomicU64::new(0), verdicts }
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
        // Partner of the taker's fence: the taker sees the window, or this load sees the word frozen.
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
            // Partner of the taker's second fence: the taker sees the sum, or this load sees that there is a verdict.
            light_fence();
            if self.verdicts().load(Ordering::Relaxed) != 0 {
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

    /// Settles a sum that was stored after some taker had asked for a cell, and ends the window. Returns whether the
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
        let mut verdict = self.verdict.load(Ordering::Acquire);
        while verdict != taken {
            // There is none, or the taker has not read the word yet, so the sum was first. Or the verdict is about an
            // earlier window.
            if verdict == 0 || self.clear(verdict) {
                return true;
            }
            verdict = self.verdict.load(Ordering::Acquire);
        }
        let stands = self.taken.load(Ordering::Relaxed) == sum;
        if !stands {
            // The taker had the word before the sum was stored over it. No other thread writes this cell before the
            // verdict is gone.
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
                && owner.verdict.load(Ordering::Acquire) == taken
            {
                // An earlier taker had the cell, and this window has not ended since, so the word is void.
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
            // From here on the owner sees the verdict, or its store is seen here.
            let fenced = fence();
            let word = cell.word.load(Ordering::Acquire);
            if fenced && owner.is_in(cell) && word & FROZEN != 0 {
                owner.taken.store(word & !FROZEN, Ordering::Relaxed);
                // Release, partner of the Acquire in `settle`. If it fails, the owner was quicker.
                let order = (Ordering::AcqRel, Ordering::Relaxed);
                if owner.verdict.compare_exchange(asked, taken, order.0, order.1).is_ok() {
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
    /// interrupted a window. If so, no verdict about an earlier window is left, and none comes.
    pub(crate) fn is_outside(&self) -> bool {
        let outside = self.at.load(Ordering::Relaxed) == 0;
        if outside {
            // Partner of the taker's second fence: the taker sees that the window has ended, or its question is seen
            // here.
            light_fence();
            self.void();
        }
        outside
    }

    /// Removes any verdict, since it is about a window that has ended. A taker that has just asked finds its question
    /// gone and tries again. If a taker answers at this moment, the answer is removed, too.
    fn void(&self) {
        loop {
            let verdict = self.verdict.load(Ordering::Relaxed);
            if verdict == 0 || self.clear(verdict) {
                return;
            }
        }
    }

    fn ask(&self, asked: usize) {
        self.verdicts().fetch_add(1, Ordering::Relaxed);
        if self.verdict.swap(asked, Ordering::AcqRel) != 0 {
            self.verdicts().fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Removes a verdict, if it is this one.
    fn clear(&self, verdict: usize) -> bool {
        // AcqRel: a taker that finds no verdict finds what the owner stored before; the owner finds what the taker wrote.
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        let cleared = self.verdict.compare_exchange(verdict, 0, order.0, order.1).is_ok();
        if cleared {
            self.verdicts().fetch_sub(1, Ordering::Relaxed);
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
        let verdict = self.verdict.load(Ordering::Acquire);
        if at != 0 && verdict == at | TAKEN {
            // The sum may have been stored over the empty cell, and the owner will not take it back.
            let generation = word::generation(self.taken.load(Ordering::Relaxed));
            // SAFETY: `at` is the address of a cell, which is mapped.
            let cell = unsafe { &*std::ptr::with_exposed_provenance::<Cell>(at) };
            store(cell, word::empty(generation) | FROZEN);
        }
        if verdict != 0 {
            self.clear(verdict);
        }
        self.at.store(0, Ordering::Release);
    }

    #[inline(always)]
    fn verdicts(&self) -> &AtomicUsize {
        #[cfg(not(loom))]
        return &VERDICTS;
        #[cfg(loom)]
        &self.verdicts
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
