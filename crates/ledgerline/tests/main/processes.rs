//! Processes share a ledger: the rows of one that ends, however it ends, are settled.

use crate::common::{Random, fork, in_both_modes, memfd, own_pid, ran_alone, times, unique, wait};
use crate::support::alive;
use ledgerline::{Group, GroupState, Ledger, Limit};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Returns whether a child has not ended, without reaping it.
fn is_running(child: i32) -> bool {
    // SAFETY: an all-zero siginfo is valid to write over; the call writes only to the stack.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        assert_eq!(libc::waitid(libc::P_PID, child as u32, &raw mut info, flags), 0);
        info.si_pid() == 0
    }
}

/// The progress of one child, in memory that the parent sees: the units that it certainly holds.
#[repr(C)]
struct Report {
    holds: AtomicU64,
    charging: AtomicU64,
}

fn report() -> &'static Report {
    // SAFETY: an anonymous shared page of zeros is a valid report of atomics; it is never unmapped.
    unsafe {
        let page = libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        assert_ne!(page, libc::MAP_FAILED);
        &*page.cast::<Report>()
    }
}

#[test]
fn what_an_ended_process_held_goes_back_and_stays_in_the_account() {
    in_both_modes("what_an_ended_process_held_goes_back_and_stays_in_the_account", || {
        let file = memfd();
        let ledger = Ledger::builder().batch(4096).capacity(1024).create_in(&file).unwrap();
        let mine = ledger.attach_process("parent", own_pid()).unwrap();
        let here = mine.try_charge(12_345).unwrap();
        for round in 0..times(40, 2_000) {
            let child = fork(|| {
                let ledger = Ledger::open_in(&file).unwrap();
                let group = ledger.attach_process("child", own_pid()).unwrap();
                let below = group.create(&unique("below")).unwrap();
                // Both leave stock in their cells, and `below` keeps some units.
                for n in 1..100 {
                    drop(below.try_charge(n * 50).unwrap());
                    drop(group.try_charge(n * 70).unwrap());
                }
                std::mem::forget(group.try_charge(3_000).unwrap());
                std::mem::forget(below.try_charge(4_000).unwrap());
                0
            });
            assert_eq!(wait(child), 0);
            assert!(ledger.root().approximate().value >= 19_345, "not settled yet");
            let released = ledger.settle_dead(&alive);
            assert!(released >= 7_000, "{released}");
            assert_eq!(ledger.settle_dead(&alive), 0, "settled once");
            assert_eq!(ledger.root().precise(), 12_345, "what the living hold");
            let snapshot = ledger.snapshot();
            assert_eq!(snapshot.groups[0].current, 12_345);
            let dead: Vec<_> = snapshot.groups.iter().filter(|g| g.owner == child as u32).collect();
            assert_eq!(dead.len(), 2);
            assert_eq!((dead[0].state, dead[0].at_exit), (GroupState::Exited, 7_000));
            assert_eq!((dead[1].state, dead[1].at_exit), (GroupState::Exited, 4_000));
            // A limit equal to the units of live processes can be set, and nothing more can be charged.
            let root = ledger.root();
            root.set_max(Limit::units(12_345 + round)).unwrap();
            drop(mine.try_charge(round).unwrap());
            assert!(mine.try_charge(round + 1).is_err());
            root.set_max(Limit::MAX).unwrap();
        }
        drop(here);
        mine.drain();
        let estimate = ledger.root().approximate();
        assert_eq!((estimate.value, estimate.bound), (0, 0));
        assert_eq!(ledger.mistakes().underflows, 0);
    });
}

#[test]
fn a_process_killed_in_the_middle_leaves_at_most_its_one_request() {
    in_both_modes("a_process_killed_in_the_middle_leaves_at_most_its_one_request", || {
        const BATCH: u64 = 64;
        const REQUEST: u64 = 3_000;
        let file = memfd();
        let ledger = Ledger::builder().batch(BATCH).capacity(8192).create_in(&file).unwrap();
        let mine = ledger.attach_process("parent", own_pid()).unwrap();
        let here = mine.try_charge(1_000).unwrap();
        let report = report();
        let rounds = times(150, 4_000);
        let mut random = Random::new(5);
        for round in 0..rounds {
            report.charging.store(0, Relaxed);
            let child = fork(|| {
                let ledger = Ledger::open_in(&file).unwrap();
                let group = ledger.attach_process("child", own_pid()).unwrap();
                let below = group.create(&unique("below")).unwrap();
                below.try_charge_units(500).unwrap();
                report.charging.store(1, Relaxed);
                // Nearly always in the middle of a walk.
                loop {
                    for n in [REQUEST, 1, BATCH, 40, 2 * BATCH] {
                        below.try_charge_units(n).unwrap();
                        below.uncharge_units(n);
                    }
                    group.drain();
                }
            });
            while report.charging.load(Relaxed) == 0 {
                assert!(is_running(child), "round {round}: the child ended by itself");
                std::thread::yield_now();
            }
            for _ in 0..random.below(2_000) {
                // The parent charges the same root meanwhile.
                drop(mine.try_charge(7).unwrap());
            }
            // SAFETY: ends the child started above, which was not waited for yet.
            unsafe { libc::kill(child, libc::SIGKILL) };
            assert_eq!(wait(child), -libc::SIGKILL);
            ledger.settle_dead(&alive);
            // Documented: a killed walk leaves its ancestors too full by its own units, but never too empty.
            let (usage, most) = (ledger.root().precise(), 1_000 + (round + 1) * (REQUEST + BATCH));
            assert!((1_000..=most).contains(&usage), "round {round}: {usage}");
        }
        check_limit(&ledger, mine);
        drop(here);
        assert_eq!(ledger.mistakes().underflows, 0);
    });
}

/// A killed walk may be counted in `reserved` but not in `usage`, or in both, but not in `usage` alone: a limit still cannot
/// be overrun. There are few tries, since each that meets such a reservation waits for it as long as any wait lasts.
fn check_limit(ledger: &Ledger, group: Group<'_>) {
    let root = ledger.root();
    let limit = root.precise() + 200_000;
    if root.set_max(Limit::units(limit)).is_ok() {
        let held: Vec<_> = [150_000, 49_990].iter().map(|&n| group.try_charge(n)).collect();
        let value = root.approximate().value;
        assert!(value <= limit, "{value} of {limit}");
        assert!(group.try_charge(200_000).is_err());
        drop(held);
        root.set_max(Limit::MAX).unwrap();
    }
}

/// Processes use the same columns, and share the sets of stocked rows. A row must not drop out of a set while another
/// process's row is removed from it.
#[test]
fn a_drain_finds_every_cell_while_another_process_drains_its_own() {
    in_both_modes("a_drain_finds_every_cell_while_another_process_drains_its_own", || {
        let file = memfd();
        drop(Ledger::builder().batch(4096).capacity(64).create_in(&file).unwrap());
        let children: Vec<i32> = (0..3)
            .map(|_| {
                fork(|| {
                    let ledger = Ledger::open_in(&file).unwrap();
                    let group = ledger.attach_process("child", own_pid()).unwrap();
                    for _ in 0..times(30_000, 3_000_000) {
                        group.try_charge_units(1).unwrap();
                        group.uncharge_units(1);
                        group.drain();
                        if group.approximate().value != 0 {
                            return 1;
                        }
                    }
                    0
                })
            })
            .collect();
        let codes: Vec<i32> = children.into_iter().map(wait).collect();
        assert_eq!(codes, [0, 0, 0], "1: a drain left units in a cell");
    });
}

#[test]
fn a_process_has_a_batch_idle_whatever_others_have_and_takes_nothing_of_theirs() {
    in_both_modes(
        "a_process_has_a_batch_idle_whatever_others_have_and_takes_nothing_of_theirs",
        || {
            const BATCH: u64 = 4096;
            const SLACK: u64 = 64 * BATCH;
            let file = memfd();
            let ledger = Ledger::builder().batch(BATCH).capacity(4096).create_in(&file).unwrap();
            let root = ledger.root();
            let mine = ledger.attach_process("parent", own_pid()).unwrap();
            // With so much charged, four fifths of the slack are allowed, which are also tolerated without charges.
            let much = mine.try_charge(4 * SLACK).unwrap();
            for _ in 0..20 {
                let group = mine.create(&unique("q")).unwrap();
                drop(group.try_charge(BATCH * 16).unwrap());
                // Charges that fill the cell, and then lie in it.
                let held = [(); 4].map(|()| group.try_charge(BATCH / 4).unwrap());
                drop(held);
            }
            drop(much);
            let before = root.approximate().bound;
            assert!(before > SLACK / 5 && before <= SLACK, "{before}");
            let child = fork(|| {
                let ledger = Ledger::open_in(&file).unwrap();
                let group = ledger.attach_process("child", own_pid()).unwrap();
                for _ in 0..1_000 {
                    drop(group.try_charge(100).unwrap());
                }
                let first = group.approximate().bound;
                for _ in 0..100 {
                    drop(group.create(&unique("q")).unwrap().try_charge(BATCH * 16).unwrap());
                }
                let all = group.approximate().bound;
                let of_others = ledger.root().approximate().bound - all;
                match (first > 0, all <= BATCH, of_others == before) {
                    (true, true, true) => 0,
                    (a, b, c) => 1 + i32::from(a) + 2 * i32::from(b) + 4 * i32::from(c),
                }
            });
            assert_eq!(wait(child), 0, "had a cell, no more than a batch, and left the rest alone");
            assert_eq!(ledger.mistakes().underflows, 0);
        },
    );
}

/// Processes that only opened the ledger settle, too, and are told apart.
#[test]
fn one_that_is_killed_while_it_settles_without_a_group_of_its_own_is_replaced_by_the_next() {
    if ran_alone(
        "one_that_is_killed_while_it_settles_without_a_group_of_its_own_is_replaced_by_the_next",
    ) {
        return;
    }
    let file = memfd();
    let ledger = Ledger::builder().capacity(16).create_in(&file).unwrap();
    let held = fork(|| {
        let ledger = Ledger::open_in(&file).unwrap();
        let group = ledger.attach_process("ends", own_pid()).unwrap();
        std::mem::forget(group.try_charge(4_000).unwrap());
        0
    });
    assert_eq!(wait(held), 0);
    let killed = fork(|| {
        let ledger = Ledger::open_in(&file).unwrap();
        // SAFETY: ends this process, which settles at that moment.
        ledger.settle_dead(&|_| unsafe { libc::_exit(7) });
        0
    });
    assert_eq!(wait(killed), 7);
    let next = fork(|| {
        let ledger = Ledger::open_in(&file).unwrap();
        i32::from(ledger.settle_dead(&alive) < 4_000)
    });
    assert_eq!(wait(next), 0, "nobody settles any more");
    assert_eq!(ledger.root().precise(), 0);
}
