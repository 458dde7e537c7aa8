//! The ledger's reports of groups that were destroyed with charges that were not returned.

use crate::common::in_both_modes;
use ledgerline::{Ledger, Mistakes};

#[test]
fn a_leak_names_the_group_its_charges_and_who_keeps_them() {
    in_both_modes("a_leak_names_the_group_its_charges_and_who_keeps_them", || {
        let ledger = Ledger::builder().capacity(16).anonymous().unwrap();
        let acme = ledger.root().create("acme").unwrap();
        let query = acme.create("q1").unwrap();
        drop(query.try_charge(100 << 10).unwrap());
        let mut held: Vec<_> = (0..3).map(|_| query.try_charge(16 << 10).unwrap()).collect();
        let settled = query.destroy().unwrap();
        let leak = settled.leak().expect("three charges are held");
        assert_eq!((&*leak.path, &*leak.parent), ("/acme/q1", "/acme"));
        assert_eq!((leak.units, leak.charges, leak.group), (48 << 10, 3, query.id()));
        assert_eq!((leak.units, leak.peak), (settled.leftover, settled.peak));
        assert_eq!(ledger.leaks(), [leak]);

        drop(held.pop());
        let leak = settled.leak().expect("two charges are held");
        assert_eq!((leak.units, leak.charges), (32 << 10, 2));
        held.clear();
        assert_eq!((settled.leak(), ledger.leaks()), (None, Vec::new()));
        assert_eq!(ledger.mistakes(), Mistakes::default());
    });
}

#[test]
fn what_groups_below_hold_is_reported_once_and_as_theirs() {
    let ledger = Ledger::builder().capacity(16).anonymous().unwrap();
    let [tenant, user] = ["tenant", "user"].map(String::from);
    let tenant = ledger.root().create(&tenant).unwrap();
    let user = tenant.create(&user).unwrap();
    let query = user.create("query").unwrap();
    let in_query = query.try_charge(7).unwrap();
    let of_query = query.destroy().unwrap();
    let of_user = user.destroy().unwrap();
    assert_eq!(of_user.leftover, 7, "it is in the ancestors' numbers");
    assert_eq!(of_user.leak(), None, "it is not the user's own");
    let leak = of_query.leak().unwrap();
    assert_eq!((&*leak.path, &*leak.parent), ("/tenant/user/query", "/tenant"));
    assert_eq!(ledger.leaks(), [leak]);

    let user = tenant.create("user").unwrap();
    let in_user = user.try_charge(5).unwrap();
    let of_user = user.destroy().unwrap();
    assert_eq!(of_user.leak().unwrap().units, 5);
    assert_eq!(ledger.leaks().iter().map(|leak| leak.units).sum::<u64>(), 12);
    drop((in_query, in_user));
    assert_eq!(ledger.leaks(), []);
}

#[test]
fn a_group_destroyed_with_a_charge_of_nothing_leaks_nothing() {
    let ledger = Ledger::builder().capacity(4).anonymous().unwrap();
    let group = ledger.root().create("g").unwrap();
    let nothing = group.try_charge(0).unwrap();
    let settled = group.destroy().unwrap();
    assert_eq!((settled.leak(), ledger.leaks()), (None, Vec::new()));

    // Nor does the next group of its row, when the old charge of zero is dropped.
    let next = ledger.root().create("next").unwrap();
    assert_eq!(next.id().index(), group.id().index());
    let held = next.try_charge(9).unwrap();
    drop(nothing);
    let leak = next.destroy().unwrap().leak().expect("nine are held");
    assert_eq!((leak.units, leak.charges, &*leak.path), (9, 1, "/next"));
    assert_eq!(settled.leak(), None, "the row is another group's");
    drop(held);
    assert_eq!(ledger.mistakes(), Mistakes::default());
}
