//! Columns that threads own: plain additions where there are no restartable sequences.
//!
//! An owner changes a cell by a load, an addition and a store, in a *window*. Nothing restarts it when it loses its CPU in
//! the middle, so it says where it is, and a thread that takes the cell away (the taker, with the stock lock) leaves it a
//! *verdict*. Nobody waits for anybody.
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

/// In a verdict, beside the address of a cell (which is a multiple of 16): a taker wants the cell, and has not looked.
const ASKED: usize = 1;
/// Likewise: a taker has what the word was when it looked.
const TAKEN: usize = 2;
/// How often a taker looks whether a window ends by itself, before it asks.
#[cfg(not(loom))]
const LOOKS: usize = 64;
#[cfg(loom)]
const LOOKS: usize = 0;
/// An owner stores over a frozen word once at most, so more rounds are the work of a program that writes over the ledger.
const ROUNDS: usize = 100;

/// How many verdicts there are, of all owners: so an owner asks a place that never moves, and which is hardly ever written.
#[cfg(not(loom))]
pub(super) static VERDICTS: AtomicUsize = AtomicUsize::new(0);

/// Where the owner of a column is, and what takers tell it.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Owner {
    /// The address of the cell in whose window the owner is; 0 outside. The owner alone writes it.
    at: AtomicUsize,
    /// A cell with [`ASKED`] or [`TAKEN`], or 0. A verdict is counted before it is there, and until it is gone.
    verdict: AtomicUsize,
    /// The word that a taker found, when the verdict is [`TAKEN`].
    taken: AtomicU64,
    #[cfg(loom)]
    verdicts: AtomicUsize,
}

impl Owner {
    /// Where the windows that are assembly find `at`.
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

    /// As [`Cell::update`], by the owner of the cell's column. Says `false`, too, in a signal handler that interrupted a
    /// window of its thread. (On x86-64 tests alone call it: `windows/x86_64.rs` has the same.)
    #[cfg(any(test, not(owned_windows)))]
    #[inline(always)]
    pub(crate) fn update(&self, cell: &Cell, id: u64, delta: u64, put: bool) -> bool {
        // Relaxed, here and below: this thread alone writes it.
        if self.at.load(Ordering::Relaxed) != 0 {
            return false;
        }
        point(1);
        self.at.store(address(cell), Ordering::Relaxed);
        // Partner of the taker's fence: it sees the window, or this load sees the word frozen.
        light_fence();
        point(2);
        // Acquire, partner of the Release in `Cell::open`: who sees an open word sees its cap.
        let word = cell.word.load(Ordering::Acquire);
        point(3);
        let sum = word.wrapping_add(delta);
        let fits = || !put || word::stock(sum) <= u64::from(cell.cap.load(Ordering::Relaxed));
        let stands = word::passes(sum, id) && fits();
        if stands {
            point(4);
            store(cell, sum);
            point(5);
            // Partner of the taker's second fence: it sees the sum, or this load sees that there is a verdict.
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
        // Release, partner of the Acquire in `is_in`: who sees the window's end sees its sum.
        self.at.store(0, Ordering::Release);
    }

    /// The sum was stored when some taker had asked for a cell. Says whether it stands, and ends the window. (The caller
    /// keeps nothing over this call, so it saves no registers.)
    #[cold]
    #[inline(never)]
    fn settle_and_end(&self, cell: &Cell, before: u64, sum: u64) -> bool {
        let stands = self.settle(cell, before, sum);
        point(6);
        self.end();
        stands
    }

    /// As `settle_and_end`, of the window that is open: `delta` was added, and `sum` stored.
    #[cfg(owned_windows)]
    pub(super) fn settle_here(&self, sum: u64, delta: u64) -> bool {
        let at = self.at.load(Ordering::Relaxed);
        // SAFETY: the address of the cell in whose window this thread is: its caller borrows the ledger.
        let cell = unsafe { &*std::ptr::with_exposed_provenance::<Cell>(at) };
        self.settle_and_end(cell, sum.wrapping_sub(delta), sum)
    }

    fn settle(&self, cell: &Cell, before: u64, sum: u64) -> bool {
        let taken = address(cell) | TAKEN;
        // Acquire, partner of the Release in `seize`: whoever sees that its cell was taken sees what was taken.
        let mut verdict = self.verdict.load(Ordering::Acquire);
        while verdict != taken {
            // There is none, or the taker has not looked: then the sum was first. Or it is about an earlier window.
            if verdict == 0 || self.clear(verdict) {
                return true;
            }
            verdict = self.verdict.load(Ordering::Acquire);
        }
        let stands = self.taken.load(Ordering::Relaxed) == sum;
        if !stands {
            // The taker had the word before the sum was stored over it. Nobody else writes this cell before the verdict
            // is gone.
            store(cell, word::empty(word::generation(before)) | FROZEN);
        }
        self.clear(taken);
        stands
    }

    /// Takes the cell away from its owner, wherever that is. The caller has the stock lock, and has frozen the cell and
    /// fenced; `owner` is the present one of the cell's column, asked again and again. Returns the word, which is the
    /// caller's until it opens the cell; `None` when a fence is forbidden, or somebody writes over the ledger. Then nothing
    /// was taken.
    pub(crate) fn seize<'o>(
        owner: impl Fn() -> Option<&'o Owner>,
        cell: &Cell,
        fence: impl Fn() -> bool,
    ) -> Option<u64> {
        let (asked, taken) = (address(cell) | ASKED, address(cell) | TAKEN);
        for _ in 0..ROUNDS {
            // Before the word: a window that has ended shows its sum.
            let inside = owner().filter(|owner| (0..=LOOKS).all(|_| owner.is_in(cell)));
            if let Some(owner) = inside
                && owner.verdict.load(Ordering::Acquire) == taken
            {
                // An earlier taker had it, and this window has not ended since. Whatever the word says is void.
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
            // From here on the owner sees the verdict, or what it stored is seen here.
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
            // (Or the owner has done so, and is in another window.)
            owner.clear(asked);
            if !fenced {
                return None;
            }
        }
        None
    }

    /// Whether the owner is in a window of this cell.
    fn is_in(&self, cell: &Cell) -> bool {
        // Acquire, partner of the Release in `update`.
        self.at.load(Ordering::Acquire) == address(cell)
    }

    /// Whether the owner, which asks, may change its cells by atomics: not in a signal handler that interrupted a window.
    /// No verdict about an earlier window is left then, and none comes.
    pub(crate) fn is_outside(&self) -> bool {
        let outside = self.at.load(Ordering::Relaxed) == 0;
        if outside {
            // Partner of the taker's second fence: it sees that the window has ended, or its question is seen here.
            light_fence();
            self.void();
        }
        outside
    }

    /// Removes whatever verdict there is: it was about a window that has ended. (A taker that has just asked finds it gone,
    /// and looks again; one that answers at this moment is followed.)
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

    /// Nobody is in a window any more: the owner's thread ends, or this is a forked child that does not have it.
    ///
    /// # Safety
    /// The cell of a window that is open is still there.
    #[cfg(not(loom))]
    pub(super) unsafe fn forget(&self) {
        let at = self.at.load(Ordering::Relaxed);
        let verdict = self.verdict.load(Ordering::Acquire);
        if at != 0 && verdict == at | TAKEN {
            // Perhaps the sum was stored over the empty cell, and nobody will take it back.
            let generation = word::generation(self.taken.load(Ordering::Relaxed));
            // SAFETY: `at` is the address of a cell, which is there.
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

/// The owner's store, plain on the machine. (In the models an exchange whose result is not looked at: loom puts two stores
/// in order only if one happens before the other, where hardware keeps one order for each word.)
///
/// Release, partner of the Acquire with which others load the word: who takes units sees what was written before they came.
#[inline(always)]
fn store(cell: &Cell, word: u64) {
    #[cfg(not(loom))]
    cell.word.store(word, Ordering::Release);
    #[cfg(loom)]
    cell.word.swap(word, Ordering::AcqRel);
}

/// A numbered place inside a window at which a test can hold the thread (`owned/tests.rs`).
#[inline(always)]
fn point(_number: u32) {
    #[cfg(all(test, not(loom)))]
    tests::reach(_number);
}

#[cfg(all(test, not(loom)))]
pub(super) mod tests;
