//! Diagnoses of a known tree: their content, and their printed form.

use crate::common::in_both_modes;
use ledgerline::{Charge, Group, GroupId, Ledger, Limit};
use proptest::prelude::*;
use std::collections::HashMap;

/// Compares with a file under `tests/golden`; with `LEDGERLINE_GOLDEN=write` the file is written.
fn golden(name: &str, printed: &str) {
    let path = format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("LEDGERLINE_GOLDEN").is_some_and(|value| value == "write") {
        std::fs::write(&path, printed).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(printed, kept, "differs from {path}");
}

/// Creates a tenant of 512K with three users, whose queries hold charges.
fn tree(ledger: &Ledger) -> (Group<'_>, Vec<Charge<'_>>) {
    let acme = ledger.root().create("acme").unwrap();
    let users = ["ann", "bob", "eve"].map(|name| acme.create(name).unwrap());
    acme.set_max("512K".parse().unwrap()).unwrap();
    acme.set_high("384K".parse().unwrap());
    acme.set_low("100K".parse().unwrap());
    users[0].set_min("20K".parse().unwrap());
    acme.set_min("10K".parse().unwrap());
    let mut held = Vec::new();
    for (n, kib) in [(0, 40), (0, 60), (1, 300), (2, 5)] {
        let query = users[n].create(&format!("q{kib}")).unwrap();
        held.push(query.try_charge(kib << 10).unwrap());
    }
    held.push(users[1].try_charge(25 << 10).unwrap());
    let done = users[2].create("done").unwrap();
    held.push(done.try_charge(30 << 10).unwrap());
    done.destroy().unwrap();
    ledger.root().drain();
    (users[0], held)
}

#[test]
fn a_refusal_is_explained_by_the_chain_and_the_largest_consumers() {
    in_both_modes("a_refusal_is_explained_by_the_chain_and_the_largest_consumers", || {
        let ledger = Ledger::builder().capacity(64).anonymous().unwrap();
        let (ann, _held) = tree(&ledger);
        let refused = ann.try_charge(100 << 10).unwrap_err();
        let mut diagnosis = ledger.diagnose(&refused);
        assert_eq!((diagnosis.requested, diagnosis.steady), (Some(100 << 10), true));

        let paths: Vec<_> = diagnosis.chain.iter().map(|level| &*level.path).collect();
        assert_eq!(paths, ["/acme/ann", "/acme", "/"]);
        let full = diagnosis.full();
        assert_eq!((&*full.path, full.id), ("/acme", refused.refusal.group));
        assert_eq!((full.current, full.room()), (460 << 10, Some(52 << 10)));
        assert_eq!(full.max_events, 1);
        assert_eq!((full.protection.min, full.protection.low), (10 << 10, 100 << 10));
        let ann_is = &diagnosis.chain[0];
        assert_eq!((ann_is.min, ann_is.protection.min), (Limit::units(20 << 10), 10 << 10));

        let holders: Vec<_> = diagnosis
            .holders
            .iter()
            .map(|held| (&*held.path, held.units >> 10, held.permille, held.destroyed))
            .collect();
        assert_eq!(
            holders,
            [
                ("/acme/bob/q300", 300, 652, false),
                ("/acme/ann/q60", 60, 130, false),
                ("/acme/ann/q40", 40, 86, false),
                ("/acme/eve/done", 30, 65, true),
                ("/acme/bob", 25, 54, false),
                ("/acme/eve/q5", 5, 10, false),
            ]
        );
        let of = |path: &str| diagnosis.subtrees.iter().find(|held| held.path == path).unwrap();
        assert_eq!(of("/acme/bob").units, 325 << 10);
        assert_eq!(of("/acme/eve").units, 35 << 10);
        assert_eq!((diagnosis.groups, diagnosis.charged), (6, 460 << 10));

        let resident = diagnosis.resident.expect("there is a /proc");
        assert!((1 << 16..1 << 40).contains(&resident), "{resident} bytes");
        diagnosis.resident = Some(10 << 20);
        golden("diagnosis.txt", &diagnosis.to_string());
    });
}

#[test]
fn more_consumers_than_are_listed_are_counted() {
    let ledger = Ledger::builder().capacity(64).anonymous().unwrap();
    let (ann, _held) = tree(&ledger);
    let mut diagnosis = ann.diagnose_with(2);
    assert_eq!((diagnosis.requested, diagnosis.holders.len(), diagnosis.groups), (None, 2, 6));
    assert_eq!(diagnosis.full().path, "/acme", "the one with the least room");
    diagnosis.resident = None;
    golden("diagnosis_short.txt", &diagnosis.to_string());
}

#[test]
fn without_limits_the_root_is_looked_at() {
    let ledger = Ledger::builder().capacity(8).anonymous().unwrap();
    let group = ledger.root().create("g").unwrap();
    let _held = group.try_charge(5).unwrap();
    ledger.root().drain();
    let mut diagnosis = group.diagnose();
    assert_eq!((diagnosis.full().path.as_str(), diagnosis.full().room()), ("/", None));
    assert_eq!(diagnosis.holders[0].units, 5);
    diagnosis.resident = None;
    golden("diagnosis_unlimited.txt", &diagnosis.to_string());
}

#[test]
fn a_group_that_is_gone_leaves_the_rest_of_the_chain() {
    let ledger = Ledger::builder().capacity(8).anonymous().unwrap();
    let tenant = ledger.root().create("tenant").unwrap();
    let query = tenant.create("query").unwrap();
    tenant.set_max(Limit::units(10)).unwrap();
    let refused = query.try_charge(11).unwrap_err();
    query.destroy().unwrap();
    let paths = |refused| -> Vec<String> {
        let diagnosis = ledger.diagnose(refused);
        assert!(!diagnosis.to_string().is_empty());
        diagnosis.chain.into_iter().map(|level| level.path).collect()
    };
    assert_eq!(paths(&refused), ["/tenant", "/"]);
    tenant.destroy().unwrap();
    assert_eq!(paths(&refused), ["/"]);
    // And ids that name no group.
    let diagnosis = ledger.group(GroupId::from_parts(77, 3)).diagnose();
    assert_eq!(diagnosis.chain.len(), 1);
}

#[test]
fn a_plain_refusal_comes_without_a_diagnosis() {
    let ledger = Ledger::builder().capacity(8).anonymous().unwrap();
    ledger.root().set_max(Limit::units(1)).unwrap();
    assert!(ledger.root().try_charge(2).unwrap_err().diagnosis.is_none());
}

proptest! {
    #![proptest_config(crate::common::cases::few(file!(), 64))]

    /// The expected units of each group are the sums of its charges.
    #[test]
    fn in_any_tree_the_consumers_are_what_the_charges_add_up_to(
        parents in prop::collection::vec(any::<prop::sample::Index>(), 1..24),
        charges in prop::collection::vec((any::<prop::sample::Index>(), 1u64..5000), 0..60),
    ) {
        let ledger = Ledger::builder().capacity(32).anonymous().unwrap();
        let mut groups = vec![ledger.root()];
        for (n, parent) in parents.iter().enumerate() {
            groups.push(parent.get(&groups).create(&format!("g{n}")).unwrap());
        }
        let mut own: HashMap<GroupId, u64> = HashMap::new();
        let mut all: HashMap<GroupId, u64> = HashMap::new();
        let mut held = Vec::new();
        for (group, units) in charges {
            let group = *group.get(&groups);
            held.push(group.try_charge(units).unwrap());
            *own.entry(group.id()).or_default() += units;
            let mut at = Some(group);
            while let Some(group) = at {
                *all.entry(group.id()).or_default() += units;
                at = group.parent();
            }
        }
        let total: u64 = held.iter().map(Charge::units).sum();
        let diagnosis = groups[groups.len() - 1].diagnose_with(1000);
        prop_assert_eq!((diagnosis.charged, diagnosis.groups), (total, own.len()));
        let seen: HashMap<_, _> = diagnosis.holders.iter().map(|c| (c.id, c.units)).collect();
        prop_assert_eq!(seen, own);
        all.remove(&GroupId::from_parts(0, 1));
        let seen: HashMap<_, _> = diagnosis.subtrees.iter().map(|c| (c.id, c.units)).collect();
        prop_assert_eq!(seen, all);
        prop_assert!(diagnosis.holders.is_sorted_by_key(|c| std::cmp::Reverse(c.units)));
        drop(held);
    }
}
