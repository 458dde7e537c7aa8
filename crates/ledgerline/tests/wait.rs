//! Waiting for room: nobody is forgotten, nobody overtakes, nobody waits for what cannot be.

mod common;

use common::{LONG, in_both_modes, limited};
use ledgerline::{Group, Ledger, Limit, Mistakes, Reason};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

#[test]
fn no_waiter_is_forgotten_and_no_limit_is_passed() {
    in_both_modes("no_waiter_is_forgotten_and_no_limit_is_passed", || {
        const MAX: u64 = 1000;
        let ledger = Ledger::new().unwrap();
        let tenant = limited(ledger.root(), "tenant", MAX);
        let granted = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..8u64 {
                let (tenant, granted) = (&tenant, &granted);
                scope.spawn(move || {
                    let query = limited(*tenant, "query", 600);
                    for round in 0..common::times(2_000, 200_000) {
                        // Mostly more than half: one or two fit at a time.
                        let units = 1 + (round * 7919 + thread * 104_729) % 600;
                        let charge = query.try_charge_wait(units, LONG).expect("forgotten");
                        let in_use = granted.fetch_add(units, SeqCst) + units;
                        assert!(in_use <= MAX, "{in_use}");
                        if round % 64 == 0 {
                            std::thread::yield_now();
                        }
                        granted.fetch_sub(units, SeqCst);
                        drop(charge);
                    }
                    query.destroy().unwrap();
                });
            }
        });
        assert_eq!((tenant.precise(), ledger.mistakes()), (0, Mistakes::default()));
    });
}

#[test]
fn those_who_wait_are_served_in_the_order_in_which_they_came() {
    in_both_modes("those_who_wait_are_served_in_the_order_in_which_they_came", || {
        let ledger = Ledger::new().unwrap();
        let tenant = limited(ledger.root(), "tenant", 100);
        let first = tenant.try_charge(100).unwrap();
        let served = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for number in 0..6 {
                let (served, tenant) = (&served, &tenant);
                scope.spawn(move || {
                    // The first wants all: those behind it, who want little, do not pass it.
                    let units = if number == 0 { 100 } else { 60 };
                    let charge = tenant.try_charge_wait(units, LONG).unwrap();
                    served.lock().unwrap().push(number);
                    drop(charge);
                });
                // It queues (or is about to): nothing tells, but a moment is far more than it takes.
                std::thread::sleep(Duration::from_millis(100));
            }
            // A part is not enough for the first, and more than enough for the others.
            let mut first = first;
            let part = first.split(60).unwrap();
            drop(part);
            std::thread::sleep(Duration::from_millis(50));
            assert!(served.lock().unwrap().is_empty(), "{served:?}");
            drop(first);
        });
        assert_eq!(served.into_inner().unwrap(), [0, 1, 2, 3, 4, 5]);
    });
}

#[test]
fn what_cannot_be_is_refused_at_once_and_what_is_not_in_time() {
    let ledger = Ledger::new().unwrap();
    let tenant = limited(ledger.root(), "tenant", 100);
    let group = limited(tenant, "group", 1000);
    let start = Instant::now();
    assert_eq!(group.try_charge_wait(101, LONG).unwrap_err().limit, 100);
    let _charge = group.try_charge(60).unwrap();
    let refused = group.try_charge_wait(41, Duration::from_millis(30)).unwrap_err();
    assert_eq!((refused.reason, refused.limit, refused.usage), (Reason::Limit, 100, 60));
    assert!(start.elapsed() >= Duration::from_millis(30) && start.elapsed() < LONG);
    drop(group.try_charge_wait(40, LONG).unwrap());
}

#[test]
fn a_raised_limit_and_a_destroyed_group_end_the_wait() {
    in_both_modes("a_raised_limit_and_a_destroyed_group_end_the_wait", || {
        let ledger = Ledger::new().unwrap();
        let tenant = limited(ledger.root(), "tenant", 100);
        let group = tenant.create("group").unwrap();
        let _charge = tenant.try_charge(100).unwrap();
        let waits = |units| {
            let id = group.id();
            let ledger = &ledger;
            move || ledger.group(id).try_charge_wait(units, LONG).map(drop)
        };
        std::thread::scope(|scope| {
            let waiter = scope.spawn(waits(50));
            std::thread::sleep(Duration::from_millis(50));
            tenant.set_max(Limit::units(150)).unwrap();
            waiter.join().unwrap().unwrap();
            let waiter = scope.spawn(waits(60));
            std::thread::sleep(Duration::from_millis(50));
            group.destroy().unwrap();
            assert_eq!(waiter.join().unwrap().unwrap_err().reason, Reason::Gone);
        });
    });
}

#[test]
fn one_who_is_full_elsewhere_next_waits_there() {
    in_both_modes("one_who_is_full_elsewhere_next_waits_there", || {
        let ledger = Ledger::new().unwrap();
        let tenant = limited(ledger.root(), "tenant", 100);
        let query = limited(tenant, "query", 50);
        let held = (query.try_charge(50).unwrap(), tenant.try_charge(50).unwrap());
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| query.try_charge_wait(50, LONG).map(drop));
            std::thread::sleep(Duration::from_millis(50));
            // Now its own limit has room, and the tenant's is taken by another at once.
            let other = {
                tenant.set_max(Limit::units(150)).unwrap();
                let other = tenant.try_charge(50).unwrap();
                drop(held.0);
                let _ = tenant.set_max(Limit::units(100));
                other
            };
            std::thread::sleep(Duration::from_millis(50));
            drop(held.1);
            drop(other);
            waiter.join().unwrap().unwrap();
        });
    });
}

#[test]
fn many_queues_at_a_time_are_served() {
    let ledger = Ledger::new().unwrap();
    let groups: Vec<Group<'_>> = (0..40).map(|_| limited(ledger.root(), "group", 10)).collect();
    let charges: Vec<_> = groups.iter().map(|group| group.try_charge(10).unwrap()).collect();
    std::thread::scope(|scope| {
        let waiters: Vec<_> = groups
            .iter()
            .map(|group| scope.spawn(|| group.try_charge_wait(10, LONG).map(drop)))
            .collect();
        std::thread::sleep(Duration::from_millis(50));
        drop(charges);
        for waiter in waiters {
            waiter.join().unwrap().unwrap();
        }
    });
}
