//! The modes of a subtree, enforce, measure and off, change at run time.

use crate::common::{in_both_modes, times, unique};
use crate::support::tasks::Crowd;
use crate::support::{LONG, limited};
use ledgerline::{ControlMode, Group, Ledger, Limit, Mistakes};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

#[test]
fn what_is_measured_is_counted_and_refused_by_nobody_but_ancestors_that_enforce() {
    in_both_modes(
        "what_is_measured_is_counted_and_refused_by_nobody_but_ancestors_that_enforce",
        || {
            let ledger = Ledger::new().unwrap();
            let tenant = limited(ledger.root(), "tenant", 1000);
            let query = limited(tenant, "query", 100);
            query.set_mode(ControlMode::Measure);
            assert_eq!((query.mode(), tenant.mode()), (ControlMode::Measure, ControlMode::Enforce));
            assert_eq!(query.max(), Limit::units(100), "kept");
            let much = query.try_charge(900).unwrap();
            assert_eq!((query.precise(), tenant.precise()), (900, 900));
            assert_eq!((query.max_events(), tenant.max_events()), (1, 0));
            let refused = query.try_charge(101).unwrap_err();
            assert_eq!((&*refused.group, refused.limit), (&*tenant.path(), 1000));
            // A limit below the usage can be set, since it is not enforced.
            query.set_max(Limit::units(50)).unwrap();
            let below = query.create(&unique("part")).unwrap();
            assert_eq!(below.mode(), ControlMode::Measure, "as its parent");
            below.set_max(Limit::units(1)).unwrap();
            let more = below.try_charge(60).unwrap();
            assert_eq!(below.max_events(), 1);

            query.set_mode(ControlMode::Enforce);
            assert_eq!(below.mode(), ControlMode::Enforce);
            // The excess over the limit stays; nothing is added to it.
            assert_eq!(query.precise(), 960);
            assert_eq!(query.try_charge(1).unwrap_err().limit, 50);
            drop((much, more));
            query.try_charge(50).map(drop).unwrap();
            assert_eq!(query.try_charge(51).unwrap_err().limit, 50);
            assert_eq!((ledger.root().precise(), ledger.mistakes()), (0, Mistakes::default()));
        },
    );
}

#[test]
fn what_is_off_counts_nothing_and_returns_only_what_was_counted() {
    in_both_modes("what_is_off_counts_nothing_and_returns_only_what_was_counted", || {
        let ledger = Ledger::new().unwrap();
        let tenant = limited(ledger.root(), "tenant", 1000);
        let query = limited(tenant, "query", 100);
        let mut before = query.try_charge(80).unwrap();
        tenant.set_mode(ControlMode::Off);
        assert_eq!(query.mode(), ControlMode::Off);
        let mut meanwhile = query.try_charge(5000).unwrap();
        assert!(before.is_counted() && !meanwhile.is_counted());
        assert_eq!((meanwhile.units(), tenant.precise()), (5000, 80));
        let part = meanwhile.split(2000).unwrap();
        assert_eq!((meanwhile.units(), part.units(), part.is_counted()), (3000, 2000, false));
        meanwhile.merge(part).unwrap();
        assert_eq!(meanwhile.units(), 5000);
        // Counted and uncounted charges do not mix.
        let meanwhile = before.merge(meanwhile).unwrap_err();
        drop(before);
        assert_eq!(tenant.precise(), 0);
        // A charge without a guard is counted, since its return could not be told apart.
        query.try_charge_units(300).unwrap();
        assert_eq!(tenant.precise(), 300);

        tenant.set_mode(ControlMode::Enforce);
        drop(meanwhile);
        query.uncharge_units(300);
        assert_eq!((tenant.precise(), ledger.mistakes()), (0, Mistakes::default()));
        // A transfer between a counted and an uncounted group charges anew, or drops the charge.
        let other = limited(ledger.root(), "other", 100);
        tenant.set_mode(ControlMode::Off);
        let uncounted = query.try_charge(70).unwrap();
        let counted = uncounted.transfer(other).unwrap();
        assert!(counted.is_counted());
        assert_eq!((other.precise(), tenant.precise()), (70, 0));
        let gone = counted.transfer(query).unwrap();
        assert!(!gone.is_counted());
        assert_eq!((other.precise(), tenant.precise()), (0, 0));
        drop(gone);
        let stale = limited(tenant, "stale", 100);
        stale.destroy().unwrap();
        assert!(stale.try_charge(1).is_err(), "a group that is gone takes no charges in any mode");
        assert_eq!(ledger.mistakes(), Mistakes::default());
    });
}

#[test]
fn who_waits_is_served_when_the_limit_in_the_way_is_no_longer_enforced() {
    in_both_modes("who_waits_is_served_when_the_limit_in_the_way_is_no_longer_enforced", || {
        for mode in [ControlMode::Measure, ControlMode::Off] {
            let ledger = Ledger::new().unwrap();
            let tenant = limited(ledger.root(), "tenant", 100);
            let query = tenant.create(&unique("query")).unwrap();
            let held = tenant.try_charge(100).unwrap();
            let mut crowd = Crowd::new();
            let waits = [50, 60, 70].map(|units| crowd.add(query.request(units).wait(10 * LONG)));
            tenant.set_mode(mode);
            let mut charges = Vec::new();
            let mut served = waits.map(|_| {
                let (served, charge) = crowd.next();
                charges.push(charge.unwrap());
                served
            });
            served.sort_unstable();
            assert_eq!(served, waits);
            let counted = if mode == ControlMode::Measure { 280 } else { 100 };
            assert_eq!(tenant.precise(), counted);
            drop((held, charges));
            assert_eq!((tenant.precise(), ledger.mistakes()), (0, Mistakes::default()));
        }
    });
}

#[test]
fn who_waits_behind_others_is_served_when_its_own_group_is_off() {
    let ledger = Ledger::new().unwrap();
    let tenant = limited(ledger.root(), "tenant", 100);
    let [query, off] = ["query", "off"].map(|name| tenant.create(name).unwrap());
    let _held = tenant.try_charge(100).unwrap();
    let mut crowd = Crowd::new();
    crowd.add(query.request(10).wait(10 * LONG));
    let waits = crowd.add(off.request(10).wait(10 * LONG));
    off.set_mode(ControlMode::Off);
    let (served, charge) = crowd.next();
    assert_eq!((served, charge.unwrap().is_counted()), (waits, false));
    assert_eq!(crowd.woken(), []);
}

#[test]
fn nothing_is_lost_while_modes_change_under_fire() {
    in_both_modes("nothing_is_lost_while_modes_change_under_fire", || {
        let ledger = Ledger::new().unwrap();
        let tenant = limited(ledger.root(), "tenant", 1 << 20);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                let (done, tenant) = (&done, &tenant);
                scope.spawn(move || {
                    let query = limited(*tenant, "query", 1 << 19);
                    let mut held = Vec::new();
                    while !done.load(Relaxed) {
                        for n in 1..200 {
                            held.extend(query.try_charge(n));
                        }
                        // A group that is created while modes change has the mode of its parent.
                        let part = query.create(&unique("part")).unwrap();
                        held.extend(part.try_charge(100));
                        held.clear();
                        part.destroy().unwrap();
                    }
                    query.destroy().unwrap();
                });
            }
            let modes = [ControlMode::Off, ControlMode::Measure, ControlMode::Enforce];
            for round in 0..times(300, 30_000) {
                tenant.set_mode(modes[round as usize % 3]);
                std::thread::yield_now();
            }
            done.store(true, Relaxed);
        });
        assert_eq!((tenant.precise(), ledger.mistakes()), (0, Mistakes::default()));
        assert_eq!(tenant.mode(), ControlMode::Enforce);
        assert!(tenant.peak().value <= 3 << 19);
    });
}

#[test]
fn a_group_made_while_its_parent_changes_modes_has_its_parents_mode_in_the_end() {
    let ledger = Ledger::new().unwrap();
    let tenant = ledger.root().create("tenant").unwrap();
    for round in 0..times(300, 20_000) {
        let mode =
            [ControlMode::Off, ControlMode::Enforce, ControlMode::Measure][round as usize % 3];
        let made = std::thread::scope(|scope| {
            let making = scope.spawn(|| {
                (0..20)
                    .map(|_| tenant.create(&unique("query")).unwrap())
                    .collect::<Vec<Group<'_>>>()
            });
            tenant.set_mode(mode);
            making.join().unwrap()
        });
        for group in made {
            assert_eq!(group.mode(), mode);
            group.destroy().unwrap();
        }
    }
}
