//! Everything runs at once for a while, and the invariants are checked all the time.

use crate::common::{Random, in_both_modes, unique};
use crate::support::seconds;
use ledgerline::{Charge, CreateError, DestroyError, Group, Ledger, Limit, Mistakes, Reason};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

const WORKERS: u64 = 62;
/// The most charges that one worker holds.
const HELD_MAX: usize = 30;
const SIZE_BITS: u64 = 14;

struct Tree<'l> {
    root: Group<'l>,
    /// With limits that never change.
    tenants: Vec<Group<'l>>,
    /// With limits that change.
    queries: Vec<Group<'l>>,
    /// Charged with a constant and with pairs of one unit, by at most `WORKERS` threads.
    calm: Group<'l>,
}

const CALM: u64 = 777_777;

impl<'l> Tree<'l> {
    fn new(ledger: &'l Ledger) -> Self {
        let root = ledger.root();
        let tenants: Vec<_> = (0..4)
            .map(|n| {
                let tenant = root.create(&format!("t{n}")).unwrap();
                tenant.set_max(Limit::units(200_000 << n)).unwrap();
                tenant
            })
            .collect();
        let queries = (0..12)
            .map(|n| {
                tenants[n % 4].create(&unique("area")).unwrap().create(&format!("q{n}")).unwrap()
            })
            .collect();
        let calm = root.create("calm").unwrap();
        Tree { root, tenants, queries, calm }
    }

    fn worker(&self, stop: &AtomicBool, seed: u64) {
        let mut random = Random::new(seed);
        let mut held: Vec<Charge<'l>> = Vec::new();
        while !stop.load(Relaxed) {
            let query = self.queries[random.below(12) as usize];
            match random.below(400) {
                0 => drop(query.drain()),
                1 => drop(query.set_max(Limit::units(random.size(18)))),
                2 => query.set_max(Limit::MAX).unwrap(),
                3..13 => self.short_lived(query, &mut random, &mut held),
                13 => drop(query.precise()),
                14 => query.reset_peak(),
                15..20 => held.clear(),
                20..40 => {
                    if let Some(charge) = held.pop() {
                        held.push(charge.transfer(query).unwrap_or_else(|(charge, _)| charge));
                    }
                }
                40..60 => {
                    let part = held.last_mut().and_then(|charge| charge.split(random.size(8)));
                    held.extend(part);
                }
                60..160 => drop(self.calm.try_charge(1).unwrap()),
                160..250 if !held.is_empty() => {
                    let pick = random.below(held.len() as u64) as usize;
                    drop(held.swap_remove(pick));
                }
                _ => match query.try_charge(random.size(SIZE_BITS)) {
                    Ok(charge) => held.push(charge),
                    // Its limit may be a later one than the limit that refused.
                    Err(refused) => assert_eq!(refused.reason, Reason::Limit),
                },
            }
            held.truncate(HELD_MAX);
        }
    }

    /// Creates a group that lives for a moment, and may leave charges behind.
    fn short_lived(&self, query: Group<'l>, random: &mut Random, held: &mut Vec<Charge<'l>>) {
        match query.create(&unique("short")) {
            Ok(group) => {
                for _ in 0..random.below(4) {
                    held.extend(group.try_charge(random.size(SIZE_BITS)));
                }
                let settled = group.destroy().unwrap();
                assert!(settled.peak.value >= settled.leftover, "{settled:?}");
                assert_eq!(group.destroy(), Err(DestroyError::Gone));
                assert_eq!(group.try_charge(1).unwrap_err().reason, Reason::Gone);
            }
            Err(error) => assert!(matches!(error, CreateError::Full { .. }), "{error}"),
        }
    }

    /// Checks I1, I4 and I6, as far as they are visible from outside at any moment.
    fn watch(&self, random: &mut Random) {
        for tenant in &self.tenants {
            let max = tenant.max().get().unwrap();
            let estimate = tenant.approximate();
            assert!(estimate.value <= max, "{estimate:?} above {max}");
            let peak = tenant.peak();
            assert!(peak.value <= max, "{peak:?} above {max}");
        }
        let range = CALM..=CALM + WORKERS;
        let estimate = self.calm.approximate();
        assert!(estimate.value >= CALM, "{estimate:?}");
        assert!(estimate.value - estimate.bound <= CALM + WORKERS, "{estimate:?}");
        if random.one_in(20) {
            let precise = self.calm.precise();
            assert!(range.contains(&precise), "{precise} is not in {range:?}");
        }
        if random.one_in(50) {
            let snapshot = self.root.ledger().snapshot();
            assert!(!snapshot.damaged, "{snapshot:#?}");
            let fixed = 1 + 4 + 12 + 12 + 1;
            let short =
                snapshot.groups.iter().filter(|group| group.name.starts_with("short.")).count();
            assert_eq!(snapshot.groups.len(), fixed + short);
            assert!(short <= WORKERS as usize);
            for group in &snapshot.groups {
                assert!(group.current <= group.approximate);
                if group.name.starts_with('t') {
                    assert!(group.approximate <= group.max.get().unwrap(), "{group:?}");
                }
            }
        }
    }
}

#[test]
fn everything_at_once_breaks_nothing() {
    in_both_modes("everything_at_once_breaks_nothing", || {
        let ledger = Ledger::builder().batch(4096).capacity(4096).anonymous().unwrap();
        let tree = Tree::new(&ledger);
        let calm = tree.calm.try_charge(CALM).unwrap();
        let stop = AtomicBool::new(false);
        let watched = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for seed in 0..WORKERS {
                let (tree, stop) = (&tree, &stop);
                scope.spawn(move || tree.worker(stop, seed));
            }
            for seed in [1, 2] {
                let (tree, stop, watched) = (&tree, &stop, &watched);
                scope.spawn(move || {
                    let mut random = Random::new(seed << 32);
                    while !stop.load(Relaxed) {
                        tree.watch(&mut random);
                        watched.fetch_add(1, Relaxed);
                    }
                });
            }
            let start = Instant::now();
            while start.elapsed() < seconds(2.5, 300.0) || watched.load(Relaxed) < 50 {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            stop.store(true, Relaxed);
        });
        assert_eq!(ledger.mistakes(), Mistakes::default());
        assert_eq!(ledger.root().precise(), CALM);
        drop(calm);
        ledger.root().drain();
        let snapshot = ledger.snapshot();
        assert_eq!(snapshot.groups.len(), 1 + 4 + 12 + 12 + 1, "every short-lived row came free");
        for group in &snapshot.groups {
            let estimate = ledger.group(group.id).approximate();
            assert_eq!((estimate.value, estimate.bound), (0, 0), "{}", group.path);
        }
    });
}
