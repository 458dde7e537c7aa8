//! Where purses lie, and which the calling thread has.
//!
//! A thread that wants a purse gets a place near the hash of its thread pointer, and has it until it ends. Where all of
//! these are taken it goes without, and its units come from the cells.

use super::{Purse, mine};
use crate::region::row_set::Bits;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// How many threads may have a purse.
const PLACES: usize = 1 << 10;
/// In how many places a thread looks for one.
const NEAR: usize = 16;

static ALL: [Purse; PLACES] = [const { Purse::new() }; PLACES];
/// A bit for each purse that is open. Changed under the stock lock.
static OPEN: [AtomicU64; PLACES / 64] = [const { AtomicU64::new(0) }; PLACES / 64];
/// What a thread has when it ends: never opened, as what it has before it gets one (`mine.rs`).
static NONE_MORE: Purse = Purse::of_none();

/// The calling thread's purse, or one that is never open.
#[inline]
pub(crate) fn mine() -> &'static Purse {
    mine::get()
}

/// The calling thread's purse, and whether it had it before. It gets one if it has none, if a place is left near it, and
/// `hear_its_end` says that its end is heard of. (A purse that was another thread's may be open.) The caller has the stock lock.
pub(crate) fn claim(
    me: usize,
    hear_its_end: impl Fn(&'static Purse) -> bool,
) -> Option<(&'static Purse, bool)> {
    let mine = mine();
    if ptr::eq(mine, &raw const NONE_MORE) {
        return None;
    }
    if mine.is_of(me) {
        return Some((mine, true));
    }
    let first = me.wrapping_mul(0x9e37_79b9) >> 8;
    let near = (0..NEAR).map(|n| &ALL[(first + n) % PLACES]);
    // Acquire, partner of the Release with which a thread that ends gives its place back. (The lock orders the rest.)
    let of = |who| near.clone().find(move |place| place.who.load(Ordering::Acquire) == who);
    let free = of(me).or_else(|| of(0))?;
    if !hear_its_end(free) {
        return None;
    }
    free.give_to(me);
    free.forget_group();
    mine::set(free);
    Some((free, false))
}

/// The calling thread, which ends, will not open its purse again. (`give_back` comes when that is closed.)
pub(crate) fn end() {
    mine::set(&NONE_MORE);
}

/// Gives the place of a thread that ends to another.
pub(crate) fn give_back(purse: &Purse) {
    purse.give_to(0);
}

/// Gives back what threads have that this process, a forked child, does not have. (Their purses stay open: whoever gets the
/// place closes it first, and drains take from it as from any.)
pub(crate) fn forget_other_threads(me: usize) {
    for place in ALL.iter().filter(|place| place.who.load(Ordering::Relaxed) != me) {
        give_back(place);
    }
}

/// Counts twice for each step in which units or counts leave a purse and are not yet elsewhere, or the other way round.
static MOVES: AtomicU64 = AtomicU64::new(0);

/// While this lives, units or counts move. The caller has the stock lock.
pub(crate) struct Moving(());

impl Moving {
    pub(crate) fn begin() -> Moving {
        // (An odd number that a fork has left is as good as any.)
        MOVES.store(MOVES.load(Ordering::Relaxed) | 1, Ordering::Relaxed);
        // Partner of the fence in `undisturbed`: who sees what moves sees that something does.
        fence(Ordering::SeqCst);
        Moving(())
    }
}

impl Drop for Moving {
    fn drop(&mut self) {
        // Release, partner of the Acquire below.
        MOVES.store((MOVES.load(Ordering::Relaxed) | 1) + 1, Ordering::Release);
    }
}

/// Looks, and says what was seen if nothing moved meanwhile.
pub(crate) fn undisturbed<T>(look: impl FnOnce() -> T) -> Option<T> {
    let before = MOVES.load(Ordering::Acquire);
    let seen = look();
    fence(Ordering::SeqCst);
    (before & 1 == 0 && MOVES.load(Ordering::Relaxed) == before).then_some(seen)
}

/// Shows the open purses. (Loops, and no chain of iterators: who drains may have a small stack.)
pub(crate) fn each_open(mut see: impl FnMut(&'static Purse)) {
    for (word, bits) in OPEN.iter().enumerate() {
        // Acquire, partner of the AcqRel in `note`: what an open purse says of itself was written before.
        for bit in Bits(bits.load(Ordering::Acquire)) {
            see(&ALL[word * 64 + bit]);
        }
    }
}

/// Whether a purse is open.
pub(crate) fn is_open(purse: &Purse) -> bool {
    let (word, bit) = place(purse);
    OPEN[word].load(Ordering::Acquire) & bit != 0
}

/// The caller, which has the stock lock, opened a purse or closed it.
pub(crate) fn note(purse: &Purse, open: bool) {
    let (word, bit) = place(purse);
    if open {
        OPEN[word].fetch_or(bit, Ordering::AcqRel);
    } else {
        OPEN[word].fetch_and(!bit, Ordering::AcqRel);
    }
}

fn place(purse: &Purse) -> (usize, u64) {
    let number = (ptr::from_ref(purse).addr() - ALL.as_ptr().addr()) / size_of::<Purse>();
    (number / 64, 1 << (number % 64))
}
