//! The library's own needs are exempt from charging. The current group may be full, but the refusal, the diagnosis, the place
//! in a queue, the reclaimer and the end of a group still work.

use ledgerline::alloc::Policy;
use ledgerline::{Group, Ledger, Limit, Reason};
use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Runs `work` in a group that has no room for a single byte, and a limit below its usage.
fn in_full_group<R>(ledger: &'static Ledger, work: impl FnOnce(Group<'static>) -> R) -> R {
    let full = ledger.root().create("full").unwrap();
    let rows = full.scope(|| black_box(vec![0u8; 600_000]));
    full.set_max_now(Limit::units(500_000)).unwrap();
    let result = full.scope(|| work(full));
    assert_eq!(full.precise(), 600_000, "nothing of it was charged there");
    drop(rows);
    full.destroy().unwrap();
    result
}

fn ledger() -> &'static Ledger {
    let ledger = Ledger::builder().capacity(64).anonymous().unwrap().into_static();
    ledger.set_alloc_policy(Policy::NULL);
    ledger
}

#[test]
fn a_charge_that_is_refused_says_so_where_the_current_group_is_full() {
    let ledger = ledger();
    let refused = in_full_group(ledger, |full| full.try_charge(4096).unwrap_err());
    assert_eq!((refused.group.as_str(), refused.reason), ("/full", Reason::Limit));
    let explained =
        in_full_group(ledger, |full| full.request(10).explained().charge().unwrap_err());
    assert!(explained.diagnosis.is_some());
    // The code that handles the refusal does not fail because of it.
    let handled = in_full_group(ledger, |full| {
        let both = [1 << 20, 0].map(|allowance| {
            full.catch_within(allowance, || {
                full.try_charge(4096).is_err() && full.attempt(1).is_err()
            })
        });
        both.map(Result::unwrap)
    });
    assert_eq!(handled, [true, true]);
}

#[test]
fn who_looks_from_inside_of_a_full_group_sees_it() {
    let ledger = ledger();
    let groups = in_full_group(ledger, |full| {
        let (snapshot, diagnosis) = (ledger.snapshot(), full.diagnose());
        let leaks = ledger.leaks();
        let seen = snapshot.groups.len();
        assert!(diagnosis.requested.is_none() && leaks.is_empty());
        drop((snapshot, diagnosis, leaks));
        seen
    });
    assert_eq!(groups, 2);
}

#[test]
fn a_charge_elsewhere_waits_and_reclaims_where_the_current_group_is_full() {
    let ledger = ledger();
    let other = ledger.root().create("other").unwrap();
    other.set_max(Limit::units(100)).unwrap();
    let held = other.try_charge(80).unwrap();
    let later = thread::spawn(move || {
        thread::sleep(Duration::from_millis(30));
        drop(held);
    });
    let patience = Duration::from_secs(60);
    assert!(in_full_group(ledger, |_| other.request(50).wait(patience).charge().is_ok()));
    later.join().unwrap();
    let held = Mutex::new(Some(other.try_charge(80).unwrap()));
    let reclaim = move |_| {
        let list = black_box(vec![1u8; 3000]);
        drop(held.lock().unwrap().take());
        drop(list);
        80
    };
    let reclaimer = in_full_group(ledger, |_| other.add_reclaimer(0, reclaim));
    assert!(in_full_group(ledger, |_| other.try_charge(50).is_ok()));
    drop(reclaimer);
    let shared = in_full_group(ledger, |_| {
        let first = other.try_charge(10).unwrap().share();
        let second = first.join(other);
        drop(first);
        second
    });
    assert_eq!(other.precise(), 10);
    drop(shared);
}

#[test]
fn groups_end_where_the_current_group_is_full() {
    let ledger = ledger();
    in_full_group(ledger, |full| {
        let step = full.create("step").unwrap();
        let below = step.create("below").unwrap();
        drop(below.create("last").unwrap().destroy_on_drop());
        assert_eq!(step.destroy_tree().unwrap().len(), 2);
    });
}

#[test]
fn a_catch_whose_group_another_thread_destroys_ends_with_a_result() {
    let ledger = ledger();
    let tenant = ledger.root().create("tenant").unwrap();
    let over = AtomicBool::new(false);
    let current = Mutex::new(None::<Group<'static>>);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                if let Some(group) = current.lock().unwrap().take() {
                    let _gone = group.destroy();
                }
                thread::yield_now();
            }
        });
        for _ in 0..3000 {
            let query = tenant.create("query").unwrap();
            query.set_max(Limit::units(1000)).unwrap();
            *current.lock().unwrap() = Some(query);
            let result =
                query.catch(|| (0..20).map(|_| black_box(vec![0u8; 2000]).len()).sum::<usize>());
            // It was refused, or the groups above granted it.
            match result {
                Ok(bytes) => assert_eq!(bytes, 40_000),
                Err(refused) => assert_eq!(refused.limit, 1000),
            }
            let _gone = query.destroy();
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(tenant.precise(), 0);
}

#[test]
fn a_task_that_outlives_its_group_stays_below_its_tenants_limit() {
    let ledger = ledger();
    let tenant = ledger.root().create("tenant").unwrap();
    tenant.set_max(Limit::units(10_000)).unwrap();
    for kept in [0, 64] {
        let query = tenant.create("query").unwrap();
        query.scope(|| drop(black_box(vec![1u8; 100])));
        let keep = query.scope(|| black_box(vec![1u8; kept]));
        query.destroy().unwrap();
        let rows = query.scope(|| {
            let rows = black_box(vec![0u8; 5000]);
            assert!(Vec::<u8>::new().try_reserve_exact(1_000_000).is_err(), "{kept}");
            rows
        });
        assert_eq!(tenant.precise(), 5000 + kept as u64);
        drop((rows, keep));
        assert_eq!(tenant.precise(), 0);
    } // A group that never had a block has no record here.
    let unused = tenant.create("unused").unwrap();
    unused.destroy().unwrap();
    let rows = unused.scope(|| black_box(vec![0u8; 5000]));
    assert_eq!((tenant.precise(), ledger.root().precise()), (0, 5000));
    drop(rows);
}
