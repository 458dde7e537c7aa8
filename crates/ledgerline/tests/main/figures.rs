//! The counts of groups after they are gone, under the names by which readers query them.

use crate::common::{in_both_modes, memfd, times};
use ledgerline::{Group, GroupSnapshot, Ledger, Limit, View};

/// Returns the group's figures in a snapshot.
fn snapshot_of(ledger: &Ledger, group: Group<'_>) -> GroupSnapshot {
    ledger.snapshot().groups.into_iter().find(|seen| seen.id == group.id()).expect("it lives")
}

/// Creates a group that counts some of everything that needs no wait, and ends it.
fn serve(tenant: Group<'_>, n: u64) {
    let query = tenant.create(&format!("q{n}")).unwrap();
    query.set_max(Limit::units(1 << 20)).unwrap();
    query.set_high(Limit::units(1 << 10));
    let held = query.try_charge(1 << 19).unwrap();
    for _ in 0..=n {
        query.try_charge(2 << 20).unwrap_err();
    }
    held.backoff().sleep();
    query.add_reclaimed(100);
    drop(held);
    query.destroy().unwrap();
}

#[test]
fn what_ended_groups_counted_stays_above_them_and_is_the_same_by_every_name() {
    in_both_modes(
        "what_ended_groups_counted_stays_above_them_and_is_the_same_by_every_name",
        || {
            let file = memfd();
            let builder = Ledger::builder().throttle_time(std::time::Duration::from_micros(10));
            let ledger = builder.capacity(16).create_in(&file).unwrap();
            let view = View::open(file).unwrap();
            let tenant = ledger.root().create("acme").unwrap();
            for n in 0..5 {
                serve(tenant, n);
                let refused = (n + 1) * (n + 2) / 2;
                for group in [tenant, ledger.root()] {
                    let seen = snapshot_of(&ledger, group);
                    let stat = group.stat();
                    let line = |name: &str| stat.get(name).unwrap().subtree as u64;
                    assert_eq!((seen.refused, line("refused")), (refused, refused));
                    assert_eq!((seen.events.max, seen.events), (refused, group.events()));
                    assert_eq!((seen.charges, seen.uncharges), (n + 1, n + 1));
                    assert_eq!(line("blocks_total"), n + 1);
                    assert_eq!((seen.reclaimed, line("reclaimed")), (100 * (n + 1), 100 * (n + 1)));
                    assert_eq!((seen.throttled, line("throttled")), (n + 1, n + 1));
                    assert_eq!(seen.throttled_usec, line("throttled_usec"));
                    // The limits that were met were not this group's own.
                    assert_eq!((seen.max_events, group.max_events()), (0, 0));
                    let reading = view.read().unwrap();
                    let place = reading.snapshot.groups.iter().position(|of| of.id == group.id());
                    let line = reading.statistics.line("refused").unwrap();
                    assert_eq!(reading.snapshot.groups[place.unwrap()], seen);
                    assert_eq!(reading.statistics.subtree(place.unwrap(), line) as u64, refused);
                    assert_eq!(reading.statistics.events(place.unwrap()), seen.events);
                }
            }
        },
    );
}

#[test]
fn a_charge_counts_as_refused_where_it_was_charged_and_above_whichever_limit_it_met() {
    let ledger = Ledger::new().unwrap();
    let tenant = ledger.root().create("acme").unwrap();
    let [query, other] = ["q1", "q2"].map(|name| tenant.create(name).unwrap());
    tenant.set_max(Limit::units(1 << 20)).unwrap();
    query.try_charge(2 << 20).unwrap_err();
    for (group, refused, max, own_max) in
        [(ledger.root(), 1, 1, 0), (tenant, 1, 1, 1), (query, 1, 0, 0), (other, 0, 0, 0)]
    {
        let seen = snapshot_of(&ledger, group);
        assert_eq!((seen.refused, seen.events.max, seen.max_events), (refused, max, own_max));
        assert_eq!(group.stat().get("refused").unwrap().subtree as u64, refused);
    }
}

/// Returns the figures of a subtree that only ever grow.
fn sums(seen: &GroupSnapshot) -> [u64; 7] {
    let events = seen.events;
    [
        seen.refused,
        events.max,
        events.high,
        seen.reclaimed,
        events.limits,
        seen.charges,
        seen.uncharges,
    ]
}

#[test]
fn no_count_of_a_subtree_goes_back_while_groups_below_it_end() {
    in_both_modes("no_count_of_a_subtree_goes_back_while_groups_below_it_end", || {
        let builder = Ledger::builder().throttle_time(std::time::Duration::ZERO);
        let ledger = builder.capacity(64).anonymous().unwrap();
        let tenant = ledger.root().create("acme").unwrap();
        let rounds = times(2_000, 100_000);
        let server = || (0..rounds).for_each(|_| serve(tenant, 2));
        let mut before = [0; 7];
        let mut looks = 0;
        std::thread::scope(|scope| {
            let server = scope.spawn(server);
            while !server.is_finished() {
                let now = sums(&snapshot_of(&ledger, tenant));
                assert!(now.iter().zip(before).all(|(now, was)| *now >= was), "{before:?} {now:?}");
                before = now;
                looks += 1;
                if looks % 16 == 0 {
                    // A reader that moves sums from cells to totals.
                    let _ = tenant.stat();
                }
            }
        });
        let seen = sums(&snapshot_of(&ledger, tenant));

        assert_eq!((seen[0], seen[1], seen[3]), (3 * rounds, 3 * rounds, 100 * rounds));
    });
}
