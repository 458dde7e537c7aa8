//! An audited ledger names the line of a wrong uncharge, and takes nothing for it.

use crate::common::in_both_modes;
use crate::support::{audited, in_all_modes, limited, mistakes};
use ledgerline::{
    AUDIT_REPORTS_MAX, Charge, ControlMode, Ledger, Mistakes, Outstanding, WrongUncharge,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Returns the sites of a report: line, charged, returned.
fn sites(wrong: &WrongUncharge) -> Vec<(u32, u64, u64)> {
    wrong.sites.iter().map(|count| (count.site.line(), count.charged, count.returned)).collect()
}

#[test]
fn a_thousand_double_uncharges_are_named_and_do_not_move_the_limit_by_a_unit() {
    in_all_modes(
        "a_thousand_double_uncharges_are_named_and_do_not_move_the_limit_by_a_unit",
        || {
            let ledger = audited();
            let tenant = limited(ledger.root(), "acme", 1_000_000);
            let group = tenant.create("q1").unwrap();
            let held = group.try_charge(900_000).unwrap();
            for _ in 0..1_000 {
                group.try_charge_units(905).unwrap();
                group.uncharge_units(905);
                group.uncharge_units(905);
            }
            let double = line!() - 2;
            assert_eq!((group.precise(), tenant.precise()), (900_000, 900_000));
            assert_eq!(mistakes(&ledger), [0, 0, 1_000]);
            assert!(tenant.try_charge(100_001).is_err());
            drop(tenant.try_charge(100_000).unwrap());
            assert_eq!(tenant.peak().value, 1_000_000);

            let report = ledger.audit_report();
            assert_eq!((report.wrong.len(), report.left_out), (1, 0));
            let wrong = &report.wrong[0];
            assert_eq!((&*wrong.path, wrong.group, wrong.gone), ("/acme/q1", group.id(), false));
            assert_eq!((wrong.units, wrong.times), (905, 1_000));
            assert_eq!((wrong.site.file(), wrong.site.line()), (file!(), double));
            assert_eq!(sites(wrong), [(double - 1, 0, 1_000), (double - 2, 1_000, 0)]);
            assert_eq!((wrong.charges_held, wrong.units_held), (1, 900_000));
            assert_eq!(wrong.nearest.len(), 1);
            drop(held);
            assert_eq!(ledger.root().precise(), 0);
        },
    );
}

#[test]
fn who_uncharged_first_is_named_when_that_was_the_one_too_many() {
    let ledger = audited();
    let group = ledger.root().create("q1").unwrap();
    group.try_charge_units(64).unwrap();
    group.uncharge_units(64);
    let too_many = line!() - 1;
    group.uncharge_units(64);
    let right = line!() - 1;
    let wrong = &ledger.audit_report().wrong[0];
    assert_eq!((wrong.site.line(), wrong.charges_held), (right, 0));
    assert_eq!(sites(wrong), [(too_many, 0, 1), (too_many - 1, 1, 0)]);
}

#[test]
fn without_an_audit_the_counters_tell_of_what_falls_below_zero_and_of_what_is_gone() {
    in_both_modes(
        "without_an_audit_the_counters_tell_of_what_falls_below_zero_and_of_what_is_gone",
        || {
            let ledger = Ledger::builder().capacity(8).anonymous().unwrap();
            let group = ledger.root().create("q1").unwrap();
            group.try_charge_units(900_000).unwrap();
            group.try_charge_units(905).unwrap();
            group.uncharge_units(905);
            group.uncharge_units(905);
            assert_eq!(ledger.mistakes(), Mistakes::default(), "it took what is held by others");
            assert_eq!(group.precise(), 900_000 - 905);
            group.drain();
            group.uncharge_units(2_000_000);
            assert_eq!(mistakes(&ledger), [1, 0, 0]);
            assert_eq!(group.precise(), 900_000 - 905);
            group.uncharge_units(900_000 - 905);
            group.destroy().unwrap();
            group.uncharge_units(905);
            assert_eq!(mistakes(&ledger), [1, 1, 0]);
            assert!(ledger.audit_report().wrong.is_empty() && ledger.outstanding().is_empty());
        },
    );
}

#[test]
fn the_fast_half_never_serves_an_audited_ledger() {
    let ledger = audited();
    let group = ledger.root().create("q1").unwrap();
    group.try_charge_units(4_096).unwrap();
    assert!(group.approximate().value > 4_096, "something lies prepaid");
    assert!(!group.take_prepaid(1) && !group.put_prepaid(1) && group.prepaid().is_none());
    group.uncharge_units(4_096);
    assert_eq!(ledger.mistakes(), Mistakes::default());
}

#[test]
fn an_uncharge_of_a_group_that_is_gone_is_named_with_the_path_that_it_had() {
    let ledger = audited();
    let tenant = ledger.root().create("acme").unwrap();
    let [used, unused] = ["q1", "q2"].map(|name| tenant.create(name).unwrap());
    used.try_charge_units(10).unwrap();
    used.uncharge_units(10);
    for group in [used, unused] {
        group.destroy().unwrap();
        group.uncharge_units(10);
    }
    let line = line!() - 2;
    assert_eq!(mistakes(&ledger), [0, 2, 0]);
    let wrong = ledger.audit_report().wrong;
    let told: Vec<_> = wrong.iter().map(|w| (&*w.path, w.gone, w.group, w.site.line())).collect();
    assert_eq!(told, [("/acme/q1", true, used.id(), line), ("", true, unused.id(), line)]);
    // A destroyed group that still holds units is not gone.
    let late = tenant.create("q3").unwrap();
    late.try_charge_units(10).unwrap();
    late.destroy().unwrap();
    late.uncharge_units(11);
    let wrong = ledger.audit_report().wrong;
    assert_eq!((wrong.len(), &*wrong[2].path, wrong[2].gone), (3, "/acme/q3", false));
    late.uncharge_units(10);
    assert_eq!(ledger.root().precise(), 0);
}

#[test]
fn a_report_is_a_sentence_that_says_where_to_look() {
    let ledger = audited();
    let group = ledger.root().create("q1").unwrap();
    let held = group.try_charge(900).unwrap();
    group.try_charge_units(100).unwrap();
    for _ in 0..2 {
        group.uncharge_units(100);
    }
    let (row, line) = (group.id().index(), line!() - 2);
    let at = |line: u32, column| format!("{}:{line}:{column}", file!());
    let told = ledger.audit_report().to_string();
    assert_eq!(
        told,
        format!(
            "/q1 (row {row}, generation 1): {double} uncharged 100 units once that no charge had taken, \
             which changed nothing. Of this size, {double} returned a charge once; {charged} charged \
             once. The group held 1 charge of 900 units in all; next to this in size, 1 of 900 units in \
             a guard, charged at {held}.",
            double = at(line, 15),
            charged = at(line - 2, 11),
            held = at(line - 3, 22),
        )
    );
    assert_eq!(
        ledger.outstanding()[0].to_string(),
        format!("/q1 holds 1 charge of 900 units in a guard, charged at {}", at(line - 3, 22))
    );
    drop(held);
}

#[test]
fn a_report_is_bounded_and_says_how_many_it_left_out() {
    let ledger = audited();
    let group = ledger.root().create("q1").unwrap();
    let more = 50;
    for units in (1..=AUDIT_REPORTS_MAX as u64 + more).chain([1]) {
        group.uncharge_units(units);
    }
    let report = ledger.audit_report();
    assert_eq!((report.wrong.len(), report.left_out), (AUDIT_REPORTS_MAX, more));
    assert!(report.to_string().ends_with("\nand 50 more that there was no room to name"));
    assert_eq!(report.wrong[0].times, 2);
    assert_eq!(ledger.mistakes().audited, AUDIT_REPORTS_MAX as u64 + more + 1);
}

#[test]
fn the_program_is_told_of_each_in_the_thread_that_made_it_and_may_panic_there() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let known = told.clone();
    let ledger = Ledger::builder()
        .capacity(8)
        .on_wrong_uncharge(move |wrong| {
            known.lock().unwrap().push((std::thread::current().id(), wrong.clone()));
            assert!(wrong.units != 7, "seven");
        })
        .anonymous()
        .unwrap();
    let group = ledger.root().create("q1").unwrap();
    group.uncharge_units(5);
    group.uncharge_units(5);
    std::thread::scope(|scope| {
        scope
            .spawn(|| {
                let result = catch_unwind(AssertUnwindSafe(|| group.uncharge_units(7)));
                assert!(result.is_err(), "the panic went through");
            })
            .join()
            .unwrap();
    });
    let told = told.lock().unwrap();
    let each: Vec<_> = told.iter().map(|(_, wrong)| (wrong.units, wrong.times)).collect();
    assert_eq!(each, [(5, 1), (5, 1), (7, 1)]);
    assert_eq!(told[0].0, std::thread::current().id());
    assert_ne!(told[2].0, std::thread::current().id());
    assert_eq!(told[0].1.path, "/q1");
    // The group continues.
    drop(group.try_charge(7).unwrap());
    assert_eq!((group.precise(), ledger.mistakes().audited), (0, 3));
}

#[test]
fn a_guard_returns_what_it_holds_and_nobody_else_does() {
    let ledger = audited();
    let group = ledger.root().create("q1").unwrap();
    let guard = group.try_charge(100).unwrap();
    group.uncharge_units(100);
    assert_eq!((group.precise(), ledger.mistakes().audited), (100, 1));
    assert!(ledger.audit_report().wrong[0].nearest[0].guard);
    drop(guard);
    assert_eq!((group.precise(), ledger.mistakes().audited), (0, 1));
    assert!(ledger.outstanding().is_empty());
}

/// Returns the outstanding charges of guards, by path and line.
fn guards(ledger: &Ledger) -> Vec<(String, u32, u64, u64)> {
    let mut held: Vec<_> = ledger
        .outstanding()
        .into_iter()
        .map(|Outstanding { path, site, charges, units, .. }| (path, site.line(), charges, units))
        .collect();
    held.sort();
    held
}

#[test]
fn a_guard_that_is_split_merged_moved_or_shared_keeps_the_line_that_charged_it() {
    let ledger = audited();
    let other = audited();
    let [a, b] = ["a", "b"].map(|name| ledger.root().create(name).unwrap());
    let mut whole = a.try_charge(100).unwrap();
    let line = line!() - 1;
    let at = |path: &str, charges, units| (path.to_owned(), line, charges, units);
    assert_eq!(guards(&ledger), [at("/a", 1, 100)]);
    let mut part = whole.split(30).unwrap();
    let nothing = whole.split(0).unwrap();
    assert_eq!(guards(&ledger), [at("/a", 2, 100)]);
    part = part.transfer(b).unwrap();
    assert_eq!(guards(&ledger), [at("/a", 1, 70), at("/b", 1, 30)]);
    part = part.transfer(a).unwrap();
    whole.merge(part).unwrap();
    whole.merge(nothing).unwrap();
    assert_eq!(guards(&ledger), [at("/a", 1, 100)]);
    let all = whole.split(100).unwrap();
    drop(whole);
    let first = all.share();
    let second = first.join(b);
    drop(first);
    assert_eq!(guards(&ledger), [at("/b", 1, 100)]);
    drop(second);
    assert!(guards(&ledger).is_empty());
    // A transfer to another ledger charges anew there, if requested.
    let there = other.root().create("c").unwrap();
    let moved = a.try_charge(5).unwrap().transfer(there).unwrap();
    let line = line!() - 1;
    assert!(guards(&ledger).is_empty());
    assert_eq!(guards(&other), [("/c".to_owned(), line, 1, 5)]);
    drop(moved);
    for ledger in [&ledger, &other] {
        assert_eq!((ledger.root().precise(), ledger.mistakes()), (0, Mistakes::default()));
        assert!(ledger.outstanding().is_empty());
    }
}

#[test]
fn a_charge_that_is_not_counted_is_not_followed() {
    let ledger = audited();
    let group = ledger.root().create("q1").unwrap();
    let before = group.try_charge(10).unwrap();
    group.set_mode(ControlMode::Off);
    let mut uncounted = group.try_charge(10).unwrap();
    let mut more = group.try_charge(10).unwrap();
    let part = uncounted.split(3).unwrap();
    more.merge(part).unwrap();
    assert_eq!(guards(&ledger).len(), 1);
    group.set_mode(ControlMode::Enforce);
    drop((uncounted, more));
    assert_eq!(guards(&ledger).len(), 1);
    drop(before);
    assert!(guards(&ledger).is_empty());
    assert_eq!((group.precise(), ledger.mistakes()), (0, Mistakes::default()));
}

#[test]
fn every_way_to_charge_is_known_by_the_line_that_asked() {
    let ledger = audited();
    let group = ledger.root().create("q1").unwrap();
    let first = line!() + 2;
    let held: Vec<Charge<'_>> = vec![
        group.try_charge(1).unwrap(),
        group.charge(2).unwrap(),
        group.request(3).wait(Duration::from_secs(1)).charge().unwrap(),
        group.request(4).charge().unwrap(),
        group.request(5).throttled().charge().unwrap(),
    ];
    group.try_charge_units(6).unwrap();
    group.charge_units(7).unwrap();
    let lines = |offset: u32, units: u64| ("/q1".to_owned(), first + offset, 1, units);
    let expected: Vec<_> =
        (0..5).map(|n| lines(n, u64::from(n) + 1)).chain([lines(6, 6), lines(7, 7)]).collect();
    assert_eq!(guards(&ledger), expected);
    assert!(ledger.outstanding().iter().all(|held| held.site.file() == file!()));
    let by_hand = ledger.outstanding().iter().filter(|held| !held.guard).count();
    assert_eq!(by_hand, 2);
    drop(held);
    group.uncharge_units(6);
    group.uncharge_units(7);
    assert!(ledger.outstanding().is_empty());
}

#[test]
fn what_a_destroyed_group_still_holds_is_listed_by_line() {
    let ledger = audited();
    let group = ledger.root().create("q1").unwrap();
    let forgotten = [group.try_charge(100).unwrap(), group.try_charge(100).unwrap()];
    let line = line!() - 1;
    let kept = ledger.root().try_charge(1).unwrap();
    let settled = group.destroy().unwrap();
    let held = settled.outstanding();
    assert_eq!(held.len(), 2, "two places on one line");
    assert!(held.iter().all(|held| held.group == group.id() && held.site.line() == line));
    assert_eq!(held.iter().map(|held| held.units).sum::<u64>(), settled.leftover);
    drop(forgotten);
    assert!(settled.outstanding().is_empty());
    assert_eq!(ledger.outstanding().len(), 1);
    drop(kept);
}

#[test]
fn flows_are_counted_in_an_audited_ledger_too() {
    let ledger = Ledger::builder().capacity(8).flows(true).audit(true).anonymous().unwrap();
    let group = ledger.root().create("q1").unwrap();
    for _ in 0..300 {
        drop(group.try_charge(10).unwrap());
    }
    group.uncharge_units(10);
    let stat = group.stat();
    let own = |name: &str| stat.get(name).unwrap().own;
    assert_eq!((own("charged"), own("freed"), own("blocks_live")), (3_000, 3_000, 0));
    let lean = audited();
    assert!(lean.root().stat().get("charged").is_none(), "no flows but where they are asked for");
}
