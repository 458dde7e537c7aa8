//! One process at a time settles the rows of ended processes, and frees them.
//!
//! ```text
//! take:      the word is 0, or names a process that has ended:  it names this one: taken
//!            it names a living process:                         a turn, for a while
//! let go:    the word is 0
//! ```
//!
//! A settler that was killed leaves its number in the word, and the next one takes over from it and repeats the
//! unfinished work: each step takes out, by a swap, the units that are still there.
//!
//! A process that waits in vain leaves the rows to the present settler. Memory of the dead processes is then held a
//! little longer, and a charge that needs it is refused. So the wait is long, a fifth of a second: a settler checks
//! whether many processes live, and may be preempted. A process that waited in vain four times only waits briefly from
//! then on: the word may have been written over and name a process that never settles.

use crate::sync::{Ordering, PATIENCE, are_calls_forbidden, wait_a_turn};
use crate::table::{Table, attached};
use std::sync::atomic::AtomicU32;

/// In the word: a process settles. Its number is in the lower half.
const TAKEN: u64 = 1 << 32;
/// How many turns a caller waits for the settler if its work can be done later, or if longer waits were in vain
/// [`MANY`] times.
pub(super) const SHORT: u32 = 300;
/// How many turns a caller waits otherwise.
pub(super) const LONG: u32 = PATIENCE;
const MANY: u32 = 4;
/// How many waits of this process were in vain since the last long one that succeeded. Relaxed: it orders nothing.
static IN_VAIN: AtomicU32 = AtomicU32::new(0);
/// Every so many turns a waiter checks whether the settler lives, which takes a system call.
const ASK: u32 = 50;

/// This process is the settler. Dropping this ends that.
#[derive(Debug)]
pub(super) struct Settler<'t> {
    table: &'t Table,
    own: u64,
}

/// Returns the word that stands for this process.
fn own(table: &Table) -> u64 {
    // The process that made the ledger, one that opened it, or a forked child may not be attached. It still needs its
    // own number in the word: if it is killed while it settles, no other process must take the word for its own, or for
    // that of the living parent. Reading the number takes a system call. If system calls are forbidden, the table's
    // number is used, and the word may then stay after a kill.
    let number = match table.process() {
        0 => std::process::id(),
        number if number != u32::MAX && attached::is_here() || are_calls_forbidden() => number,
        _ => std::process::id(),
    };
    TAKEN | u64::from(number)
}

impl<'t> Settler<'t> {
    /// Becomes the settler. Returns `None` if another process or thread stays the settler for `patience` turns.
    pub(super) fn take(
        table: &'t Table,
        alive: &dyn Fn(u32) -> bool,
        patience: u32,
    ) -> Option<Self> {
        let (word, own) = (&table.header().given.settler, own(table));
        let mut expected = 0;
        let hopeless = IN_VAIN.load(Ordering::Relaxed) >= MANY;
        for turn in 0..if hopeless { patience.min(SHORT) } else { patience } {
            // Acquire, partner of the Release in `drop`: the last settler's writes are seen.
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

    /// Forgets that this process settles: an earlier program in it did, before an `exec`, or an earlier process with
    /// the same number.
    pub(super) fn forget_own(table: &Table, number: u32) {
        let own = TAKEN | u64::from(number);
        let word = &table.header().given.settler;
        let _ = word.compare_exchange(own, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

impl Drop for Settler<'_> {
    fn drop(&mut self) {
        // If another process was told that this one is dead, it has taken over, and the word is no longer ours.
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
        // A living settler that another process has replaced does not change the word.
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
            // Three tries, for a machine on which that thread gets no CPU for a while.
            let taken = (0..3).any(|_| Settler::take(ledger.table(), &|_| true, LONG).is_some());
            assert!(taken, "a refusal would blame a limit for what the dead still hold");
        });
    }
}
