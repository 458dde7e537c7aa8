//! An audited ledger agrees with a simple count under random work, threads, forks and other processes.

use crate::common::{Random, fork, in_both_modes, ran_alone, times, unique, wait};
use crate::support::{audited, limited, mistakes};
use ledgerline::{Charge, Group, GroupId, Ledger, Limit, Mistakes};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// The simple count: the outstanding charges, one entry each.
#[derive(Default)]
struct Model<'l> {
    guards: Vec<Charge<'l>>,
    by_hand: Vec<(usize, u64)>,
}

/// Makes a sequence of right operations, with some wrong ones among them if requested. Returns the held charges, and the
/// number of wrong operations.
fn work<'l>(groups: &[Group<'l>], seed: u64, steps: u64, wrong_too: bool) -> (Model<'l>, u64) {
    let mut random = Random::new(seed);
    let mut model = Model::default();
    let mut wrong = 0;
    for _ in 0..steps {
        let at = random.below(groups.len() as u64) as usize;
        let (group, units) = (groups[at], random.below(40));
        let last = model.guards.len().checked_sub(1);
        match (random.below(12), last) {
            (0..3, _) => model.guards.extend(group.try_charge(units)),
            (3..5, _) => {
                let charged = group.try_charge_units(units).is_ok();
                model.by_hand.extend((charged && units > 0).then_some((at, units)));
            }
            (5..7, _) if !model.by_hand.is_empty() => {
                let pick = random.below(model.by_hand.len() as u64) as usize;
                let (at, units) = model.by_hand.swap_remove(pick);
                groups[at].uncharge_units(units);
            }
            (7, Some(last)) => {
                let pick = random.below(last as u64 + 1) as usize;
                drop(model.guards.swap_remove(pick));
            }
            (8, Some(last)) => {
                let part = model.guards[last].split(units);
                model.guards.extend(part);
            }
            (9, Some(_)) => {
                let charge = model.guards.pop().expect("there is one");
                let charge = charge.transfer(group).unwrap_or_else(|(charge, _)| charge);
                model.guards.push(charge);
            }
            (10, Some(_)) => {
                let charge = model.guards.pop().expect("there is one");
                let mate = model.guards.iter_mut().find(|mate| mate.group() == charge.group());
                let unmerged = match mate {
                    Some(mate) => mate.merge(charge).err(),
                    None => Some(charge),
                };
                model.guards.extend(unmerged);
            }
            _ if wrong_too && seed != 0 => {
                // A size that is never charged by hand.
                group.uncharge_units(1_000 + seed);
                wrong += 1;
            }
            _ => {}
        }
        if model.guards.len() > 60 {
            model.guards.truncate(30);
        }
    }
    (model, wrong)
}

/// Compares the charges and units of the model and the ledger, by group and kind.
fn agree(ledger: &Ledger, groups: &[Group<'_>], models: &[Model<'_>]) {
    type Held = BTreeMap<(u32, bool), (u64, u64)>;
    let mut expected = Held::new();
    let mut hold = |id: GroupId, guard: bool, units: u64| {
        let sum = expected.entry((id.index(), guard)).or_default();
        *sum = (sum.0 + u64::from(units > 0), sum.1 + units);
    };
    for model in models {
        model.guards.iter().for_each(|charge| hold(charge.group().id(), true, charge.units()));
        model.by_hand.iter().for_each(|&(at, units)| hold(groups[at].id(), false, units));
    }
    expected.retain(|_, held| held.0 > 0);
    let mut told = Held::new();
    for held in ledger.outstanding() {
        let sum = told.entry((held.group.index(), held.guard)).or_default();
        *sum = (sum.0 + held.charges, sum.1 + held.units);
    }
    assert_eq!(told, expected);
}

#[test]
fn random_work_raises_no_false_alarm_and_is_followed_to_the_unit() {
    in_both_modes("random_work_raises_no_false_alarm_and_is_followed_to_the_unit", || {
        for seed in 0..times(20, 500) {
            let ledger = audited();
            let top = limited(ledger.root(), "top", 3_000);
            let mut groups = vec![top];
            groups.extend(["a", "b", "c"].map(|name| top.create(name).unwrap()));
            let (model, wrong) = work(&groups, seed, 3_000, true);
            let models = [model];
            agree(&ledger, &groups, &models);
            assert_eq!(mistakes(&ledger), [0, 0, wrong]);
            let [Model { guards, by_hand }] = models;
            drop(guards);
            by_hand.iter().for_each(|&(at, units)| groups[at].uncharge_units(units));
            assert_eq!((ledger.root().precise(), ledger.mistakes().audited), (0, wrong));
            assert!(ledger.outstanding().is_empty());
        }
    });
}

#[test]
fn threads_are_followed_together() {
    in_both_modes("threads_are_followed_together", || {
        let ledger = audited();
        let top = limited(ledger.root(), "top", 10_000);
        let mut groups = vec![top];
        groups.extend(["a", "b"].map(|name| top.create(name).unwrap()));
        let (models, wrong): (Vec<_>, Vec<_>) = std::thread::scope(|scope| {
            let threads: Vec<_> = (1..=4)
                .map(|seed| {
                    let groups = &groups;
                    scope.spawn(move || work(groups, seed, times(20_000, 1_000_000), true))
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).unzip()
        });
        agree(&ledger, &groups, &models);
        let wrong = wrong.iter().sum::<u64>();
        assert_eq!(mistakes(&ledger), [0, 0, wrong]);
        assert_eq!(ledger.audit_report().wrong.iter().map(|w| w.times).sum::<u64>(), wrong);
        for Model { guards, by_hand } in models {
            drop(guards);
            by_hand.iter().for_each(|&(at, units)| groups[at].uncharge_units(units));
        }
        assert_eq!((ledger.root().precise(), ledger.outstanding().len()), (0, 0));
    });
}

#[test]
fn a_forked_child_follows_its_own_copy() {
    in_both_modes("a_forked_child_follows_its_own_copy", || {
        let ledger = audited();
        let group = ledger.root().create("q1").unwrap();
        group.try_charge_units(100).unwrap();
        let stop = AtomicBool::new(false);
        let turns = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for seed in 1..3 {
                let (ledger, stop, turns) = (&ledger, &stop, &turns);
                scope.spawn(move || {
                    let own = ledger.root().create(&unique("busy")).unwrap();
                    while !stop.load(Relaxed) {
                        drop(work(&[own], seed, 100, false).0.guards);
                        turns.fetch_add(1, Relaxed);
                    }
                });
            }
            for _ in 0..times(60, 2_000) {
                let child = fork(|| {
                    group.uncharge_units(100);
                    group.uncharge_units(100);
                    let report = ledger.audit_report();
                    let right = group.precise() == 0
                        && ledger.mistakes().audited == 1
                        && report.wrong.len() == 1
                        && report.wrong[0].path == "/q1";
                    i32::from(!right)
                });
                assert_eq!(wait(child), 0);
            }
            stop.store(true, Relaxed);
        });
        assert!(turns.into_inner() > 0);
        assert_eq!((group.precise(), ledger.mistakes().audited), (100, 0));
    });
}

#[test]
fn in_a_shared_ledger_each_process_follows_its_own_charges() {
    // SAFETY: creates a descriptor that is ours alone.
    let file = unsafe {
        let file = libc::memfd_create(c"ledger".as_ptr(), libc::MFD_CLOEXEC);
        assert!(file >= 0, "{}", std::io::Error::last_os_error());
        std::os::fd::FromRawFd::from_raw_fd(file)
    };
    let ledger = Ledger::builder().capacity(8).audit(true).create_in(&file).unwrap();
    let other = Ledger::open_in(&file).unwrap();
    let group = ledger.root().create("q1").unwrap();
    group.set_max(Limit::units(1_000)).unwrap();
    let there = other.group(group.id());
    there.try_charge_units(10).unwrap();
    assert_eq!((other.outstanding().len(), ledger.outstanding().len()), (1, 0));
    there.uncharge_units(10);
    // A mistake of this process, in a group of its own.
    group.try_charge_units(100).unwrap();
    group.uncharge_units(99);
    assert_eq!((other.mistakes().audited, group.precise()), (1, 100));
    // The other process does not know the charges of this one's group.
    there.uncharge_units(100);
    assert_eq!((other.mistakes().audited, group.precise()), (1, 0));
    assert!(other.audit_report().wrong.is_empty());
}

#[test]
fn sizes_and_groups_that_are_out_of_use_are_forgotten() {
    if ran_alone("sizes_and_groups_that_are_out_of_use_are_forgotten") {
        return;
    }
    // The audit's records make the process grow; a hundred bytes for each of a million would show.
    let ledger = audited();
    let group = ledger.root().create("q1").unwrap();
    let resident = || {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap();
        text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
    };
    let round = |from: u64| {
        for units in from..from + 100_000 {
            group.try_charge_units(units).unwrap();
            group.uncharge_units(units);
        }
        for _ in 0..20_000 {
            let short = ledger.root().create(&unique("short")).unwrap();
            drop(short.try_charge(10).unwrap());
            short.destroy().unwrap();
        }
    };
    round(1);
    let before = resident();
    round(100_001);
    round(200_001);
    let grown = resident().saturating_sub(before);
    assert!(grown < 4 << 20, "{grown} bytes for 240 000 sizes and groups that hold nothing");
    assert_eq!(ledger.mistakes(), Mistakes::default());
}

#[test]
fn units_that_leave_a_guard_and_come_back_are_followed() {
    let ledger = audited();
    let group = ledger.root().create("q1").unwrap();
    let units = group.try_charge(100).unwrap().into_units();
    let gave_up = line!() - 1;
    let held = ledger.outstanding();
    assert_eq!((held.len(), held[0].guard, held[0].site.line()), (1, false, gave_up));
    let again = Charge::from_units(group, units);
    assert!(again.is_counted() && ledger.outstanding()[0].guard);
    drop(again);
    assert_eq!((group.precise(), mistakes(&ledger)), (0, [0, 0, 0]));
    // These units were never charged: the guard holds nothing, and the line is named.
    group.try_charge_units(7).unwrap();
    let wrong = Charge::from_units(group, 100);
    let line = line!() - 1;
    assert!(!wrong.is_counted());
    drop(wrong);
    assert_eq!((group.precise(), mistakes(&ledger)), (7, [0, 0, 1]));
    assert_eq!(ledger.audit_report().wrong[0].site.line(), line);
    group.uncharge_units(7);
    assert!(ledger.outstanding().is_empty());
}
