//! The ledgers of C, by number.
//!
//! A ledger's number is its place in a table that lives as long as the program, and a serial number that is never
//! used again. Any number may be looked up at any time, also while another thread frees that very ledger.
//!
//! ```text
//! enter(number)                             free(number)
//!   the place is kept for good and            enter(number), or there is nothing to free
//!     serves the number: in                   state: OPEN -> CLOSING, by one thread
//!   count oneself in                          number = 0
//!   the place serves the number: in           take back the lease: no thread charges by number any more
//!   otherwise: leave                          take its registrations out
//! leave                                       leave
//!   count oneself out
//!   state is CLOSING, all counts are zero, and this thread sets CHANGES first: drop the ledger
//! ```
//!
//! Invariant C1: *a ledger is there while any thread is in that saw its number after having counted itself.* The
//! number goes before the freeing thread looks at the counts, all in one order (SeqCst). A thread that counts itself
//! later sees the number gone, and leaves without a look at the ledger. A thread that counted itself before is seen.
//! Each thread leaves by the stripe by which it came, so no stripe falls below the number of those inside, and a look
//! that finds all of them zero, one after the other, has missed none. Of the last threads to leave, the very last one
//! finds all zero. The state bears the ledger's serial number: a thread that looked at the counts of one ledger never
//! ends the next one in that place.
//!
//! The fast half of a charge counts nothing; `Lease` explains why.
//!
//! A free never waits for the threads inside, since one of them may be the caller, in a callback. The last one out
//! drops the ledger.

use crate::failure::{Failure, Outcome, fail};
use crate::registrations;
use crate::types::ledgerline_code_t::*;
use crate::types::ledgerline_group_t;
use ledgerline::{Group, Lease, Ledger};
use std::hash::{BuildHasher, Hasher};
use std::num::NonZeroU64;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, OnceLock};

/// The number of ledgers at a time, plus one: the first place is never used, so that no number is zero.
const PLACES: usize = 1 << PLACE_BITS;
const PLACE_BITS: u32 = 12;
/// The counts of a place are spread over this many words.
const STRIPES: usize = 16;

/// The states of a place, in the bits that hold the place in a number. Above them is the ledger's serial number.
mod state {
    pub(super) const FREE: u64 = 0;
    /// A ledger is being put there, or the last thread out drops it.
    pub(super) const CHANGES: u64 = 1;
    pub(super) const OPEN: u64 = 2;
    pub(super) const KEPT: u64 = 3;
    pub(super) const CLOSING: u64 = 4;
    /// Its ledger was freed, and stays, since the remote fence is forbidden.
    pub(super) const GIVEN_UP: u64 = 5;

    const BITS: u64 = super::PLACES as u64 - 1;

    /// Returns the state word of the ledger of that number.
    pub(super) const fn of(number: u64, state: u64) -> u64 {
        number & !BITS | state
    }

    /// Returns the state in a word.
    pub(super) const fn which(word: u64) -> u64 {
        word & BITS
    }
}

#[repr(align(64))]
struct Place {
    /// First: the fast half of a charge reads this alone.
    lease: Lease,
    number: AtomicU64,
    /// An `Arc` that the place holds.
    ledger: AtomicPtr<Ledger>,
    inside: AtomicPtr<[Stripe; STRIPES]>,
    /// The address by which a group's ledger is known.
    address: AtomicUsize,
    /// See [`state`].
    state: AtomicU64,
}

#[repr(align(128))]
#[derive(Default)]
struct Stripe(AtomicU32);

static TABLE: [Place; PLACES] = [const {
    Place {
        lease: Lease::new(),
        number: AtomicU64::new(0),
        ledger: AtomicPtr::new(ptr::null_mut()),
        inside: AtomicPtr::new(ptr::null_mut()),
        address: AtomicUsize::new(0),
        state: AtomicU64::new(state::FREE),
    }
}; PLACES];

/// The highest place that was ever used.
static HIGHEST: AtomicUsize = AtomicUsize::new(0);

/// A thread inside: the ledger stays until this is dropped (C1).
pub(crate) struct Visit {
    place: &'static Place,
    /// The stripe by which it came; `None` for a ledger that is kept for good.
    stripe: Option<usize>,
    pub(crate) number: u64,
}

/// Returns the place of a number. Any number may be passed.
#[inline(always)]
fn place_of(number: u64) -> &'static Place {
    &TABLE[number as usize & (PLACES - 1)]
}

/// Returns the lease of a number, for the fast half of a charge.
#[inline(always)]
pub(crate) fn lease_of(number: u64) -> &'static Lease {
    &place_of(number).lease
}

/// Returns a stripe. Any will do; the stacks of threads are a megabyte or so apart. No thread-local variable is used:
/// a signal handler in a library that was loaded late may not make one.
fn my_stripe() -> usize {
    let here = 0u8;
    ((&raw const here).addr() as u64 >> 18).wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize
        >> (usize::BITS - STRIPES.ilog2())
}

/// Enters a ledger, if the number is one's. Async-signal-safe.
pub(crate) fn enter(number: u64) -> Option<Visit> {
    let place = place_of(number);
    if number == 0 {
        return None;
    }
    // Acquire, partner of the Release in `keep`: from KEPT on, the place serves this number for good.
    if place.state.load(Acquire) == state::of(number, state::KEPT)
        && place.number.load(Acquire) == number
    {
        return Some(Visit { place, stripe: None, number });
    }
    // Acquire, partner of the Release in `stripes`.
    // SAFETY: the stripes of a place are made once and never dropped.
    let stripes = unsafe { place.inside.load(Acquire).as_ref() }?;
    let stripe = my_stripe();
    // SeqCst, here and in all operations of C1.
    stripes[stripe].0.fetch_add(1, SeqCst);
    let visit = Visit { place, stripe: Some(stripe), number };
    if place.number.load(SeqCst) == number { Some(visit) } else { None }
}

impl Visit {
    /// Returns the handle of one of its groups.
    pub(crate) fn handle_of(&self, group: Group<'_>) -> ledgerline_group_t {
        handle(self.number, group)
    }

    pub(crate) fn ledger(&self) -> &Ledger {
        // SAFETY: C1; guarded by `tests/programs/freeing.c`.
        unsafe { &*self.place.ledger.load(Relaxed) }
    }

    /// Returns a share of the ledger, which stays beyond the visit.
    pub(crate) fn share(&self) -> Arc<Ledger> {
        let ledger = self.place.ledger.load(Relaxed).cast_const();
        // SAFETY: the pointer came from `Arc::into_raw`, and the place's share is there (C1).
        unsafe {
            Arc::increment_strong_count(ledger);
            Arc::from_raw(ledger)
        }
    }

    /// Returns the ledger, if it is kept for good.
    pub(crate) fn kept(&self) -> Outcome<&'static Ledger> {
        if state::which(self.place.state.load(Acquire)) != state::KEPT {
            let why = "only a ledger that is kept for good can have a current group: \
                       ledgerline_ledger_keep";
            return Err(fail(LEDGERLINE_ERROR_NOT_KEPT, why));
        }
        // SAFETY: KEPT is a place's last state; it never drops its share from then on.
        Ok(unsafe { &*self.place.ledger.load(Relaxed) })
    }

    /// Keeps the ledger for good.
    pub(crate) fn keep(&self) -> Outcome {
        // Release, partner of the Acquire in `enter`.
        match self.change(state::OPEN, state::KEPT) {
            Ok(_) => Ok(()),
            Err(other) if state::which(other) == state::KEPT => Ok(()),
            Err(_) => Err(closing()),
        }
    }

    /// Returns whether it is not being freed.
    pub(crate) fn is_open(&self) -> bool {
        matches!(state::which(self.place.state.load(SeqCst)), state::OPEN | state::KEPT)
    }

    fn change(&self, from: u64, to: u64) -> Result<u64, u64> {
        let [from, to] = [from, to].map(|state| state::of(self.number, state));
        self.place.state.compare_exchange(from, to, SeqCst, SeqCst)
    }
}

#[cold]
pub(crate) fn closing() -> Failure {
    fail(LEDGERLINE_ERROR_HANDLE, "another thread frees the ledger")
}

impl Drop for Visit {
    fn drop(&mut self) {
        let Some(stripe) = self.stripe else { return };
        // SAFETY: as in `enter`.
        let stripes = unsafe { &*self.place.inside.load(Acquire) };
        stripes[stripe].0.fetch_sub(1, SeqCst);
        let state = self.place.state.load(SeqCst);
        if state::which(state) == state::CLOSING {
            drop_if_last(self.place, stripes, state);
        }
    }
}

/// Drops a freed ledger if no thread is inside any more. `closing` was its state before the counts are read.
#[cold]
fn drop_if_last(place: &Place, stripes: &[Stripe; STRIPES], closing: u64) {
    if stripes.iter().any(|stripe| stripe.0.load(SeqCst) != 0)
        || place.state.compare_exchange(closing, state::CHANGES, SeqCst, SeqCst).is_err()
    {
        return;
    }
    let ledger = place.ledger.swap(ptr::null_mut(), Relaxed).cast_const();
    // SAFETY: the place's own share, which one thread takes (the exchange above) when no thread is inside (C1).
    drop(unsafe { Arc::from_raw(ledger) });
    // Release, partner of the Acquire in `add`.
    place.state.store(state::FREE, Release);
}

/// Returns a serial number that no ledger had in this process. The first is random, so that numbers of another copy
/// of the library, or of another run, name no ledger here.
fn serial() -> u64 {
    static FIRST: OnceLock<u64> = OnceLock::new();
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let first = *FIRST.get_or_init(|| {
        let lot = std::collections::hash_map::RandomState::new().build_hasher().finish();
        lot >> (PLACE_BITS + 1)
    });
    first.wrapping_add(1 + NEXT.fetch_add(1, Relaxed)) & (u64::MAX >> PLACE_BITS)
}

/// Finds a place for a ledger, and gives it a number.
pub(crate) fn add(ledger: Ledger) -> Outcome<u64> {
    // Acquire, partner of the Release in `drop_if_last`.
    let free = |place: &Place| {
        place.state.load(Relaxed) == state::FREE
            && place.state.compare_exchange(state::FREE, state::CHANGES, Acquire, Relaxed).is_ok()
    };
    let Some(index) = (1..PLACES).find(|&index| free(&TABLE[index])) else {
        let most = PLACES - 1;
        let why = format_args!("a process has at most {most} ledgers at a time; free one");
        return Err(fail(LEDGERLINE_ERROR_FULL, why));
    };
    let place = &TABLE[index];
    HIGHEST.fetch_max(index, Relaxed);
    if place.inside.load(Relaxed).is_null() {
        let stripes = Box::leak(Box::new(<[Stripe; STRIPES]>::default()));
        // Release, partner of the Acquire in `enter`.
        place.inside.store(stripes, Release);
    }
    let number = NonZeroU64::new(serial() << PLACE_BITS | index as u64);
    let number = number.expect("no ledger has the first place");
    let ledger = Arc::new(ledger);
    place.address.store(address_of(ledger.root()), Relaxed);
    // SAFETY: this thread alone has the place. `free` takes the lease back before the ledger can be dropped, and
    // gives the ledger up if that fails. The table is never dropped.
    unsafe { place.lease.lend(&ledger, number) };
    place.ledger.store(Arc::into_raw(ledger).cast_mut(), Relaxed);
    place.state.store(state::of(number.get(), state::OPEN), SeqCst);
    // A thread that sees the number sees all of the above.
    place.number.store(number.get(), SeqCst);
    Ok(number.get())
}

/// Frees a ledger: from now on its number names none.
pub(crate) fn free(visit: Visit) -> Outcome {
    let place = visit.place;
    match visit.change(state::OPEN, state::CLOSING) {
        Ok(_) => {}
        Err(other) if state::which(other) == state::KEPT => {
            return Err(fail(LEDGERLINE_ERROR_KEPT, "the ledger is kept for good"));
        }
        Err(_) => return Err(closing()),
    }
    place.number.store(0, SeqCst);
    if !place.lease.take_back() {
        // Another thread may charge by number even now. So the ledger stays, for good.
        place.state.store(state::GIVEN_UP, SeqCst);
    }
    registrations::take_out_of(visit.number);
    Ok(())
}

fn handle(ledger: u64, group: Group<'_>) -> ledgerline_group_t {
    ledgerline_group_t { ledger, id: group.id().to_bits() }
}

/// Returns the address by which a group knows its ledger.
fn address_of(group: Group<'_>) -> usize {
    ptr::from_ref(group.ledger()).addr()
}

/// Returns the handle of a group whose ledger is kept for good; `None` if the ledger did not come from C.
pub(crate) fn handle_of(group: Group<'static>) -> Option<ledgerline_group_t> {
    let address = address_of(group);
    let kept = |place: &&Place| {
        state::which(place.state.load(Acquire)) == state::KEPT
            && place.address.load(Relaxed) == address
    };
    let place = TABLE[1..=HIGHEST.load(Relaxed)].iter().find(kept)?;
    Some(handle(place.number.load(Acquire), group))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Ledger {
        Ledger::builder().capacity(4).anonymous().unwrap()
    }

    #[test]
    fn a_number_is_never_used_again_and_no_other_finds_a_ledger() {
        let first = add(small()).unwrap();
        assert!(enter(first).is_some());
        for wrong in [0, 1, first + (1 << PLACE_BITS), first ^ 1, u64::MAX, 1 << PLACE_BITS] {
            assert!(enter(wrong).is_none(), "{wrong:#x}");
        }
        free(enter(first).unwrap()).unwrap();
        assert!(enter(first).is_none());
        let numbers: Vec<u64> = (0..50)
            .map(|_| {
                let number = add(small()).unwrap();
                free(enter(number).unwrap()).unwrap();
                number
            })
            .collect();
        let different: std::collections::HashSet<_> = numbers.iter().collect();
        assert_eq!(different.len(), numbers.len());
        assert!(numbers.iter().all(|&number| number != first && enter(number).is_none()));
    }

    #[test]
    fn a_ledger_that_is_freed_stays_until_the_last_one_is_out() {
        let number = add(small()).unwrap();
        let inside = enter(number).unwrap();
        let watched = Arc::downgrade(&inside.share());
        free(enter(number).unwrap()).unwrap();
        assert!(enter(number).is_none() && watched.upgrade().is_some());
        assert!(inside.ledger().root().create("g").is_ok());
        assert!(free(enter(number).unwrap_or(inside)).is_err(), "it is freed once");
        assert!(watched.upgrade().is_none());
    }

    #[test]
    fn a_ledger_that_is_kept_is_not_freed_and_its_visitors_are_not_counted() {
        let number = add(small()).unwrap();
        assert!(enter(number).unwrap().kept().is_err());
        enter(number).unwrap().keep().unwrap();
        let visit = enter(number).unwrap();
        assert!(visit.stripe.is_none() && visit.keep().is_ok());
        let group = visit.kept().unwrap().root();
        assert_eq!(handle_of(group), Some(handle(number, group)));
        assert!(free(visit).is_err() && enter(number).is_some());
    }
}
