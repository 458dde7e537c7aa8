//! A full level ends the work that holds most below it, not the work that asks.

use ledgerline::{CancelToken, Group, Ledger, LedgerBuilder, Limit, Reason, Refused, alloc};
use std::sync::Barrier;
use std::sync::mpsc::channel;
use std::time::Duration;

const MAX: u64 = 4 << 20;
const LONG: Duration = Duration::from_secs(60);

/// A tenant with a limit, and two groups without one.
fn tenant(builder: LedgerBuilder) -> [Group<'static>; 3] {
    let ledger = builder.capacity(8).anonymous().unwrap().into_static();
    let tenant = ledger.root().create("acme").unwrap();
    tenant.set_max(Limit::units(MAX)).unwrap();
    [tenant, tenant.create("large").unwrap(), tenant.create("small").unwrap()]
}

/// Holds so many bytes in a `catch` of `group` while `act` runs, then reaches a checkpoint.
fn while_it_holds<T>(
    group: Group<'static>,
    bytes: u64,
    act: impl FnOnce() -> T,
) -> (T, Result<(), Refused>) {
    let (begun, done) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|threads| {
        let work = threads.spawn(|| {
            group.catch(|| {
                let held = vec![1u8; bytes as usize];
                begun.wait();
                done.wait();
                alloc::checkpoint();
                drop(held);
            })
        });
        begun.wait();
        let result = act();
        done.wait();
        (result, work.join().unwrap())
    })
}

#[test]
fn the_work_that_holds_most_ends_and_the_one_that_asks_goes_on() {
    let [tenant, large, small] = tenant(Ledger::builder());
    let (asked, ended) =
        while_it_holds(large, MAX - 1000, || small.catch(|| vec![0u8; 65536].len()));
    assert_eq!(asked.unwrap(), 65536);
    let ended = ended.unwrap_err();
    assert_eq!((&*ended.group, ended.reason, ended.limit), ("/acme/large", Reason::Cancelled, MAX));
    assert_eq!(
        ended.to_string(),
        "/acme/large was cancelled to make room for others (64.0K requested)"
    );
    assert_eq!((large.local_events().oom_kill, tenant.local_events().oom), (1, 1));
    assert_eq!((small.stat().get("refused").unwrap().subtree, tenant.precise()), (0, 0));
}

#[test]
fn the_work_that_asks_ends_if_it_holds_most_with_what_it_asks_for() {
    let [tenant, other, asking] = tenant(Ledger::builder());
    let (asked, went_on) = while_it_holds(other, MAX / 4, || {
        asking.catch(|| {
            let held = vec![0u8; MAX as usize / 8];
            vec![0u8; MAX as usize].len() + held.len()
        })
    });
    assert_eq!(asked.unwrap_err().group, "/acme");
    went_on.unwrap();
    assert_eq!(tenant.precise(), 0);
}

#[test]
fn neighbours_of_work_that_is_ending_are_granted_what_it_will_give() {
    let [tenant, large, small] = tenant(Ledger::builder());
    let (asked, ended) = while_it_holds(large, MAX + 1000, || {
        let asked = small.catch(|| vec![0u8; 65536].len());
        // No more than that: otherwise it would grow while the other is being ended.
        (asked, small.catch(|| vec![0u8; 2 * MAX as usize].len()))
    });
    assert_eq!((asked.0.unwrap(), asked.1.unwrap_err().group.as_str()), (65536, "/acme"));
    assert_eq!(ended.unwrap_err().group, "/acme", "it was the largest when it asked");
    assert_eq!(tenant.precise(), 0);
}

#[test]
fn work_that_does_not_end_in_its_time_is_waited_for_no_longer() {
    let [_, large, small] = tenant(Ledger::builder().victim_time(Duration::ZERO));
    let (asked, ended) =
        while_it_holds(large, MAX + 1000, || small.catch(|| vec![0u8; 65536].len()));
    assert_eq!(asked.unwrap_err().group, "/acme");
    assert!(ended.is_err());
}

#[test]
fn work_under_the_policy_null_is_not_ended_for_others() {
    let [_, large, small] = tenant(Ledger::builder());
    let held = large.catch_with(alloc::Policy::NULL, || {
        let held = vec![1u8; MAX as usize - 1000];
        let asked = small.catch(|| vec![0u8; 65536].len());
        assert_eq!(asked.unwrap_err().group, "/acme");
        held.len()
    });
    assert_eq!(held.unwrap(), MAX as usize - 1000);
}

#[test]
fn the_tokens_of_a_group_fire_when_its_work_goes_over_its_limit() {
    for caught in [false, true] {
        let [_, query, other] = tenant(Ledger::builder());
        query.set_max(Limit::units(1 << 20)).unwrap();
        let (sender, told) = channel();
        let (token, others) = (CancelToken::new(), CancelToken::new());
        let _victims = (query.add_victim(&token), other.add_victim(&others));
        token.on_cancel(move |killed| sender.send(killed.clone()).unwrap());
        let work = || drop(vec![0u8; 2 << 20]);
        if caught {
            query.catch(work).unwrap_err();
        } else {
            query.scope(work);
        }
        let killed = told.recv_timeout(LONG).unwrap();
        assert_eq!((&*killed.group, &*killed.full), ("/acme/large", "/acme/large"));
        assert!(!others.is_cancelled());
    }
}

#[test]
fn a_victim_that_holds_most_is_cancelled_for_an_allocation_and_a_smaller_one_is_not() {
    let [tenant, large, small] = tenant(Ledger::builder());
    let token = CancelToken::new();
    let (sender, told) = channel();
    token.on_cancel(move |killed| sender.send(killed.clone()).unwrap());
    let victim = large.add_victim(&token);
    let held = large.try_charge(MAX - 1000).unwrap();
    assert_eq!(small.catch(|| vec![0u8; 65536].len()).unwrap(), 65536);
    let killed = told.recv_timeout(LONG).unwrap();
    assert_eq!((&*killed.group, &*killed.full), ("/acme/large", "/acme"));
    drop((held, victim));

    let token = CancelToken::new();
    let _victim = large.add_victim(&token);
    let _held = large.try_charge(1000).unwrap();
    let asked = small.catch(|| {
        let first = vec![0u8; MAX as usize / 2];
        first.len() + vec![0u8; MAX as usize].len()
    });
    assert_eq!(asked.unwrap_err().group, "/acme");
    assert!(!token.is_cancelled() && tenant.local_events().oom == 1);
}
