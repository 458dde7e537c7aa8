//! A request that waits for room misses no notification of a thread that returns units.

use super::model;
use crate::counter::PageCounter;
use crate::counter::walk;
use crate::wake::eventcount::Eventcount;
use crate::wake::queue_head::{Open, QueueHead};
use crate::wake::rung::Rung;
use loom::sync::{Arc, Mutex};
use loom::thread;

/// The thread that returns units checks whether any queue is open, and then looks at its row's head. The waiter has opened
/// the queue.
#[test]
fn of_units_that_come_back_and_a_wait_one_sees_the_other() {
    model(|| {
        let all = Arc::new((Open::default(), QueueHead::default(), PageCounter::new(4)));
        walk::try_charge(&[&all.2], 4).unwrap();
        let other = all.clone();
        let returned = thread::spawn(move || {
            let (open, head, counter) = &*other;
            walk::uncharge(&[counter], 4).1.unwrap();
            if open.any_after_return() && head.group() != 0 {
                head.notify(|_| unreachable!("a thread waits"));
            }
        });
        let (open, head, counter) = &*all;
        head.serve(7);
        open.announce();
        let key = head.eventcount.key();
        let room = counter.usage() == 0;
        returned.join().unwrap();
        assert!(room || head.eventcount.is_past(key), "it would sleep for ever");
    });
}

/// The same after another waiter has opened the queue and left it: the next one opens nothing.
#[test]
fn of_units_that_come_back_and_the_next_of_a_queue_one_sees_the_other() {
    model(|| {
        let all = Arc::new((Open::default(), QueueHead::default(), PageCounter::new(4)));
        walk::try_charge(&[&all.2], 4).unwrap();
        let (returning, opening) = (all.clone(), all.clone());
        let queues = Arc::new(Mutex::new(()));
        let lock = queues.clone();
        let returned = thread::spawn(move || {
            let (open, head, counter) = &*returning;
            walk::uncharge(&[counter], 4).1.unwrap();
            if open.any_after_return() && head.group() != 0 {
                head.notify(|_| unreachable!("a thread waits"));
            }
        });
        let opened = thread::spawn(move || {
            let _queues = lock.lock().unwrap();
            opening.1.serve(7);
            opening.0.announce();
        });
        let (open, head, counter) = &*all;
        let is_open = {
            let _queues = queues.lock().unwrap();
            open.any()
        };
        let key = head.eventcount.key();
        let room = counter.usage() == 0;
        returned.join().unwrap();
        opened.join().unwrap();
        assert!(!is_open || room || head.eventcount.is_past(key), "it would sleep for ever");
    });
}

/// A sleeper without the kernel's own check of the count, which comes after this one.
#[test]
fn of_a_notice_and_a_sleep_one_sees_the_other() {
    model(|| {
        let eventcount = Arc::new(Eventcount::default());
        let key = eventcount.key();
        let other = eventcount.clone();
        let notice = thread::spawn(move || other.advance());
        let sleeps = eventcount.announce(key);
        let woken = notice.join().unwrap();
        assert!(!sleeps || woken, "nobody wakes it");
        eventcount.retire();
    });
}

/// The future, the thread that rings, and the thread that wakes futures (`control/alarm.rs`). The waking thread looks once:
/// either it finds the alarm set and rung, or it would look again, or the future looks again.
#[test]
fn of_a_ring_and_an_alarm_the_future_is_woken_or_sees_it() {
    model(|| {
        const NUMBER: u32 = 70;
        let rung = Rung::default();
        rung.make_room(NUMBER);
        let all = Arc::new((QueueHead::default(), rung, Mutex::new(false)));
        let (ringing, waking) = (all.clone(), all.clone());
        let ringer = thread::spawn(move || {
            let (head, rung, _) = &*ringing;
            head.notify(|number| rung.ring(number));
        });
        let thread = thread::spawn(move || {
            let (_, rung, alarm) = &*waking;
            let key = rung.eventcount.key();
            let mut alarm = alarm.lock().unwrap();
            let mut woken = false;
            rung.take(|number| {
                assert_eq!(number, NUMBER);
                woken = std::mem::take(&mut *alarm);
            });
            (woken, key)
        });
        let (head, rung, alarm) = &*all;
        // The thread has looked before, and found nothing.
        let key = 0;
        *alarm.lock().unwrap() = true;
        head.leave_alarm(NUMBER);
        let pending = !head.eventcount.is_past(key);
        ringer.join().unwrap();
        let (woken, key) = thread.join().unwrap();
        let mut would_wake = false;
        let comes_again = rung.eventcount.is_past(key);
        rung.take(|_| would_wake = std::mem::take(&mut *alarm.lock().unwrap()));
        assert!(!pending || woken || comes_again && would_wake, "the future sleeps for ever");
    });
}

/// If two threads ring at once, neither number is lost, whenever they are taken.
#[test]
fn what_is_rung_is_taken_by_one_who_comes_again_when_told() {
    model(|| {
        let rung = Rung::default();
        rung.make_room(1);
        let rung = Arc::new(rung);
        let ringers = [1, 2].map(|number| {
            let rung = rung.clone();
            thread::spawn(move || rung.ring(number))
        });
        let mut taken = 0;
        let key = rung.eventcount.key();
        rung.take(|number| taken |= number);
        ringers.into_iter().for_each(|ringer| ringer.join().unwrap());
        if rung.eventcount.is_past(key) {
            rung.take(|number| taken |= number);
        }
        assert_eq!(taken, 3);
    });
}
