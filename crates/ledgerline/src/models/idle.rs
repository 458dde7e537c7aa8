//! The bound on idle units, and the accuracy of watermarks and drain checks.

use super::model;
use crate::counter::PageCounter;
use crate::counter::walk;
use crate::sync::{Ordering, fence};
use loom::sync::Arc;
use loom::thread;

fn charged(n: u64) -> Arc<PageCounter> {
    let counter = Arc::new(PageCounter::new(1 << 20));
    walk::try_charge(&[&counter], n).unwrap();
    counter
}

#[test]
fn of_a_cap_that_is_allowed_and_units_that_go_one_sees_the_other() {
    // A usage of a hundred allows 12 units of cap; a usage of zero tolerates four.
    const SLACK: u64 = 5;
    model(|| {
        let counter = charged(100);
        let other = counter.clone();
        let opening = thread::spawn(move || other.allow(12, Some(SLACK)).is_ok());
        walk::uncharge(&[&counter], 100).1.unwrap();
        // As after every return of units (`stock/caps.rs`).
        fence(Ordering::SeqCst);
        let seen = counter.overstocked_for_usage(SLACK);
        let allowed = opening.join().unwrap();
        assert!(!allowed || seen, "twelve lie idle below a group that uses nothing");
        assert!(counter.idle_at_most() == if allowed { 12 } else { 0 });
    });
}

#[test]
fn of_idle_units_that_come_and_go_a_look_misses_none() {
    model(|| {
        let counter = charged(1);
        let other = counter.clone();
        let fetching = thread::spawn(move || {
            // In flight and back again: no charge.
            for surplus in [4, 8] {
                other.track.in_flight.add(surplus);
                walk::try_charge(&[&other], surplus).unwrap();
                walk::uncharge(&[&other], surplus).1.unwrap();
                other.track.in_flight.take(surplus);
            }
        });
        if let Some((usage, idle)) = counter.look() {
            assert!(usage - usage.min(idle) <= 1, "{usage} with {idle} idle: one is charged");
        }
        fetching.join().unwrap();
        assert_eq!(counter.look(), Some((1, 0)));
        let (least, most) = counter.peak();
        assert!(least == 1 && most >= 5, "{least}..={most}");
    });
}

#[test]
fn a_peak_from_before_a_reset_does_not_count_after_it() {
    model(|| {
        let counter = charged(3);
        let other = counter.clone();
        // Nothing is charged at the time of the reset.
        let seen = counter.lower_watermark();
        let late = thread::spawn(move || other.raise_lower_watermark(seen, 5));
        walk::uncharge(&[&counter], 3).1.unwrap();
        counter.reset_watermark();
        late.join().unwrap();
        // Only the turn is left.
        assert_eq!((counter.lower_watermark() / 2, counter.peak()), (0, (0, 0)));
    });
}
