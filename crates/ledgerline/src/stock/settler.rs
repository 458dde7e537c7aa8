//! One process at a time settles the rows of ended processes, and frees them.
//!
//! ```text
//! take:      the word is 0, or names a process that has ended:  it names this one: taken
//!            it names a living process:                         a turn, for a while
//! let go:    the word is 0
//! ```
//!
//! A settler that was killed leaves its number in the word, and the next takes over from it. What it had begun is done
//! again: each step takes out, by a swap, what is still there.
//!
//! Whoever waits in vain leaves the rows to the process that settles now. So memory of the dead is held a little
//! longer, and a charge that only needs that is refused. So the wait is long, a fifth of a second: a settler asks of
//! many processes whether they live, and may lose its CPU. Who waited in vain four times waits a moment from then on:
//! the word may have been written over, and names somebody who never settles.

use crate::sync::{Ordering, PATIENCE, are_calls_forbidden, wait_a_turn};
use crate::table::{Table, attached};
use std::sync::atomic::AtomicU32;

/// In the word: somebody settles. The process's number is in the lower half.
const TAKEN: u64 = 1 << 32;
/// For how many turns the settler is waited for by what can be done later, and where longer waits were in vain [`MANY`]
/// times.
pub(super) const SHORT: u32 = 300;
/// For how many turns it is waited for otherwise.
pub(super) const LONG: u32 = PATIENCE;
const MANY: u32 = 4;
/// How many waits of this process were in vain, since a long one was not. (Relaxed: it orders nothing.)
static IN_VAIN: AtomicU32 = AtomicU32::new(0);
/// In how many turns it is asked once whether the settler lives: that takes a system call.
const ASK: u32 = 50;

/// This process settles, until this is dropped.
#[derive(Debug)]
pub(super) struct Settler<'t> {
    table: &'t Table,
    own: u64,
}

/// The word that stands for this process.
fn own(table: &Table) -> u64 {
    // Neither the process that made the ledger need be attached, nor one that opened it, nor a forked child. Its own number
    // it has all the same: if it is killed while it settles, nobody must take the word for its own, or for that of the
    // parent, which lives. (To ask for it takes a system call. Where those are forbidden the word may stay so.)
    let number = match table.process() {
        0 => std::process::id(),
        number if number != u32::MAX && attached::is_here() || are_calls_forbidden() => number,
        _ => std::process::id(),
    };
    TAKEN | u64::from(number)
}

impl<'t> Settler<'t> {
    /// Becomes the settler; `None` if another process, or another thread, is that for too long: for so many turns.
    pub(super) fn take(
        table: &'t Table,
        alive: &dyn Fn(u32) -> bool,
        patience: u32,
    ) -> Option<Self> {
        let (word, own) = (&table.header().given.settler, own(table));
        let mut expected = 0;
        let hopeless = IN_VAIN.load(Ordering::Relaxed) >= MANY;
        for turn in 0..if hopeless { patience.min(SHORT) } else { patience } {
            // Acquire, partner of the Release in `drop`: what the last settler wrote is seen.
            let taken = word.compare_exchange(expected, own, Ordering::Acquire, Ordering::Relaxed);
            let Err(holder) = taken else {
                if turn > SHORT / 2 {
                    IN_VAIN.store(0, Ordering::Relaxed);
                }
                return Some(Settler { table, own });
            };
            let gone = holder != 0 && holder != own && turn % ASK == 0 && !alive(holder as u32);
            expected = if gone { holder } else { 0 };
            if !gone {
                wait_a_turn(turn);
            }
        }
        if patience > SHORT {
            IN_VAIN.fetch_add(1, Ordering::Relaxed);
        }
        None
    }

    /// Forgets that this process settles: an earlier program in it did, before an `exec`, or a process of that number.
    pub(super) fn forget_own(table: &Table, number: u32) {
        let own = TAKEN | u64::from(number);
        let word = &table.header().given.settler;
        let _ = word.compare_exchange(own, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

impl Drop for Settler<'_> {
    fn drop(&mut self) {
        // (Another has taken over if it was told that this process is dead. Then the word is not ours.)
        let word = &self.table.header().given.settler;
        let _ = word.compare_exchange(self.own, 0, Ordering::Release, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ledger;

    #[test]
    fn a_settler_that_lives_is_left_alone_and_one_that_died_is_replaced() {
        let ledger = Ledger::builder().capacity(4).anonymous().unwrap();
        let table = ledger.table();
        let word = &table.header().given.settler;
        {
            let _settler = Settler::take(table, &|_| true, LONG).unwrap();
            assert_eq!(word.load(Ordering::Relaxed), own(table));
            // Another thread of this process.
            assert!(Settler::take(table, &|_| false, LONG).is_none());
        }
        assert_eq!(word.load(Ordering::Relaxed), 0);
        let other = TAKEN | 4711;
        word.store(other, Ordering::Relaxed);
        assert!(Settler::take(table, &|_| true, SHORT).is_none());
        assert_eq!(word.load(Ordering::Relaxed), other);
        let settler = Settler::take(table, &|process| process != 4711, SHORT).unwrap();
        // Who is taken over from while it lives lets go of nothing.
        word.store(other, Ordering::Relaxed);
        drop(settler);
        assert_eq!(word.load(Ordering::Relaxed), other);
        Settler::forget_own(table, 4711);
        assert!(Settler::take(table, &|_| true, SHORT).is_some());
    }

    #[test]
    fn a_settler_that_takes_its_time_is_waited_for() {
        let ledger = Ledger::builder().capacity(4).anonymous().unwrap();
        let (taken, wait) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let ledger = &ledger;
            scope.spawn(move || {
                let other = Settler::take(ledger.table(), &|_| true, LONG).unwrap();
                taken.send(()).unwrap();
                std::thread::sleep(std::time::Duration::from_millis(20));
                drop(other);
            });
            wait.recv().unwrap();
            // (Thrice, for a machine on which that thread gets no CPU for a while.)
            let taken = (0..3).any(|_| Settler::take(ledger.table(), &|_| true, LONG).is_some());
            assert!(taken, "a refusal would blame a limit for what the dead still hold");
        });
    }
}
