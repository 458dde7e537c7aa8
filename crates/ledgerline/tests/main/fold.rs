//! Rows of ended processes fold into one, and are reused, while other processes continue.

use crate::common::{Random, fork, in_both_modes, memfd, own_pid, times, unique, wait};
use crate::support::alive;
use ledgerline::{Group, GroupState, Ledger, Limit};

/// Attaches this process with a group below its own, and charges both so many times.
fn work(ledger: &Ledger, charges: u64) -> (Group<'_>, Group<'_>) {
    let group = ledger.attach_process("child", own_pid()).unwrap();
    let below = group.create(&unique("below")).unwrap();
    for n in 0..charges {
        drop(below.try_charge(50 + n).unwrap());
        drop(group.try_charge(70 + n).unwrap());
    }
    (group, below)
}

#[test]
fn a_folded_process_leaves_its_counts_its_end_and_its_peak_and_frees_its_rows() {
    in_both_modes(
        "a_folded_process_leaves_its_counts_its_end_and_its_peak_and_frees_its_rows",
        || {
            let file = memfd();
            let ledger = Ledger::builder().items(&["seen"]).capacity(16).create_in(&file).unwrap();
            let all = ledger.root().create("child").unwrap();
            let rounds = 60;
            for round in 1..=rounds {
                let child = fork(|| {
                    let ledger = Ledger::open_in(&file).unwrap();
                    let (group, below) = work(&ledger, 10);
                    std::mem::forget(below.try_charge(1_000).unwrap());
                    drop(group.try_charge(round * 1_000).unwrap());
                    below.add_stat(ledger.item("seen").unwrap(), 3);
                    0
                });
                assert_eq!(wait(child), 0);
                assert_eq!(ledger.ended().count(), 0, "nobody is folded who was not settled");
                ledger.settle_dead(&alive);
                let ended: Vec<Group<'_>> = ledger.ended().collect();
                assert_eq!(ended.len(), 1, "a process is one, with all below it");
                assert_eq!(ended[0].name(), "child");
                assert_eq!(ledger.fold_ended(&ended, all).len(), 1);
                assert_eq!(ledger.fold_ended(&ended, all).len(), 0, "once");
                assert!(!ended[0].exists());

                let snapshot = ledger.snapshot();
                let [root, row] = &snapshot.groups[..] else { panic!("{snapshot:?}") };
                assert_eq!((row.id, row.current, row.at_exit), (all.id(), 0, round * 1_000));
                assert_eq!((row.charges, row.uncharges), (round * 22, round * 21));
                assert_eq!((root.charges, root.uncharges), (row.charges, row.uncharges));
                // Its largest charge, and the one it never returned.
                assert!(row.peak.value >= (round + 1) * 1_000, "{:?}", row.peak);
                assert_eq!((root.current, row.state), (0, GroupState::Live));
                for group in [ledger.root(), all] {
                    assert_eq!(group.stat().get("seen").unwrap().subtree, round as i64 * 3);
                }
                assert_eq!(all.stat().get("seen").unwrap().own, round as i64 * 3);
            }
            assert_eq!(ledger.mistakes().underflows, 0);
        },
    );
}

#[test]
fn a_process_of_which_a_part_is_not_settled_stays() {
    in_both_modes("a_process_of_which_a_part_is_not_settled_stays", || {
        let file = memfd();
        let ledger = Ledger::builder().capacity(16).create_in(&file).unwrap();
        let all = ledger.root().create("all").unwrap();
        let mine = ledger.attach_process("parent", own_pid()).unwrap();
        let held = mine.try_charge(500).unwrap();
        // A live process is not folded, whatever the caller passes.
        assert_eq!(ledger.fold_ended(&[mine, ledger.root(), all], all).len(), 0);
        let child = fork(|| {
            work(&Ledger::open_in(&file).unwrap(), 1);
            0
        });
        assert_eq!(wait(child), 0);
        assert_eq!(ledger.ended().count(), 0);
        ledger.settle_dead(&alive);
        let ended: Vec<Group<'_>> = ledger.ended().collect();
        // Into a group elsewhere, or one that is gone.
        let below = mine.create("below").unwrap();
        assert_eq!(ledger.fold_ended(&ended, below).len(), 0);
        below.destroy().unwrap();
        assert_eq!(ledger.fold_ended(&ended, below).len(), 0);
        assert_eq!(ledger.fold_ended(&ended, all).len(), 1);
        assert_eq!((ledger.root().precise(), mine.precise()), (500, 500));
        drop(held);
    });
}

/// The settler has read the owner of a row. If the row went to another process now, the settler would still treat it as the
/// dead one's.
#[test]
fn no_row_becomes_anothers_while_somebody_settles() {
    in_both_modes("no_row_becomes_anothers_while_somebody_settles", || {
        let file = memfd();
        let ledger = Ledger::builder().capacity(16).create_in(&file).unwrap();
        let all = ledger.root().create("all").unwrap();
        let mut children = [0; 2];
        for child in &mut children {
            *child = fork(|| {
                work(&Ledger::open_in(&file).unwrap(), 1);
                0
            });
            assert_eq!(wait(*child), 0);
        }
        ledger.settle_dead(&|owner| owner != children[0] as u32);
        let ended: Vec<Group<'_>> = ledger.ended().collect();
        assert_eq!(ended.len(), 1);
        let looked = std::cell::Cell::new(0);
        let settling = |owner: u32| {
            looked.set(looked.get() + 1);
            // Another process that maps the ledger tries to free rows, or to settle, in the middle of this.
            let other = Ledger::open_in(&file).unwrap();
            let ended: Vec<Group<'_>> = other.ended().collect();
            assert_eq!(other.fold_ended(&ended, other.group(all.id())).len(), 0);
            assert_eq!(other.settle_dead(&|other| other == own_pid() || alive(other)), 0);
            alive(owner)
        };
        ledger.settle_dead(&settling);
        assert!(looked.get() > 0);
        assert_eq!(ledger.ended().count(), 2);
        let ended: Vec<Group<'_>> = ledger.ended().collect();
        assert_eq!(ledger.fold_ended(&ended, all).len(), 2);
    });
}

/// Many processes live, end and are killed at a time; all settle; one folds. Rows go from process to process.
#[test]
fn no_unit_and_no_count_is_lost_while_rows_go_from_process_to_process() {
    in_both_modes("no_unit_and_no_count_is_lost_while_rows_go_from_process_to_process", || {
        let file = memfd();
        let ledger = Ledger::builder().batch(256).capacity(96).create_in(&file).unwrap();
        let all = [ledger.root().create("a").unwrap(), ledger.root().create("b").unwrap()];
        let mut random = Random::new(11);
        let (mut living, mut charges) = (Vec::new(), 0);
        for round in 0..times(500, 60_000) {
            let to_be_killed = random.below(4) == 0;
            let count = random.below(30);
            let child = fork(|| {
                let ledger = Ledger::open_in(&file).unwrap();
                if to_be_killed {
                    let (group, below) = work(&ledger, 0);
                    loop {
                        // Its counts are uncertain, but its units and rows are not.
                        group.charge_units(300).unwrap();
                        below.charge_units(100).unwrap();
                        below.uncharge_units(100);
                        group.uncharge_units(300);
                        ledger.settle_dead(&alive);
                    }
                }
                let (group, _below) = work(&ledger, count);
                std::mem::forget(group.try_charge(1_000).unwrap());
                ledger.settle_dead(&alive);
                0
            });
            charges += if to_be_killed { 0 } else { 2 * count + 1 };
            living.push((child, to_be_killed));
            if living.len() > 6 {
                let (child, kill) = living.remove(random.below(6) as usize);
                if kill {
                    // SAFETY: signals a child that was not waited for.
                    unsafe { libc::kill(child, libc::SIGKILL) };
                }
                assert_eq!(wait(child), if kill { -libc::SIGKILL } else { 0 });
            }
            ledger.settle_dead(&alive);
            let ended: Vec<Group<'_>> = ledger.ended().collect();
            let (some, others) = ended.split_at(ended.len() / 2);
            ledger.fold_ended(some, all[0]);
            ledger.fold_ended(others, all[1]);
            if round % 16 == 0 {
                let snapshot = ledger.snapshot();
                assert!(snapshot.groups.len() < 96);
            }
        }
        for (child, kill) in living {
            if kill {
                // SAFETY: as above.
                unsafe { libc::kill(child, libc::SIGKILL) };
            }
            wait(child);
        }
        ledger.settle_dead(&alive);
        let ended: Vec<Group<'_>> = ledger.ended().collect();
        ledger.fold_ended(&ended, all[0]);
        let snapshot = ledger.snapshot();
        assert_eq!(snapshot.groups.len(), 3, "all were folded: {:?}", snapshot.groups);
        let sum = |of: fn(&ledgerline::GroupSnapshot) -> u64| -> u64 {
            snapshot.groups[1..].iter().map(of).sum()
        };
        assert!(sum(|row| row.charges) >= charges, "{} of {charges}", sum(|row| row.charges));
        assert_eq!(snapshot.groups[0].charges, sum(|row| row.charges));
        assert_eq!(ledger.mistakes().underflows, 0);
        // A process killed in the middle of a walk leaves its one request at most.
        let left = ledger.root().precise();
        assert!(left < 30_000, "{left}");
    });
}

#[test]
fn a_reserve_is_granted_beyond_max_and_never_beyond_itself() {
    in_both_modes("a_reserve_is_granted_beyond_max_and_never_beyond_itself", || {
        let file = memfd();
        let ledger = Ledger::builder().batch(64).capacity(64).create_in(&file).unwrap();
        let (max, most) = (100_000, 110_000);
        ledger.root().set_max(Limit::units(max)).unwrap();
        // More than the reserve, or without a max.
        let mine = ledger.attach_process("parent", own_pid()).unwrap();
        assert!(!ledger.charge_reserve(mine, most - max + 1, most, &alive));
        assert!(ledger.charge_reserve(mine, 10, most, &alive));
        mine.uncharge_units(10);
        let children: Vec<i32> = (0..4)
            .map(|child| {
                fork(|| {
                    let ledger = Ledger::open_in(&file).unwrap();
                    let group = ledger.attach_process("child", own_pid()).unwrap();
                    let mut random = Random::new(child);
                    let mut held = Vec::new();
                    for _ in 0..times(3_000, 300_000) {
                        let units = 1 + random.below(2_000);
                        if group.try_charge_units(units).is_ok()
                            || ledger.charge_reserve(group, units, most, &alive)
                        {
                            held.push(units);
                        }
                        if ledger.root().approximate().value > most {
                            return 1;
                        }
                        // All are nearly always at the limit.
                        if held.len() > 5 && random.below(3) == 0 {
                            group.uncharge_units(held.swap_remove(0));
                        }
                    }
                    held.into_iter().for_each(|units| group.uncharge_units(units));
                    group.drain();
                    0
                })
            })
            .collect();
        let codes: Vec<i32> = children.into_iter().map(wait).collect();
        assert_eq!(codes, [0; 4], "1: more was held than there is");
        let peak = ledger.root().peak();
        assert!(peak.value <= most && peak.value > max, "{peak:?}");
        ledger.settle_dead(&alive);
        assert_eq!((ledger.root().precise(), ledger.mistakes().underflows), (0, 0));
    });
}
