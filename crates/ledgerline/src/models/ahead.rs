//! Additions and subtractions are made before it is known whether they are valid (`counter/`). A thread that takes one
//! back disturbs no other thread for good.

use super::model_of_three;
use crate::counter::walk::{self, AtLimit};
use crate::counter::{COUNTER_MAX, PageCounter};
use crate::sync::{AtomicU32, Ordering};
use loom::sync::Arc;
use loom::thread;

/// More than any thread needs here, since none is stopped in the middle for good.
const PATIENCE: u32 = 12;

fn try_charge(counter: &PageCounter, n: u64) -> bool {
    let granted = walk::reserve(&[counter], n, AtLimit::Refuse, PATIENCE).is_ok();
    if granted {
        walk::commit(&[counter], n, AtLimit::Refuse);
    }
    granted
}

/// Makes three requests at a time and returns no units, so a request that was refused would not fit in the end either.
fn requests(max: u64, asked: [u64; 3]) {
    model_of_three(move || {
        let counter = Arc::new(PageCounter::new(max));
        let others = [asked[1], asked[2]].map(|n| {
            let counter = counter.clone();
            thread::spawn(move || try_charge(&counter, n))
        });
        let first = try_charge(&counter, asked[0]);
        assert!(counter.usage() <= max);
        let [second, third] = others.map(|other| other.join().unwrap());
        let answers = || asked.into_iter().zip([first, second, third]);
        let granted: u64 = answers().filter(|it| it.1).map(|it| it.0).sum();
        for (n, granted_too) in answers() {
            assert!(granted_too || granted + n > max, "{n} beside {granted} of {max}");
        }
        assert_eq!((counter.usage(), counter.pending()), (granted, 0));
        assert_eq!(counter.watermark(), granted);
    });
}

#[test]
fn of_two_additions_the_one_that_is_taken_back_refuses_no_third() {
    requests(10, [4, 6, 6]);
    requests(10, [6, 6, 4]);
}

#[test]
fn a_large_request_that_does_not_fit_refuses_no_small_one() {
    requests(10, [5, 5, 6]);
    requests(10, [11, 9, 1]);
}

#[test]
fn a_request_too_large_to_be_added_before_it_is_known_to_fit_refuses_no_small_one() {
    // Beside a request that is added at once.
    requests(10 << 32, [4, 6 << 32, 6 << 32]);
    requests(10 << 32, [6 << 32, 4 << 32, 5]);
}

#[test]
fn additions_around_a_lowered_limit_are_counted_or_see_it() {
    model_of_three(|| {
        let counter = Arc::new(PageCounter::new(10));
        assert!(try_charge(&counter, 4));
        let [setting, charging] = [(); 2].map(|()| counter.clone());
        let set = thread::spawn(move || setting.set_max(6, || true).is_ok());
        let five = thread::spawn(move || try_charge(&charging, 5));
        let two = try_charge(&counter, 2);
        assert!(counter.usage() <= counter.max());
        let (set, five) = (set.join().unwrap(), five.join().unwrap());
        let usage = 4 + 5 * u64::from(five) + 2 * u64::from(two);
        assert_eq!((counter.usage(), counter.pending()), (usage, 0));
        assert_eq!(counter.max(), if set { 6 } else { 10 });
        assert!(usage <= counter.max(), "{usage} of {}", counter.max());
        assert!(set || usage > 6, "nothing stood in the way of the limit");
        assert!(five || usage + 5 > counter.max());
        assert!(two || usage + 2 > counter.max());
    });
}

/// A row of several groups. The thread that frees it reuses it at once, and the next group charges `charged`, or ends at
/// once.
struct Row {
    counter: PageCounter,
    /// How many groups were retired; counted before the row is closed.
    retired: AtomicU32,
    freed: AtomicU32,
    lives: u32,
    charged: u64,
}

impl Row {
    /// Returns a row with 5 units charged.
    fn new(lives: u32, charged: u64) -> Arc<Row> {
        let counter = PageCounter::new(100);
        assert!(try_charge(&counter, 5));
        let [retired, freed] = [0; 2].map(AtomicU32::new);
        Arc::new(Row { counter, retired, freed, lives, charged })
    }

    fn free(&self, emptied: bool) {
        if !emptied {
            return;
        }
        let freed = self.freed.fetch_add(1, Ordering::AcqRel) + 1;
        self.counter.reset();
        self.counter.open();
        if freed < self.lives {
            self.close();
        } else if freed == self.lives {
            assert!(try_charge(&self.counter, self.charged));
        }
    }

    fn close(&self) {
        self.retired.fetch_add(1, Ordering::Relaxed);
        self.counter.close();
        self.free(self.counter.let_go());
    }

    fn uncharge(&self, n: u64) -> bool {
        let (emptied, result) = walk::uncharge(&[&self.counter], n);
        self.free(emptied.levels().count() == 1);
        result.is_ok()
    }

    /// Makes a late walk, which finds the row closed or sees that it belongs to another group now.
    fn stray(&self, n: u64) {
        let emptied = match walk::reserve(&[&self.counter], n, AtLimit::Refuse, PATIENCE) {
            Ok(()) => walk::cancel(&[&self.counter], 0, n),
            Err((_, emptied)) => emptied,
        };
        self.free(emptied.levels().count() == 1);
    }
}

fn strays(lives: u32, stray: impl Fn(&Row) + Copy + Send + Sync + 'static) {
    model_of_three(move || {
        let row = Row::new(lives, 2);
        let [returning, late] = [(); 2].map(|()| row.clone());
        let returned = thread::spawn(move || assert!(returning.uncharge(5)));
        let late = thread::spawn(move || stray(&late));
        row.close();
        returned.join().unwrap();
        late.join().unwrap();
        assert_eq!(row.freed.load(Ordering::Relaxed), lives, "freed once a life");
        assert_eq!((row.counter.usage(), row.counter.pending()), (2, 0));
        assert_eq!(row.counter.max(), COUNTER_MAX);
        assert_eq!(row.counter.limits.high.load(Ordering::Relaxed), COUNTER_MAX);
        // It is too low only by the units that were granted during a mistaken uncharge.
        assert!(row.counter.watermark() <= 2);
        // Exact to the unit: neither more nor less can be returned, and then the row is empty.
        assert!(!row.uncharge(3) && row.uncharge(2));
        row.counter.close();
        assert!(row.counter.let_go());
    });
}

#[test]
fn a_late_walk_neither_frees_a_row_twice_nor_shows_in_its_next_life() {
    // As many units as a hold takes, and more.
    strays(1, |row| row.stray(1));
    strays(1, |row| row.stray(3));
}

#[test]
fn a_row_that_ends_again_at_once_is_freed_once_a_life() {
    strays(2, |row| row.stray(1));
}

#[test]
fn a_late_uncharge_takes_nothing_from_the_next_life() {
    strays(1, |row| assert!(!row.uncharge(7)));
}

#[test]
fn a_late_limit_neither_frees_a_row_twice_nor_holds_in_its_next_life() {
    strays(1, |row| {
        // Whether it still is the intended group. The row is reused only once here.
        let meant = || row.freed.load(Ordering::Acquire) == 0;
        row.free(row.counter.set_max(60, meant) == Ok(true));
    });
}

/// Mirrors `Group::change`: without the hold, the change may come after the next life began.
#[test]
fn what_is_changed_with_the_row_held_is_never_the_next_groups() {
    strays(1, |row| {
        row.counter.hold();
        if row.retired.load(Ordering::Relaxed) == 0 {
            row.counter.limits.high.store(7, Ordering::Relaxed);
        }
        row.free(row.counter.release_hold());
    });
}

/// Five units are in use, `more` are charged, five are returned, and `mistaken` are returned by mistake.
fn mistaken_uncharge(more: u64, mistaken: u64) {
    model_of_three(move || {
        let counter = Arc::new(PageCounter::new(100));
        assert!(try_charge(&counter, 5));
        let [wrong, right] = [mistaken, 5].map(|n| {
            let counter = counter.clone();
            thread::spawn(move || walk::uncharge(&[&counter], n).1.is_ok())
        });
        assert!(try_charge(&counter, more));
        assert!(counter.usage() <= 5 + more);
        let (wrong, right) = (wrong.join().unwrap(), right.join().unwrap());
        assert!(right || wrong, "its units were there");
        assert!(!wrong || mistaken <= 5 + more, "they never were");
        let returned = if right { 5 } else { 0 } + if wrong { mistaken } else { 0 };
        assert_eq!((counter.usage(), counter.pending()), (5 + more - returned, 0));
        assert!(counter.watermark() <= 5 + more);
    });
}

#[test]
fn an_uncharge_that_is_right_is_not_refused_for_one_that_is_not() {
    mistaken_uncharge(2, 8);
    // As much as the group holds for a moment, if the charge comes first.
    mistaken_uncharge(6, 9);
}
