//! The tree as a program traverses it, handles without a lifetime, and guards.

use crate::common::{ran_alone, times, unique};
use ledgerline::{Charge, CreateError, DestroyError, Group, GroupId, Ledger, Limit, Mistakes};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Instant;

/// Creates a tree with its paths in the simplest way: every path is spelled out.
fn plant<'l>(ledger: &'l Ledger, paths: &[&str]) -> Vec<Group<'l>> {
    paths
        .iter()
        .map(|path| {
            let (above, name) = path.rsplit_once('/').unwrap();
            let parent = if above.is_empty() { Some(ledger.root()) } else { ledger.find(above) };
            parent.unwrap().create(name).unwrap()
        })
        .collect()
}

const PATHS: [&str; 7] = ["/a", "/a/b", "/a/b/c", "/a/d", "/e", "/e/b", "/f"];

#[test]
fn a_group_is_found_by_its_path_and_by_no_other() {
    let ledger = Ledger::new().unwrap();
    let groups = plant(&ledger, &PATHS);
    for (group, path) in groups.iter().zip(PATHS) {
        assert_eq!((ledger.find(path), group.path()), (Some(*group), path.to_owned()));
    }
    assert_eq!(ledger.find("/"), Some(ledger.root()));
    for nowhere in ["", "a", "/x", "/a/x", "/a/b/c/d", "/b", "//a/../e"] {
        assert_eq!(ledger.find(nowhere), None, "{nowhere:?}");
    }
    let again = groups[2];
    again.destroy().unwrap();
    assert_eq!(ledger.find("/a/b/c"), None);
    // The row is reused elsewhere.
    let other = ledger.root().create("c").unwrap();
    assert_eq!(other.id().index(), again.id().index());
    assert_eq!(ledger.find("/a/b/c"), None);
    assert_eq!(again.children().count() + again.descendants().count(), 0);
}

#[test]
fn everything_below_a_group_is_told_each_after_its_parent() {
    let ledger = Ledger::new().unwrap();
    let groups = plant(&ledger, &PATHS);
    let told: Vec<(u32, String)> =
        ledger.root().descendants().map(|(depth, group)| (depth, group.path())).collect();
    let all: Vec<(u32, String)> =
        PATHS.iter().map(|path| (path.matches('/').count() as u32, (*path).to_owned())).collect();
    assert_eq!(told, all);
    let below: Vec<Group<'_>> = groups[0].descendants().map(|(_, group)| group).collect();
    assert_eq!(below, groups[1..4]);
    assert!(
        groups
            .iter()
            .zip(PATHS)
            .all(|(group, path)| group.depth() as usize == path.matches('/').count())
    );
    assert!(groups[0].children().eq([groups[1], groups[3]]));
    assert_eq!(groups[2].children().count(), 0);
}

#[test]
fn a_tree_is_destroyed_whole_and_says_what_each_group_held() {
    let ledger = Ledger::new().unwrap();
    let groups = plant(&ledger, &PATHS);
    groups[2].try_charge_units(70).unwrap();
    assert_eq!(ledger.root().destroy_tree(), Err(DestroyError::Root));
    let settled = groups[0].destroy_tree().unwrap();
    let held: Vec<(GroupId, u64)> =
        settled.iter().map(|group| (group.group.id(), group.leftover)).collect();
    // The deepest first. Units charged below a group stay charged to it.
    assert_eq!(held.len(), 4);
    assert_eq!(held.last(), Some(&(groups[0].id(), 70)));
    assert!(held.contains(&(groups[2].id(), 70)) && held.contains(&(groups[3].id(), 0)));
    assert_eq!(groups[0].destroy_tree(), Err(DestroyError::Gone));
    assert_eq!(ledger.root().children().count(), 2);
    assert_eq!(ledger.root().precise(), 70);
    groups[2].uncharge_units(70);
    assert_eq!((ledger.root().precise(), ledger.mistakes()), (0, Mistakes::default()));
}

#[test]
fn ten_thousand_groups_go_while_others_create_more_below_them() {
    let ledger = Ledger::builder().capacity(40_000).anonymous().unwrap();
    let tenant = ledger.root().create("tenant").unwrap();
    let many: Vec<Group<'_>> =
        (0..10_000).map(|n| tenant.create(&n.to_string()).unwrap()).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for group in many.iter().cycle().take(200_000) {
                // Refused once its parent is gone.
                if group.create(&unique("late")).is_err() && !tenant.exists() {
                    break;
                }
            }
        });
        while tenant.destroy_tree().is_err_and(|error| error != DestroyError::Gone) {}
    });
    assert_eq!(ledger.root().descendants().count(), 0);
    assert_eq!(ledger.snapshot().groups.len(), 1);
}

#[test]
fn an_owned_group_outlives_the_scope_that_made_its_ledger() {
    let (tenant, weak) = {
        let ledger = Arc::new(Ledger::new().unwrap());
        let tenant = ledger.owned_root().create("acme").unwrap();
        tenant.group().set_max(Limit::units(1000)).unwrap();
        (tenant, Arc::downgrade(&ledger))
    };
    let charge = tenant.try_charge(600).unwrap();
    assert_eq!(tenant.try_charge(600).unwrap_err().group, "/acme");
    let watch = tenant.watch().unwrap();
    let reclaimer = tenant.add_reclaimer(0, |_| 0);
    let worker = std::thread::spawn({
        let tenant = tenant.clone();
        move || tenant.create("q1").unwrap().charge(500).unwrap()
    });
    let mut late = worker.join().unwrap();
    assert_eq!(watch.look().expect("it went over").max, 2, "with the one refused before");
    let half = late.split(250).unwrap();
    assert_eq!(
        (late.units(), half.units(), half.group().group().path().as_str()),
        (250, 250, "/acme/q1")
    );
    assert_eq!(tenant.group().precise(), 1100);
    drop((charge, late));
    drop(tenant);
    assert_eq!(reclaimer.report().runs, 0);
    drop((watch, reclaimer));
    // The last charge keeps the ledger alive.
    let ledger = weak.upgrade().expect("a charge is held");
    assert_eq!(ledger.root().precise(), 250);
    drop(half);
    assert_eq!(ledger.root().precise(), 0);
    drop(ledger);
    assert!(weak.upgrade().is_none(), "nothing keeps it any more");
}

#[test]
fn a_handle_is_owned_with_its_own_ledger_alone() {
    let [one, two] = [0; 2].map(|_| Arc::new(Ledger::new().unwrap()));
    let group = one.root().create("g").unwrap();
    assert!(group.to_owned_in(&two).is_none());
    assert_eq!(group.to_owned_in(&one).unwrap().group(), group);
    let charge = group.try_charge(7).unwrap();
    let charge = ledgerline::OwnedCharge::new(charge, &two).unwrap_err();
    let charge = ledgerline::OwnedCharge::new(charge, &one).unwrap();
    assert_eq!((charge.charge().units(), group.precise()), (7, 7));
    drop(charge);
    assert_eq!(group.precise(), 0);
}

#[test]
fn a_guard_destroys_its_group_and_all_below_unless_it_is_kept() {
    let ledger = Arc::new(Ledger::new().unwrap());
    let tenant = ledger.root().create("acme").unwrap();
    let query = tenant.create("q1").unwrap().destroy_on_drop();
    query.create("sort").unwrap();
    let handle = *query;
    drop(query);
    assert!(!handle.exists());
    assert_eq!(tenant.children().count(), 0);
    let kept = tenant.create("q2").unwrap().destroy_on_drop().keep();
    assert!(kept.exists());
    assert_eq!(kept.destroy_on_drop().destroy().unwrap().len(), 1);
    let owned = ledger.owned_root().create("q3").unwrap().destroy_on_drop();
    owned.create("below").unwrap();
    let also = owned.clone();
    drop(owned);
    assert!(!also.group().exists());
    assert_eq!(also.try_charge(1).unwrap_err().reason, ledgerline::Reason::Gone);
    // It was destroyed before: the guard has nothing left to do.
    let gone = tenant.create("q4").unwrap().destroy_on_drop();
    gone.destroy().unwrap();
    assert_eq!(ledger.root().descendants().count(), 1);
}

#[test]
fn units_leave_their_guard_and_come_back() {
    let ledger = Ledger::new().unwrap();
    let group = ledger.root().create("g").unwrap();
    let units = group.try_charge(100).unwrap().into_units();
    assert_eq!((units, group.precise()), (100, 100));
    let mut charge = Charge::from_units(group, units);
    let part = charge.split(30).unwrap().into_units();
    drop(charge);
    assert_eq!(group.precise(), 30);
    group.uncharge_units(part);
    // A charge made while the group was off was not counted; its units are.
    group.set_mode(ledgerline::ControlMode::Off);
    let off = group.try_charge(5).unwrap();
    assert!(!off.is_counted());
    let units = off.into_units();
    assert_eq!(group.precise(), 5);
    group.set_mode(ledgerline::ControlMode::Enforce);
    group.uncharge_units(units);
    assert_eq!((group.precise(), ledger.mistakes()), (0, Mistakes::default()));
}

#[test]
#[should_panic(expected = "no group can hold so many")]
fn a_guard_is_not_made_of_more_units_than_there_can_be() {
    let ledger = Ledger::new().unwrap();
    let _guard = Charge::from_units(ledger.root(), 1 << 63);
}

#[test]
fn a_ledger_is_refused_with_numbers_that_make_no_sense() {
    for groups in [0, 1, (1 << 20) + 1, u32::MAX] {
        let error = Ledger::builder().capacity(groups).anonymous().unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains(&groups.to_string()), "{error}");
    }
    for units in [0, (1 << 28) + 1] {
        let error = Ledger::builder().batch(units).anonymous().unwrap_err();
        assert!(error.to_string().contains(&units.to_string()), "{error}");
    }
    assert_eq!(Ledger::builder().capacity(2).anonymous().unwrap().capacity(), 2);
}

/// An old handle destroys the groups below *its* group, and no others.
#[test]
fn a_tree_that_ends_meanwhile_is_destroyed_without_what_its_rows_hold_next() {
    let ledger = Ledger::builder().capacity(4096).anonymous().unwrap();
    let other = ledger.root().create("other").unwrap();
    // So that a pass takes long enough for a row to get another group.
    let _many: Vec<_> = (0..500).map(|_| other.create(&unique("many")).unwrap()).collect();
    let handle = Mutex::new(None::<Group<'_>>);
    let stop = AtomicBool::new(false);
    let lost = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                let group = handle.lock().unwrap().take();
                let _settled = group.map(Group::destroy_tree);
            }
        });
        let lost = (0..times(1_500, 50_000)).filter(|_| {
            let tenant = ledger.root().create("tenant").unwrap();
            let _below = tenant.create("below").unwrap();
            *handle.lock().unwrap() = Some(tenant);
            while tenant.destroy_tree().is_err_and(|error| error != DestroyError::Gone) {}
            let next = [0; 2].map(|_| other.create(&unique("next")).unwrap());
            let innocent = next.map(|group| group.create("innocent").unwrap());
            std::thread::yield_now();
            let lost = innocent.iter().any(|group| !group.exists());
            for group in innocent.into_iter().chain(next) {
                while group.destroy().is_err() && group.exists() {}
            }
            lost
        });
        let lost = lost.count();
        stop.store(true, Relaxed);
        lost
    });
    assert_eq!(lost, 0, "groups that somebody else destroyed");
}

/// A pass over the rows that were ever in use would be noticed: it takes thousands of times as long.
#[test]
fn a_guard_of_a_group_with_none_below_ends_it_without_a_look_at_the_rows() {
    if ran_alone("a_guard_of_a_group_with_none_below_ends_it_without_a_look_at_the_rows") {
        return;
    }
    let ledger = Ledger::builder().capacity(100_000).anonymous().unwrap();
    let once: Vec<Group<'_>> =
        (0..90_000).map(|_| ledger.root().create(&unique("once")).unwrap()).collect();
    assert!(once.into_iter().all(|group| group.destroy().is_ok()));
    let make = || ledger.root().create(&unique("query")).unwrap();
    let time = |act: &dyn Fn()| {
        let begun = Instant::now();
        (0..300).for_each(|_| act());
        begun.elapsed()
    };
    let plain = time(&|| assert!(make().destroy().is_ok()));
    let guarded = time(&|| drop(make().destroy_on_drop()));
    assert!(guarded < plain * 100, "{guarded:?} with guards, {plain:?} without");
}

#[test]
fn what_a_group_without_children_holds_is_read_without_a_look_at_others() {
    if ran_alone("what_a_group_without_children_holds_is_read_without_a_look_at_others") {
        return;
    }
    let ledger = Ledger::builder().capacity(1 << 15).anonymous().unwrap();
    let [leaf, tenant] = ["leaf", "tenant"].map(|name| ledger.root().create(name).unwrap());
    let _held = leaf.try_charge(100).unwrap();
    let quickest = || {
        let once = |_| {
            let start = std::time::Instant::now();
            (0..20).for_each(|_| assert_eq!(std::hint::black_box(leaf.precise()), 100));
            start.elapsed()
        };
        (0..50).map(once).min().unwrap()
    };
    let before = quickest();
    let others: Vec<_> = (0..20_000).map(|_| tenant.create(&unique("g")).unwrap()).collect();
    let _others: Vec<_> = others.iter().map(|group| group.try_charge(100).unwrap()).collect();
    // A look at each row took two thousand times as long.
    assert!(quickest() < before * 50, "{:?} and {before:?}", quickest());
    assert_eq!(tenant.precise(), 100 * 20_000);
}

#[test]
fn threads_that_get_or_create_a_group_at_once_get_the_same_one() {
    let ledger = Ledger::new().unwrap();
    for round in 0..50 {
        let name = format!("tenant{round}");
        let get = || ledger.root().get_or_create(&name).unwrap();
        let got: Vec<Group<'_>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(get)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(got.iter().all(|group| *group == got[0]), "{got:?}");
    }
    assert_eq!(ledger.root().children().count(), 50);
    // A destroyed group is not returned.
    let old = ledger.root().get_or_create("tenant0").unwrap();
    old.destroy().unwrap();
    assert_ne!(ledger.root().get_or_create("tenant0"), Ok(old));
    assert_eq!(old.get_or_create("below"), Err(ledgerline::CreateError::Gone));
}

#[test]
fn of_threads_that_create_one_name_at_once_one_succeeds() {
    let ledger = Ledger::builder().capacity(64).anonymous().unwrap();
    for round in 0..times(2_000, 100_000) {
        let begin = Barrier::new(3);
        let created: Vec<_> = std::thread::scope(|scope| {
            let create = || {
                begin.wait();
                // One name, and one that another round's group has had in that row.
                ledger.root().create("q")
            };
            let threads = [0; 3].map(|_| scope.spawn(create));
            threads.map(|thread| thread.join().unwrap()).into()
        });
        let one: Vec<_> = created.iter().flatten().collect();
        assert_eq!(one.len(), 1, "round {round}: {created:?}");
        assert!(created.iter().all(|it| it.is_ok() || *it == Err(CreateError::Exists)));
        assert!(
            ledger.root().children().eq([*one[0]]) && ledger.root().child("q") == Some(*one[0])
        );
        one[0].destroy().unwrap();
    }
}

#[test]
fn a_name_is_free_again_once_its_group_has_ended_and_elsewhere_always() {
    let ledger = Ledger::new().unwrap();
    let [a, b] = ["a", "b"].map(|name| ledger.root().create(name).unwrap());
    let query = a.create("q").unwrap();
    assert_eq!(a.create("q"), Err(CreateError::Exists));
    assert_eq!(a.get_or_create("q"), Ok(query));
    b.create("q").unwrap();
    query.create("q").unwrap().destroy().unwrap();
    let held = query.try_charge(10).unwrap();
    query.destroy().unwrap();
    let next = a.create("q").unwrap();
    assert_eq!(a.child("q"), Some(next));
    drop(held);
    assert_eq!(ledger.root().create("a"), Err(CreateError::Exists));
    // A refused name leaves nothing behind.
    assert_eq!(ledger.root().descendants().count(), 4);
}
