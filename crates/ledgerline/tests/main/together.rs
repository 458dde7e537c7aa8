//! Several threads make random operations, each with its own share of charges. At the end the books balance, and no limit was
//! passed at any moment.

use crate::common::{Random, times, unique};
use crate::support::in_all_modes;
use ledgerline::{Charge, Group, GroupId, Ledger, Limit, Mistakes, Reason};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// One thread's part: its charges and its counts.
struct Share<'l> {
    groups: Vec<Group<'l>>,
    held: Vec<Charge<'l>>,
    /// Charges and uncharges by group, destroyed ones by their parent.
    counts: HashMap<GroupId, (u64, u64)>,
}

impl<'l> Share<'l> {
    fn granted(&mut self, charge: Charge<'l>) {
        self.counts.entry(charge.group().id()).or_default().0 += 1;
        self.held.push(charge);
    }

    fn uncharge(&mut self, charge: Charge<'l>) {
        self.counts.entry(charge.group().id()).or_default().1 += 1;
        drop(charge);
    }

    fn step(&mut self, random: &mut Random) {
        let group = self.groups[random.below(self.groups.len() as u64) as usize];
        let pick =
            |held: &[Charge<'l>], random: &mut Random| random.below(held.len() as u64) as usize;
        match random.below(20) {
            0 => drop(group.drain()),
            1..3 if !self.held.is_empty() => {
                let at = pick(&self.held, random);
                let part = self.held[at].split(1 + random.below(1_000));
                if let Some(part) = part {
                    // A charge of zero keeps no row, so its parts are not counted.
                    self.counts.entry(part.group().id()).or_default().0 += 1;
                    self.held.push(part);
                }
                if self.held.len() > 1 {
                    let (last, other) = (self.held.pop().unwrap(), pick(&self.held, random));
                    match self.held[other].merge(last) {
                        Ok(()) => {
                            self.counts.entry(self.held[other].group().id()).or_default().1 += 1;
                        }
                        Err(back) => self.held.push(back),
                    }
                }
            }
            3..5 if !self.held.is_empty() => {
                let at = pick(&self.held, random);
                let charge = self.held.swap_remove(at);
                let from = charge.group().id();
                match charge.transfer(group) {
                    Ok(moved) => {
                        self.counts.entry(from).or_default().1 += 1;
                        self.granted(moved);
                    }
                    Err((charge, refused)) => {
                        assert_eq!(refused.reason, Reason::Limit);
                        self.held.push(charge);
                    }
                }
            }
            5 => self.short(group, random),
            6..13 if !self.held.is_empty() => {
                let at = pick(&self.held, random);
                let charge = self.held.swap_remove(at);
                self.uncharge(charge);
            }
            _ => match group.try_charge(random.size(16)) {
                Ok(charge) => self.granted(charge),
                Err(refused) => assert_eq!(refused.reason, Reason::Limit),
            },
        }
        while self.held.len() > 60 {
            let charge = self.held.pop().unwrap();
            self.uncharge(charge);
        }
    }

    /// Creates a group of this thread alone, which is gone before its last charge is.
    fn short(&mut self, parent: Group<'l>, random: &mut Random) {
        let group = parent.create(&unique("short")).unwrap();
        let left: Vec<_> = (0..3).filter_map(|_| group.try_charge(random.size(12)).ok()).collect();
        let settled = group.destroy().unwrap();
        assert_eq!(settled.leftover, left.iter().map(Charge::units).sum::<u64>());
        assert_eq!((settled.charges, settled.uncharges), (left.len() as u64, 0));
        let count = self.counts.entry(parent.id()).or_default();
        *count = (count.0 + settled.charges, count.1 + settled.charges);
    }

    /// Returns the units that it holds in a subtree.
    fn holds(&self, top: Group<'l>) -> u64 {
        self.held.iter().filter(|charge| below(charge.group(), top)).map(Charge::units).sum()
    }
}

fn below(group: Group<'_>, top: Group<'_>) -> bool {
    std::iter::successors(Some(group), |group| group.parent()).any(|group| group.id() == top.id())
}

/// Runs several threads at once, then compares everything.
fn round(seed: u64) {
    let mut random = Random::new(seed);
    let batch = [1, 50, 4096, 64 * 4096][random.below(4) as usize];
    let ledger = Ledger::builder().batch(batch).capacity(200).anonymous().unwrap();
    let mut groups = vec![ledger.root()];
    for n in 0..10 {
        let parent = groups[random.below(groups.len() as u64) as usize];
        let group = parent.create(&format!("g{n}")).unwrap();
        if random.one_in(2) {
            group.set_max(Limit::units(random.size(19))).unwrap();
        }
        groups.push(group);
    }
    let stop = AtomicBool::new(false);
    let mut shares: Vec<Share<'_>> = std::thread::scope(|scope| {
        let (groups, stop) = (&groups, &stop);
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                scope.spawn(move || {
                    let mut random = Random::new(seed << 8 | thread);
                    let mut share =
                        Share { groups: groups.clone(), held: Vec::new(), counts: HashMap::new() };
                    for _ in 0..2_000 {
                        share.step(&mut random);
                    }
                    share
                })
            })
            .collect();
        scope.spawn(move || {
            while !stop.load(Relaxed) {
                for group in groups.iter().filter(|group| group.max() != Limit::MAX) {
                    let (max, value) = (group.max().get().unwrap(), group.approximate().value);
                    assert!(value <= max, "{}: {value} above {max}", group.path());
                    let peak = group.peak().value;
                    assert!(peak <= max, "{}: {peak} above {max}", group.path());
                }
                std::thread::yield_now();
            }
        });
        let shares = threads.into_iter().map(|thread| thread.join()).collect::<Vec<_>>();
        stop.store(true, Relaxed);
        shares.into_iter().map(Result::unwrap).collect()
    });
    compare(&ledger, &groups, &shares);
    for share in &mut shares {
        while let Some(charge) = share.held.pop() {
            share.uncharge(charge);
        }
    }
    compare(&ledger, &groups, &shares);
    ledger.root().drain();
    for group in &groups {
        let estimate = group.approximate();
        assert_eq!((estimate.value, estimate.bound), (0, 0), "{}", group.path());
    }
    assert_eq!(ledger.mistakes(), Mistakes::default());
}

/// Compares the usage and counts of every group with the threads' own books.
fn compare<'l>(ledger: &'l Ledger, groups: &[Group<'l>], shares: &[Share<'l>]) {
    let snapshot = ledger.snapshot();
    assert_eq!(snapshot.groups.len(), groups.len());
    for &group in groups {
        let holds: u64 = shares.iter().map(|share| share.holds(group)).sum();
        assert_eq!(group.precise(), holds, "{}", group.path());
        let estimate = group.approximate();
        assert!(estimate.value >= holds && estimate.value - estimate.bound <= holds);
        if let Some(max) = group.max().get() {
            assert!(estimate.bound <= (max - estimate.value) / 16, "{estimate:?} of {max}");
        }
        let counted = shares
            .iter()
            .flat_map(|share| &share.counts)
            .filter(|(id, _)| below(ledger.group(**id), group))
            .fold((0, 0), |sum, (_, counts)| (sum.0 + counts.0, sum.1 + counts.1));
        let seen = snapshot.groups.iter().find(|seen| seen.id == group.id()).unwrap();
        assert_eq!((seen.charges, seen.uncharges), counted, "{}", seen.path);
        assert_eq!(seen.current, holds);
    }
}

#[test]
fn random_operations_of_several_threads_balance() {
    in_all_modes("random_operations_of_several_threads_balance", || {
        for seed in 0..times(12, 3_000) {
            round(seed);
        }
    });
}
