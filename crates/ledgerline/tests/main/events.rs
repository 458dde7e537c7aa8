//! Events are counted in the group and above, and reported to its watchers.

use crate::common::{in_both_modes, times};
use crate::support::{LONG, limited};
use ledgerline::{Events, Ledger, Limit, WATCHES_MAX, Watch};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

fn counts(events: Events) -> (u64, u64) {
    (events.high, events.max)
}

#[test]
fn an_event_counts_in_its_group_and_in_every_ancestors_subtree() {
    in_both_modes("an_event_counts_in_its_group_and_in_every_ancestors_subtree", || {
        let ledger = Ledger::new().unwrap();
        let tenant = limited(ledger.root(), "tenant", 1000);
        let [full, other] = [limited(tenant, "group", 100), limited(tenant, "group", 2000)];
        full.try_charge_units(101).unwrap_err();
        assert_eq!(counts(full.local_events()), (0, 1));
        assert_eq!(counts(tenant.local_events()), (0, 0), "its limit was not met");
        assert_eq!(counts(tenant.events()), (0, 1));
        // Refused by the tenant's limit, not by its own.
        other.try_charge_units(1500).unwrap_err();
        assert_eq!(counts(other.events()), (0, 0));
        assert_eq!((counts(tenant.local_events()), counts(tenant.events())), ((0, 1), (0, 2)));
        // Forced over both limits, above one high.
        tenant.set_high(Limit::units(10));
        full.charge_units(1200).unwrap();
        assert_eq!(counts(full.events()), (0, 2));
        assert_eq!((counts(tenant.local_events()), counts(tenant.events())), ((1, 2), (1, 4)));
        assert_eq!(counts(ledger.root().events()), (1, 4));
        assert_eq!(
            tenant.events().to_string(),
            "low 0\nhigh 1\nmax 4\noom 0\noom_kill 0\noom_group_kill 0\n"
        );
        // The events of a destroyed group stay only in its ancestors' subtrees.
        full.uncharge_units(1200);
        full.destroy().unwrap();
        let next = limited(tenant, "next", 100);
        assert_eq!(counts(next.events()), (0, 0), "a row's next group starts anew");
        assert_eq!((counts(tenant.local_events()), counts(tenant.events())), ((1, 2), (1, 4)));
        next.try_charge_units(101).unwrap_err();
        next.destroy().unwrap();
        assert_eq!(counts(ledger.root().events()), (1, 5));
    });
}

#[test]
fn whoever_is_woken_sees_the_count_that_woke_it() {
    in_both_modes("whoever_is_woken_sees_the_count_that_woke_it", || {
        let rounds = times(3_000, 300_000);
        let ledger = Ledger::new().unwrap();
        let tenant = ledger.root().create("tenant").unwrap();
        let full = limited(tenant, "full", 100);
        let watches = [tenant.watch().unwrap(), ledger.root().watch().unwrap()];
        // Raised before each event, so a waker that is called early is detected.
        let done = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for watch in &watches {
                let done = &done;
                scope.spawn(move || {
                    let mut last = 0;
                    while last < rounds {
                        let before = done.load(SeqCst);
                        let events = watch.wait(Some(LONG)).unwrap().expect("an event was lost");
                        assert!(events.max >= before, "{} of {before}", events.max);
                        assert!(events.max >= last);
                        last = events.max;
                    }
                });
            }
            for round in 1..=rounds {
                full.try_charge_units(101).unwrap_err();
                done.store(round, SeqCst);
                if round % 16 == 0 {
                    std::thread::yield_now();
                }
            }
        });
    });
}

#[test]
fn a_watch_hears_of_its_own_subtree_alone() {
    let ledger = Ledger::new().unwrap();
    let [a, b] = [limited(ledger.root(), "group", 100), limited(ledger.root(), "group", 100)];
    let (below_a, watch_a, watch_root) =
        (limited(a, "group", 50), a.watch().unwrap(), ledger.root().watch().unwrap());
    let ready = |watch: &Watch<'_>| watch.wait(Some(Duration::ZERO)).unwrap().map(counts);
    assert_eq!(ready(&watch_a), None, "what was before is not told");
    b.try_charge_units(101).unwrap_err();
    assert_eq!((ready(&watch_a), ready(&watch_root)), (None, Some((0, 1))));
    below_a.try_charge_units(51).unwrap_err();
    assert_eq!((ready(&watch_a), ready(&watch_root)), (Some((0, 1)), Some((0, 2))));
    assert_eq!((ready(&watch_a), ready(&watch_root)), (None, None), "told once");
}

#[test]
fn epoll_wakes_for_the_descriptor() {
    let ledger = Ledger::new().unwrap();
    let group = limited(ledger.root(), "group", 100);
    let watch = group.watch().unwrap();
    // SAFETY: plain calls on descriptors and buffers of this test.
    unsafe {
        let epoll = libc::epoll_create1(libc::EPOLL_CLOEXEC);
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 42 };
        let descriptor = watch.as_fd().as_raw_fd();
        assert_eq!(libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, descriptor, &raw mut event), 0);
        let mut seen = libc::epoll_event { events: 0, u64: 0 };
        assert_eq!(libc::epoll_wait(epoll, &raw mut seen, 1, 0), 0);
        group.try_charge_units(101).unwrap_err();
        assert_eq!(libc::epoll_wait(epoll, &raw mut seen, 1, 60_000), 1);
        assert_eq!({ seen.u64 }, 42);
        assert_eq!(watch.look().unwrap().max, 1);
        assert_eq!(libc::epoll_wait(epoll, &raw mut seen, 1, 0), 0, "looked at");
        libc::close(epoll);
    }
}

#[test]
fn watches_are_had_again_after_they_were_dropped_and_refused_when_there_are_too_many() {
    let ledger = Ledger::new().unwrap();
    let group = limited(ledger.root(), "group", 100);
    for _ in 0..3 {
        let watches: Vec<Watch<'_>> = (0..WATCHES_MAX).map(|_| group.watch().unwrap()).collect();
        let error = group.watch().unwrap_err();
        assert!(error.to_string().contains("drop one"), "{error}");
        group.try_charge_units(101).unwrap_err();
        assert!(watches.iter().all(|watch| watch.look().is_some()));
    }
    group.destroy().unwrap();
    assert_eq!(group.watch().unwrap_err().kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn dropping_watches_under_fire_wakes_no_other_descriptor() {
    in_both_modes("dropping_watches_under_fire_wakes_no_other_descriptor", || {
        let ledger = Ledger::new().unwrap();
        let group = limited(ledger.root(), "group", 100);
        std::thread::scope(|scope| {
            let refused = scope.spawn(|| {
                for _ in 0..times(20_000, 2_000_000) {
                    group.try_charge_units(101).unwrap_err();
                }
            });
            while !refused.is_finished() {
                let number = group.watch().unwrap().as_fd().as_raw_fd();
                // The next descriptor gets the dropped one's number: it is not written to.
                // SAFETY: creates, reads and closes our own eventfd.
                unsafe {
                    let next = libc::eventfd(0, libc::EFD_NONBLOCK);
                    let mut value = 0u64;
                    let read = libc::read(next, (&raw mut value).cast(), 8);
                    assert_eq!(read, -1, "descriptor {next} (was {number}) got {value}");
                    libc::close(next);
                }
            }
        });
    });
}
