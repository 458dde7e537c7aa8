//! A ledger that leaves unused address space to other mappings works like any other.

use crate::common::{in_both_modes, memfd};
use ledgerline::{DestroyError, GroupId, Lease, Ledger, LedgerBuilder, Limit, View};
use std::num::NonZeroU64;
use std::thread;

const CAPACITY: u32 = 1000;

fn builder() -> LedgerBuilder {
    Ledger::builder().capacity(CAPACITY).items(&["rows"]).spare_addresses(true)
}

/// Returns the bytes of address space of this process.
fn address_space() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[test]
fn groups_charges_and_statistics_are_the_same_whole_and_in_parts() {
    in_both_modes("groups_charges_and_statistics_are_the_same_whole_and_in_parts", || {
        let file = memfd();
        let made = builder().create_in(&file).unwrap();
        // As many as there are rows: the last ones lie at the ends of all parts.
        let groups: Vec<_> =
            (1..CAPACITY).map(|n| made.root().create(&format!("g{n}")).unwrap()).collect();
        let rows = made.item("rows").unwrap();
        thread::scope(|scope| {
            for part in groups.chunks(250) {
                scope.spawn(move || {
                    for (number, group) in (1..).zip(part) {
                        for _ in 0..200 {
                            drop(group.try_charge(number).unwrap());
                        }
                        group.try_charge_units(number).unwrap();
                        group.add_stat(rows, 1);
                    }
                });
            }
        });
        assert!(made.root().create("one_more").is_err());
        let snapshot = made.snapshot();
        let [whole, sparing] =
            [Ledger::open_in(&file), Ledger::open_sparing(&file)].map(|opened| opened.unwrap());
        assert_eq!((whole.snapshot(), sparing.snapshot()), (snapshot.clone(), snapshot.clone()));
        assert_eq!(View::open(file).unwrap().read().unwrap().snapshot, snapshot);
        let charged: u64 = groups.iter().map(|group| group.precise()).sum();
        assert_eq!((charged, made.root().precise()), (charged, charged));
        for (number, group) in groups.chunks(250).flat_map(|part| (1..).zip(part)) {
            assert_eq!(group.stat().get("rows").unwrap().own, 1);
            group.uncharge_units(number);
        }
        assert_eq!(made.root().precise(), 0);
    });
}

#[test]
fn an_id_beyond_its_rows_is_refused_and_nothing_is_lent_by_number() {
    in_both_modes("an_id_beyond_its_rows_is_refused_and_nothing_is_lent_by_number", || {
        let ledger: &'static Ledger = Box::leak(Box::new(builder().create_in(&memfd()).unwrap()));
        for row in [CAPACITY, CAPACITY + 24, 1 << 16, (1 << 20) - 1, 1 << 20, u32::MAX] {
            for generation in [1, 2, 77] {
                let group = ledger.group(GroupId::from_parts(row, generation));
                assert!(!group.exists());
                assert_eq!(group.destroy().unwrap_err(), DestroyError::Gone);
                assert!(group.try_charge(1).is_err());
                group.uncharge_units(1);
                assert_eq!(group.precise(), 0);
                if let Some(prepaid) = group.prepaid() {
                    assert!(!prepaid.take(1) && !prepaid.put(1));
                }
            }
        }
        let lease: &'static Lease = Box::leak(Box::new(Lease::new()));
        // SAFETY: neither is ever dropped.
        assert!(!unsafe { lease.lend(ledger, NonZeroU64::MIN) });
    });
}

#[test]
fn a_tenth_of_the_address_space_suffices_and_all_comes_back() {
    in_both_modes("a_tenth_of_the_address_space_suffices_and_all_comes_back", || {
        let file = memfd();
        let before = address_space();
        let made = builder().create_in(&file).unwrap();
        made.root().set_max(Limit::units(100)).unwrap();
        let sparing = address_space() - before;
        let opened = Ledger::open_sparing(&file).unwrap();
        assert_eq!(opened.root().max(), Limit::units(100));
        assert_eq!(made.footprint().reserved, opened.footprint().reserved);
        assert!(sparing <= made.footprint().reserved + (1 << 20), "{sparing}");
        let whole = Ledger::open_in(&file).unwrap();
        assert!(made.footprint().reserved < whole.footprint().reserved / 10);
        drop((made, opened, whole));
        assert!(address_space() <= before + (1 << 20));
    });
}
