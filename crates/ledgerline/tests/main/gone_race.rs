//! Groups come and go in one row: a reader gets values of a single group, or nothing.

use crate::common::{Random, in_both_modes, unique};
use crate::support::{LONG, seconds};
use ledgerline::{ControlMode, Group, GroupId, Ledger, Limit, Unclaimed};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// The least number of groups that come and go.
const LIVES: u64 = 1_000;

/// One group after the other, distinguishable by all their values: two that follow each other differ in their numbers, in each
/// word of their names, in their parents, and in their depth.
#[derive(Clone, Copy)]
struct Life(u64);

impl Life {
    fn is_odd(self) -> bool {
        self.0 % 2 == 1
    }

    /// Returns the id in a row. Rows assign generations from 1 on, one after the other, up to 65 534.
    fn id(self, row: u32) -> GroupId {
        GroupId::from_parts(row, (self.0 % 65_534) as u16 + 1)
    }

    /// Returns a name of seven equal words, as a row stores it.
    fn name(self) -> String {
        format!("{:08}", self.0 % 100_000_000).repeat(7)
    }

    fn parents() -> [String; 2] {
        let [even, odd, below] = ["e", "o", "b"].map(|letter| letter.repeat(56));
        [format!("/{even}"), format!("/{odd}/{below}")]
    }

    fn path(self) -> String {
        format!("{}/{}", Life::parents()[usize::from(self.is_odd())], self.name())
    }

    fn limit(self, which: u64) -> Limit {
        Limit::units((which << 48) + self.0)
    }

    fn units(self) -> u64 {
        64 * (1 + self.0 % 1_000)
    }

    fn refusals(self) -> u64 {
        1 + self.0 % 3
    }

    fn mode(self) -> ControlMode {
        if self.is_odd() { ControlMode::Measure } else { ControlMode::Enforce }
    }
}

/// Creates one group after the other in the same row, and publishes the present one.
fn live(parents: [Group<'_>; 2], row: u32, now: &AtomicU64, stop: &AtomicBool) {
    let rows = parents[0].ledger().item("rows").unwrap();
    let mut life = Life(now.load(Ordering::Relaxed) + 1);
    while !stop.load(Ordering::Relaxed) {
        let group = parents[usize::from(life.is_odd())].create(&life.name()).unwrap();
        assert_eq!(group.id(), life.id(row));
        group.set_max(life.limit(1)).unwrap();
        group.set_high(life.limit(2));
        group.set_low(life.limit(3));
        group.set_min(life.limit(4));
        group.set_mode(ControlMode::Enforce);
        let charge = group.try_charge(life.units()).unwrap();
        for _ in 0..life.refusals() {
            group.try_charge_units(1 << 61).unwrap_err();
        }
        group.add_stat(rows, life.0 as i64);
        group.set_mode(life.mode());
        group.set_oom_group(life.is_odd());
        now.store(life.0, Ordering::Release);
        for _ in 0..life.0 % 64 {
            std::hint::spin_loop();
        }
        // Some keep their row for a moment.
        if life.0.is_multiple_of(5) {
            group.destroy().unwrap();
            drop(charge);
        } else {
            drop(charge);
            group.destroy().unwrap();
        }
        life = Life(life.0 + 1);
    }
}

/// Looks once, in one of many ways. Returns whether the group was still there.
fn look(ledger: &Ledger, group: Group<'_>, life: Life, way: u64) -> bool {
    let parent = &Life::parents()[usize::from(life.is_odd())];
    let (there, gone) = (life.path(), "(destroyed)");
    let one_of = |told: u64, all: &[u64]| {
        assert!(all.contains(&told), "{told} is not of {all:?}, life {}, way {way}", life.0);
        told != 0
    };
    let near_units = |told: u64| {
        // A cell may hold two more units.
        let own = (life.units()..life.units() + 4).contains(&told) || told < 4;
        assert!(own, "{told} units, life {}, way {way}", life.0);
        told > 4
    };
    let limit = |told: Limit, which: u64, none: Limit| {
        assert!(told == life.limit(which) || told == none, "{told} is not {}'s, {way}", life.0);
        told != none
    };
    let text = |told: String, own: &str| {
        assert!(told == own || told == gone, "{told} is not {own}, nor {gone}");
        told != gone
    };
    match way {
        0 => text(group.path(), &there),
        1 => text(group.name(), &life.name()),
        2 => {
            let told = group.parent();
            assert!(told.is_none_or(|told| told.path() == *parent), "{told:?} is not {parent}");
            told.is_some()
        }
        3 => limit(group.max(), 1, Limit::MAX),
        4 => limit(group.high(), 2, Limit::MAX),
        5 => limit(group.low(), 3, Limit::ZERO),
        6 => limit(group.min(), 4, Limit::ZERO),
        7 => near_units(group.peak().value),
        8 => near_units(group.approximate().value),
        9 => one_of(group.max_events(), &[0, life.refusals()]),
        10 => {
            let told = group.mode();
            assert!(told == life.mode() || told == ControlMode::default(), "{told:?}");
            true
        }
        11 => {
            let told = group.oom_group();
            assert!(told == life.is_odd() || !told);
            true
        }
        12 => {
            let top = group.parent();
            let told = top.map_or(0, |top| group.protection(top, Unclaimed::Lost).min);
            one_of(told, &[0, life.limit(4).get().unwrap()])
        }
        13 => {
            let id = group.id();
            let (own, none) = (format!("Group({there} {id})"), format!("Group({gone} {id})"));
            let told = format!("{group:?}");
            assert!(told == own || told == none, "{told}");
            told == own
        }
        14 => {
            // A charge of zero always fits, and no number that is read here counts it.
            match group.try_charge(0) {
                Ok(_nothing) => true,
                Err(refused) => text(refused.group.clone(), gone),
            }
        }
        15 => one_of(group.precise(), &[0, life.units()]),
        16 => one_of(group.local_events().max, &[0, life.refusals()]),
        17 => {
            let rows = group.stat().get("rows").unwrap().own;
            one_of(rows as u64, &[0, life.0])
        }
        18 => {
            let backoff = group.backoff(1);
            assert!(backoff.group().is_none(), "{backoff:?}");
            true
        }
        _ => {
            in_reports(ledger, group.id().index());
            true
        }
    }
}

/// Checks the ledger's own reports of the row, whichever group has it by then.
fn in_reports(ledger: &Ledger, row: u32) {
    let whole = |id: GroupId, path: &str, max: Option<Limit>| {
        let name = path.rsplit('/').next().unwrap();
        let Ok(number) = name[..8].parse() else { return assert_eq!(path, "(destroyed)") };
        let life = Life(number);
        assert_eq!((path, id), (&*life.path(), life.id(row)));
        // Or it has not been set yet.
        assert!(max.is_none_or(|max| max == Limit::MAX || max == life.limit(1)), "{max:?} {name}");
    };
    for group in ledger.snapshot().groups {
        if group.id.index() == row {
            assert_eq!(group.path.rsplit('/').next(), Some(&*group.name));
            whole(group.id, &group.path, Some(group.max));
        }
    }
    for leak in ledger.leaks() {
        whole(leak.group, &leak.path, None);
    }
    let diagnosis = ledger.root().diagnose();
    for held in diagnosis.holders.into_iter().filter(|held| held.id.index() == row) {
        whole(held.id, &held.path, None);
    }
}

#[test]
fn a_reader_is_told_of_one_group_or_of_none_while_groups_come_and_go_in_the_row() {
    in_both_modes(
        "a_reader_is_told_of_one_group_or_of_none_while_groups_come_and_go_in_the_row",
        || {
            let ledger =
                &Ledger::builder().capacity(5).batch(1).items(&["rows"]).anonymous().unwrap();
            let [even, odd, below] = ["e", "o", "b"].map(|letter| letter.repeat(56));
            let even = ledger.root().create(&even).unwrap();
            let odd = ledger.root().create(&odd).unwrap().create(&below).unwrap();
            assert_eq!([even, odd].map(|parent| parent.path()), Life::parents());
            let row = 4;
            // The first life begins with generation 2.
            let first = even.create(&unique("first")).unwrap();
            assert_eq!(first.id(), Life(0).id(row));
            first.destroy().unwrap();
            let (now, stop) = (AtomicU64::new(0), AtomicBool::new(false));
            let looks = std::thread::scope(|scope| {
                let (now, stop) = (&now, &stop);
                scope.spawn(move || live([even, odd], row, now, stop));
                let readers = [1, 2].map(|seed| {
                    scope.spawn(move || {
                        let mut random = Random::new(seed);
                        let start = Instant::now();
                        let until = start + seconds(1.5, 60.0);
                        let mut looks = [0u64; 2];
                        // An emulated machine gets the time that it needs.
                        let few = || now.load(Ordering::Relaxed) <= LIVES && start.elapsed() < LONG;
                        while Instant::now() < until || few() {
                            let life = Life(now.load(Ordering::Acquire));
                            let group = ledger.group(life.id(row));
                            // The costly ones rarely.
                            let ways = if random.one_in(20) { 20 } else { 15 };
                            for _ in 0..8 {
                                let there = look(ledger, group, life, random.below(ways));
                                looks[usize::from(there)] += 1;
                            }
                        }
                        looks
                    })
                });
                let looks = readers.map(|reader| reader.join());
                stop.store(true, Ordering::Relaxed);
                looks.map(|looks| looks.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            });
            let lives = now.into_inner();
            println!("{lives} lives, looks {looks:?}");
            assert!(looks.iter().flatten().all(|&looks| looks > 100), "{looks:?}");
            assert!(lives > LIVES, "{lives}");
        },
    );
}
