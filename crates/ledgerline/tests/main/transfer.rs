//! Transfers as a reader of the tree sees them: the units are in one of the two groups.

use crate::common::{in_both_modes, times};
use ledgerline::{Charge, Group, Ledger, Limit, Mistakes, Snapshot};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Returns the units of the tree's leaves, without idle units.
fn sum(snapshot: &Snapshot) -> u64 {
    snapshot.groups.iter().filter(|group| group.depth == 2).map(|group| group.current).sum()
}

fn move_about<'l>(mut charge: Charge<'l>, groups: &[Group<'l>], stop: &AtomicBool) -> u64 {
    let mut moves = 0;
    while !stop.load(Relaxed) {
        for &group in groups {
            charge = charge.transfer(group).expect("there is room for all of it everywhere");
            moves += 1;
        }
    }
    moves
}

/// Releases the other threads, also when a picture is wrong.
struct StopAtTheEnd<'a>(&'a AtomicBool);

impl Drop for StopAtTheEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Takes snapshots while `movers` threads each move a charge, and checks that they count the moved units once. Without the
/// counts of begun and ended transfers, and without the gate, this fails within a few dozen pictures.
fn snapshots_against(movers: usize) {
    let ledger = Ledger::builder().capacity(64).anonymous().unwrap();
    let parents = ["p", "q"].map(|name| ledger.root().create(name).unwrap());
    let groups: Vec<_> = (0..4).map(|n| parents[n % 2].create(&format!("g{n}")).unwrap()).collect();
    let charges: Vec<_> = (0..movers).map(|_| groups[0].try_charge(1000).unwrap()).collect();
    ledger.root().drain();
    let stop = AtomicBool::new(false);
    let moves = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for charge in charges {
            let (groups, stop, moves) = (&groups, &stop, &moves);
            scope.spawn(move || moves.fetch_add(move_about(charge, groups, stop), Relaxed));
        }
        let _stop = StopAtTheEnd(&stop);
        let mut steady = 0;
        let pictures = times(2_000, 200_000);
        for _ in 0..pictures {
            let picture = ledger.snapshot();
            if picture.steady {
                steady += 1;
                assert_eq!(sum(&picture), 1000 * movers as u64, "{picture:#?}");
                let root = &picture.groups[0];
                assert_eq!(root.current, 1000 * movers as u64);
            }
        }
        // No thread of this process can disturb a look with the gate closed. Closing it may fail if a thread is preempted
        // inside for long.
        assert!(steady >= pictures - pictures / 10, "{steady} of {pictures} were steady");
    });
    assert!(moves.into_inner() > 0);
    ledger.root().drain();
    assert_eq!(ledger.root().approximate().value, 0);
    assert_eq!(ledger.mistakes(), Mistakes::default());
}

#[test]
fn a_charge_that_moves_back_and_forth_is_in_one_place_in_every_picture() {
    in_both_modes("a_charge_that_moves_back_and_forth_is_in_one_place_in_every_picture", || {
        snapshots_against(1);
    });
}

#[test]
fn charges_that_several_threads_move_are_in_one_place_each() {
    in_both_modes("charges_that_several_threads_move_are_in_one_place_each", || {
        snapshots_against(3);
    });
}

#[test]
fn a_refused_transfer_leaves_pictures_steady() {
    let ledger = Ledger::builder().capacity(8).anonymous().unwrap();
    let [from, to] = ["from", "to"].map(|name| ledger.root().create(name).unwrap());
    to.set_max(Limit::units(10)).unwrap();
    let charge = from.try_charge(11).unwrap();
    let (charge, refused) = charge.transfer(to).unwrap_err();
    assert_eq!(refused.group, "/to");
    let picture = ledger.snapshot();
    assert!(picture.steady);
    assert_eq!((picture.groups[1].current, picture.groups[2].current), (11, 0));
    drop(charge);
}

#[test]
fn units_without_a_guard_move_below_a_full_ancestor_and_within_the_limits() {
    let ledger = Ledger::builder().capacity(8).anonymous().unwrap();
    let [from, to] = ["from", "to"].map(|name| ledger.root().create(name).unwrap());
    ledger.root().set_max(Limit::units(100)).unwrap();
    from.try_charge_units(100).unwrap();
    from.transfer_units(to, 100).unwrap();
    let picture = ledger.snapshot();
    let row = |at: usize| {
        let row = &picture.groups[at];
        (row.current, row.charges, row.uncharges)
    };
    assert_eq!([row(1), row(2)], [(0, 1, 1), (100, 1, 0)]);
    // The new group keeps its own limit, and then nothing moves.
    from.set_max(Limit::units(99)).unwrap();
    assert_eq!(to.transfer_units(from, 100).unwrap_err().group, from.id());
    assert_eq!((from.precise(), to.precise(), from.max_events()), (0, 100, 1));
    // A group of another ledger is refused.
    let other = Ledger::builder().capacity(8).anonymous().unwrap();
    to.transfer_units(other.root(), 100).unwrap_err();
    to.uncharge_units(100);
    assert_eq!((to.precise(), ledger.mistakes()), (0, Mistakes::default()));
}

#[test]
fn an_audit_follows_units_that_move_without_a_guard() {
    let ledger = Ledger::builder().capacity(8).audit(true).anonymous().unwrap();
    let [from, to] = ["from", "to"].map(|name| ledger.root().create(name).unwrap());
    from.try_charge_units(100).unwrap();
    from.transfer_units(to, 100).unwrap();
    assert!(!from.try_uncharge_units(100));
    assert!(to.try_uncharge_units(100));
}
