//! Stores the thread caches, and finds the calling thread's.
//!
//! A thread that wants a thread cache gets a place near the hash of its thread pointer, and keeps it until it ends. If all of
//! these are taken, it has no thread cache, and its units come from the cells.

use super::{ThreadCache, mine};
use crate::region::row_set::Bits;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// The number of threads that may have a thread cache.
const PLACES: usize = 1 << 10;
/// The number of places in which a thread looks for a free one.
const NEAR: usize = 16;

static ALL: [ThreadCache; PLACES] = [const { ThreadCache::new() }; PLACES];
/// A bit for each thread cache that is open. Changed under the stock lock.
static OPEN: [AtomicU64; PLACES / 64] = [const { AtomicU64::new(0) }; PLACES / 64];
/// The thread cache of a thread that ends. Like the one before a thread gets its first (`mine.rs`), it is never opened.
static NONE_MORE: ThreadCache = ThreadCache::of_none();

/// Returns the calling thread's cache, or one that is never open.
#[inline]
pub(crate) fn mine() -> &'static ThreadCache {
    mine::get()
}

/// Returns the calling thread's cache, and whether it had it before. A thread without a thread cache gets one if a place near
/// its hash is free and `hear_its_end` returns that the thread's end will be reported. A thread cache that was another
/// thread's may be open. The caller has the stock lock.
pub(crate) fn claim(
    me: usize,
    hear_its_end: impl Fn(&'static ThreadCache) -> bool,
) -> Option<(&'static ThreadCache, bool)> {
    let mine = mine();
    if ptr::eq(mine, &raw const NONE_MORE) {
        return None;
    }
    if mine.is_of(me) {
        return Some((mine, true));
    }
    let first = me.wrapping_mul(0x9e37_79b9) >> 8;
    let near = (0..NEAR).map(|n| &ALL[(first + n) % PLACES]);
    // Acquire, partner of the Release with which a thread that ends gives its place back. The lock orders the rest.
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

/// Detaches the thread cache of the calling thread, which ends and will not open it again. `give_back` follows once the thread
/// cache is closed.
pub(crate) fn end() {
    mine::set(&NONE_MORE);
}

/// Frees the place of a thread that ends.
pub(crate) fn give_back(thread_cache: &ThreadCache) {
    thread_cache.give_to(0);
}

/// Frees the places of threads that do not exist in this process, a forked child. Their thread caches stay open: the next
/// thread that gets such a place closes it first, and drains take from it as from any other.
pub(crate) fn forget_other_threads(me: usize) {
    for place in ALL.iter().filter(|place| place.who.load(Ordering::Relaxed) != me) {
        give_back(place);
    }
}

/// Counts twice for each step in which units or counts have left a thread cache and have not arrived elsewhere, or the other
/// way round.
static MOVES: AtomicU64 = AtomicU64::new(0);

/// Marks a move of units or counts while it lives. The caller has the stock lock.
pub(crate) struct Moving(());

impl Moving {
    pub(crate) fn begin() -> Moving {
        // A fork may have left an odd number, which works as well.
        MOVES.store(MOVES.load(Ordering::Relaxed) | 1, Ordering::Relaxed);
        // Partner of the fence in `undisturbed`: a reader that sees a part of the move sees this store.
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

/// Calls `look`, and returns its result if nothing moved meanwhile.
pub(crate) fn undisturbed<T>(look: impl FnOnce() -> T) -> Option<T> {
    let before = MOVES.load(Ordering::Acquire);
    let seen = look();
    fence(Ordering::SeqCst);
    (before & 1 == 0 && MOVES.load(Ordering::Relaxed) == before).then_some(seen)
}

/// Calls `see` for the open thread caches. Uses loops instead of a chain of iterators, since a draining thread may have a
/// small stack.
pub(crate) fn each_open(mut see: impl FnMut(&'static ThreadCache)) {
    for (word, bits) in OPEN.iter().enumerate() {
        // Acquire, partner of the AcqRel in `note`: the fields of an open thread cache were written before.
        for bit in Bits(bits.load(Ordering::Acquire)) {
            see(&ALL[word * 64 + bit]);
        }
    }
}

/// Returns whether a thread cache is open.
pub(crate) fn is_open(thread_cache: &ThreadCache) -> bool {
    let (word, bit) = place(thread_cache);
    OPEN[word].load(Ordering::Acquire) & bit != 0
}

/// Notes that the caller, which has the stock lock, opened or closed a thread cache.
pub(crate) fn note(thread_cache: &ThreadCache, open: bool) {
    let (word, bit) = place(thread_cache);
    if open {
        OPEN[word].fetch_or(bit, Ordering::AcqRel);
    } else {
        OPEN[word].fetch_and(!bit, Ordering::AcqRel);
    }
}

fn place(thread_cache: &ThreadCache) -> (usize, u64) {
    let number =
        (ptr::from_ref(thread_cache).addr() - ALL.as_ptr().addr()) / size_of::<ThreadCache>();
    (number / 64, 1 << (number % 64))
}
