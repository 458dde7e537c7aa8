//! Limits are changed while other threads change and read them (`counter/changes.rs`).

use super::model;
use crate::counter::PageCounter;
use loom::sync::Arc;
use loom::thread;

#[test]
fn a_limit_that_was_set_is_never_taken_for_one_that_was_written_over() {
    model(|| {
        let counter = Arc::new(PageCounter::new(10));
        let other = counter.clone();
        let sets = thread::spawn(move || other.set_max_now(7, || true).is_ok());
        assert!(counter.are_limits_sealed());
        assert_eq!(counter.set_max(8, || true), Ok(false));
        assert!(counter.are_limits_sealed());
        assert!(sets.join().unwrap());
        assert!(counter.are_limits_sealed());
        assert_eq!(counter.changes(), 2);
    });
}

#[test]
fn a_change_is_collected_once_whoever_collects() {
    model(|| {
        let counter = Arc::new(PageCounter::new(10));
        let [sets, collects] = [counter.clone(), counter.clone()];
        let sets = thread::spawn(move || sets.set_max_now(7, || true).is_ok());
        let collects = thread::spawn(move || collects.take_uncollected().all());
        let here = counter.take_uncollected().all();
        assert!(sets.join().unwrap());
        let there = collects.join().unwrap();
        assert_eq!(here + there + counter.take_uncollected().all(), 1);
    });
}
