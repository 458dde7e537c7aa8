//! Compares the library with a simple, slow implementation: random operations, equal after every step.

use crate::support::in_all_modes;
use crate::support::oracle::{NO_LIMIT, Oracle};
use ledgerline::{
    Charge, CreateError, DestroyError, Group, GroupId, Ledger, Limit, Mistakes, Reason, Refused,
    SetMaxError,
};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::collections::HashMap;

#[derive(Clone, Copy, Debug)]
enum Step {
    Create(usize),
    Destroy(usize),
    TryCharge(usize, u64),
    Overrun(usize, u64),
    Split(usize, u64),
    Merge(usize, usize),
    Transfer(usize, usize),
    Drop(usize),
    SetMax(usize, u64),
    SetMaxNow(usize, u64),
    Unlimit(usize),
    Drain(usize),
    ResetPeak(usize),
}

fn sizes() -> impl Strategy<Value = u64> {
    prop_oneof![
        8 => 1u64..64,
        8 => 1u64..10_000,
        4 => 1u64..1_000_000,
        1 => Just((1 << 31) - 1),
        1 => Just(1 << 31),
        1 => (1u64 << 32)..(1 << 34),
    ]
}

fn steps() -> impl Strategy<Value = Step> {
    let any = any::<u16>().prop_map(usize::from);
    prop_oneof![
        3 => any.clone().prop_map(Step::Create),
        2 => any.clone().prop_map(Step::Destroy),
        14 => (any.clone(), sizes()).prop_map(|(g, n)| Step::TryCharge(g, n)),
        2 => (any.clone(), sizes()).prop_map(|(g, n)| Step::Overrun(g, n)),
        2 => (any.clone(), sizes()).prop_map(|(c, n)| Step::Split(c, n)),
        2 => (any.clone(), any.clone()).prop_map(|(a, b)| Step::Merge(a, b)),
        3 => (any.clone(), any.clone()).prop_map(|(c, g)| Step::Transfer(c, g)),
        10 => any.clone().prop_map(Step::Drop),
        3 => (any.clone(), sizes()).prop_map(|(g, n)| Step::SetMax(g, n)),
        1 => (any.clone(), sizes()).prop_map(|(g, n)| Step::SetMaxNow(g, n)),
        1 => any.clone().prop_map(Step::Unlimit),
        1 => any.clone().prop_map(Step::Drain),
        1 => any.prop_map(Step::ResetPeak),
    ]
}

/// The ledger under test, the oracle, and the charges of both.
struct Both<'l> {
    ledger: &'l Ledger,
    oracle: Oracle,
    /// Handles, including those of destroyed groups, which must be refused.
    groups: Vec<Group<'l>>,
    charges: Vec<Charge<'l>>,
    /// The highest allowed peak of a group: true usage and stated bound, at any step.
    peaks: HashMap<GroupId, u64>,
}

impl<'l> Both<'l> {
    fn new(ledger: &'l Ledger) -> Self {
        let root = ledger.root();
        Both {
            ledger,
            oracle: Oracle::new(root.id()),
            groups: vec![root],
            charges: Vec::new(),
            peaks: HashMap::new(),
        }
    }

    fn group(&self, pick: usize) -> Group<'l> {
        self.groups[pick % self.groups.len()]
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Create(parent) => self.create(self.group(parent)),
            Step::Destroy(group) => self.destroy(self.group(group)),
            Step::TryCharge(group, n) => self.try_charge(self.group(group), n),
            Step::Overrun(group, n) => self.overrun(self.group(group), n),
            Step::SetMax(group, n) => self.set_max(self.group(group), n),
            Step::SetMaxNow(group, n) => self.set_max_now(self.group(group), n),
            Step::Unlimit(group) => self.set_max(self.group(group), NO_LIMIT),
            Step::Drain(group) => {
                self.group(group).drain();
            }
            Step::ResetPeak(group) => self.reset_peak(self.group(group)),
            Step::Split(..) | Step::Merge(..) | Step::Transfer(..) | Step::Drop(_)
                if self.charges.is_empty() => {}
            Step::Split(charge, n) => {
                let pick = charge % self.charges.len();
                // destroy.rs covers charges of zero.
                let (before, n) = (self.charges[pick].units(), 1 + n % 5_000);
                if n == before {
                    return;
                }
                let part = self.charges[pick].split(n);
                assert_eq!(part.is_some(), n < before);
                if part.is_some() {
                    self.oracle.count(self.charges[pick].group().id(), 1, 0);
                }
                self.charges.extend(part);
            }
            Step::Merge(into, from) => self.merge(into, from),
            Step::Transfer(charge, to) => self.transfer(charge, self.group(to)),
            Step::Drop(charge) => {
                let pick = charge % self.charges.len();
                let charge = self.charges.swap_remove(pick);
                self.uncharge(charge);
            }
        }
    }

    fn create(&mut self, parent: Group<'l>) {
        let node = self.oracle.get(parent.id());
        match parent.create(&format!("g{}", self.groups.len())) {
            Ok(group) => {
                assert!(node.live);
                self.oracle.add(group.id(), Some(parent.id()));
                self.groups.push(group);
            }
            Err(CreateError::Gone) => assert!(!node.live),
            Err(CreateError::Full { capacity }) => assert_eq!(capacity, self.ledger.capacity()),
            Err(other) => panic!("{other}"),
        }
    }

    fn destroy(&mut self, group: Group<'l>) {
        let node = self.oracle.get(group.id());
        match group.destroy() {
            Ok(settled) => {
                assert!(node.live && node.children == 0);
                assert_eq!(settled.leftover, node.usage);
                assert!(settled.peak.value >= node.peak);
                assert!(settled.peak.value - settled.peak.bound <= node.peak);
                let counts = (settled.charges, settled.uncharges);
                if node.usage == 0 {
                    assert_eq!(counts, (node.charges, node.uncharges));
                } else {
                    // A destroyed child that is still charged keeps its counts to itself.
                    assert!(counts.0 <= node.charges && counts.1 <= node.uncharges);
                }
                self.oracle.change(group.id(), |node| node.live = false);
                self.oracle.change(node.parent.unwrap(), |parent| parent.children -= 1);
            }
            Err(DestroyError::Root) => assert_eq!(node.parent, None),
            Err(DestroyError::Gone) => assert!(!node.live),
            Err(DestroyError::HasChildren { children }) => assert_eq!(children, node.children),
            Err(other) => panic!("nothing is in the way: {other}"),
        }
    }

    fn try_charge(&mut self, group: Group<'l>, n: u64) {
        let full = self.oracle.full(&self.oracle.path(group.id()), n);
        match group.try_charge(n) {
            Ok(charge) => {
                assert!(full.is_empty(), "granted {n} although {full:?} have no room");
                self.granted(charge);
            }
            Err(refused) => self.refused(group, n, &full, &refused),
        }
    }

    fn granted(&mut self, charge: Charge<'l>) {
        let (id, n) = (charge.group().id(), charge.units());
        assert!(self.oracle.get(id).live, "a destroyed group was charged");
        self.oracle.add_usage(&self.oracle.path(id), n);
        self.oracle.count(id, 1, 0);
        self.charges.push(charge);
    }

    fn refused(&self, group: Group<'l>, n: u64, full: &[GroupId], refused: &Refused) {
        if !self.oracle.get(group.id()).live {
            assert_eq!(refused.reason, Reason::Gone);
            return;
        }
        assert_eq!(refused.reason, Reason::Limit, "{refused}");
        let Some(&culprit) = full.first() else { panic!("{refused}, but none is full") };
        assert_eq!(refused.refusal.group, culprit, "not the lowest of {full:?}");
        let node = self.oracle.get(culprit);
        assert_eq!(
            (refused.limit, refused.usage, refused.requested),
            (node.max, node.usage, n),
            "idle stock must be returned before anybody is refused"
        );
        self.oracle.change(culprit, |node| node.max_events += 1);
    }

    fn overrun(&mut self, group: Group<'l>, n: u64) {
        match group.charge(n) {
            Ok(charge) => {
                self.granted(charge);
                for id in self.oracle.full(&self.oracle.path(group.id()), 0) {
                    self.oracle.change(id, |node| node.max_events += 1);
                }
            }
            Err(refused) => {
                assert_eq!(refused.reason, Reason::Gone);
                assert!(!self.oracle.get(group.id()).live);
            }
        }
    }

    fn uncharge(&mut self, charge: Charge<'l>) {
        let id = charge.group().id();
        self.oracle.remove_usage(&self.oracle.path(id), charge.units());
        self.oracle.count(id, 0, 1);
        drop(charge);
    }

    fn merge(&mut self, into: usize, from: usize) {
        let charge = self.charges.swap_remove(from % self.charges.len());
        if self.charges.is_empty() {
            self.charges.push(charge);
            return;
        }
        let into = into % self.charges.len();
        let same = charge.group().id() == self.charges[into].group().id();
        match self.charges[into].merge(charge) {
            Ok(()) => {
                assert!(same);
                self.oracle.count(self.charges[into].group().id(), 0, 1);
            }
            Err(other) => {
                assert!(!same);
                self.charges.push(other);
            }
        }
    }

    fn transfer(&mut self, charge: usize, to: Group<'l>) {
        let charge = self.charges.swap_remove(charge % self.charges.len());
        let (from, n) = (charge.group().id(), charge.units());
        let (old, new) = (self.oracle.path(from), self.oracle.path(to.id()));
        let below = |path: &[GroupId], other: &[GroupId]| -> Vec<GroupId> {
            path.iter().copied().take_while(|id| !other.contains(id)).collect()
        };
        let full = self.oracle.full(&below(&new, &old), n);
        match charge.transfer(to) {
            Ok(moved) => {
                assert!(self.oracle.get(to.id()).live, "moved to a destroyed group");
                assert!(full.is_empty(), "moved {n} although {full:?} have no room");
                assert_eq!((moved.group().id(), moved.units()), (to.id(), n));
                self.oracle.add_usage(&below(&new, &old), n);
                self.oracle.remove_usage(&below(&old, &new), n);
                self.oracle.count(to.id(), 1, 0);
                self.oracle.count(from, 0, 1);
                self.charges.push(moved);
            }
            Err((same, refused)) => {
                assert_eq!((same.group().id(), same.units()), (from, n));
                self.refused(to, n, &full, &refused);
                self.charges.push(same);
            }
        }
    }

    fn set_max(&mut self, group: Group<'l>, max: u64) {
        let node = self.oracle.get(group.id());
        if !node.live {
            return;
        }
        match group.set_max(Limit::units(max)) {
            Ok(()) => {
                // A limit that was overrun may always be raised, even if not far enough.
                assert!(node.usage <= max || max >= node.max);
                self.oracle.change(group.id(), |node| node.max = max);
            }
            Err(busy) => {
                assert!(node.usage > max && max < node.max, "{busy}");
                assert_eq!(busy, SetMaxError::Busy { usage: node.usage, limit: max });
            }
        }
        assert_eq!(group.max(), Limit::units(self.oracle.get(group.id()).max));
    }

    fn set_max_now(&mut self, group: Group<'l>, max: u64) {
        let node = self.oracle.get(group.id());
        if !node.live {
            assert_eq!(group.set_max_now(Limit::units(max)), Err(SetMaxError::Gone));
            return;
        }
        let above = node.usage.saturating_sub(max);
        assert_eq!(group.set_max_now(Limit::units(max)), Ok(above));
        self.oracle.change(group.id(), |node| node.max = max);
    }

    fn reset_peak(&mut self, group: Group<'l>) {
        if self.oracle.get(group.id()).live {
            group.reset_peak();
            self.oracle.change(group.id(), |node| node.peak = node.usage);
            self.peaks.insert(group.id(), 0);
        }
    }

    /// Checks everything that must hold between two operations.
    fn check(&mut self) {
        let snapshot = self.ledger.snapshot();
        let live = self.oracle.live();
        assert_eq!(snapshot.groups.len(), live.len());
        assert_eq!(self.ledger.mistakes(), Mistakes::default());
        for (id, node) in live {
            let group = self.ledger.group(id);
            let path = group.path();
            assert!(group.exists());
            assert_eq!(group.precise(), node.usage, "{path}: precise");
            let estimate = group.approximate();
            assert!(estimate.value >= node.usage, "{path}: {estimate:?} of {}", node.usage);
            assert!(
                estimate.value - estimate.bound <= node.usage,
                "{path}: {estimate:?} of {}",
                node.usage
            );
            if node.max < NO_LIMIT {
                let headroom = node.max.saturating_sub(estimate.value);
                assert!(
                    estimate.bound <= headroom / 16,
                    "{path}: {estimate:?} may lie idle below a limit of {}",
                    node.max
                );
            }
            let most = self.peaks.entry(id).or_default();
            *most = (*most).max(node.usage + estimate.bound).max(node.peak);
            let peak = group.peak();
            assert!(peak.value >= node.peak, "{path}: {peak:?} missed a charge, {}", node.peak);
            assert!(peak.value <= *most, "{path}: {peak:?} of {most} at most");
            let least = peak.value - peak.bound;
            assert!(least <= node.peak, "{path}: {peak:?} of {}", node.peak);
            assert!(least >= node.usage.saturating_sub(estimate.bound), "{path}: {peak:?}");
            let seen = snapshot.groups.iter().find(|seen| seen.id == id).expect("in the snapshot");
            assert_eq!(
                (seen.current, seen.charges, seen.uncharges, seen.max_events),
                (node.usage, node.charges, node.uncharges, node.max_events),
                "{path}: usage, charges, uncharges and max events in the snapshot"
            );
            assert_eq!((&seen.path, seen.max), (&path, Limit::units(node.max)));
        }
    }

    /// Returns everything: nothing is left anywhere (I3).
    fn finish(&mut self) {
        while let Some(charge) = self.charges.pop() {
            self.uncharge(charge);
        }
        self.check();
        self.ledger.root().drain();
        for (id, _) in self.oracle.live() {
            let estimate = self.ledger.group(id).approximate();
            assert_eq!((estimate.value, estimate.bound), (0, 0));
        }
    }
}

fn compare(batch: u64, capacity: u32, steps: Vec<Step>) {
    let ledger = Ledger::builder().batch(batch).capacity(capacity).anonymous().unwrap();
    let mut both = Both::new(&ledger);
    for step in steps {
        both.step(step);
        both.check();
    }
    both.finish();
}

#[test]
fn any_sequence_of_operations_gives_what_the_oracle_gives() {
    in_all_modes("any_sequence_of_operations_gives_what_the_oracle_gives", || {
        let config = crate::common::cases::few_or_many(file!(), 75, 20_000);
        let batches = prop_oneof![Just(1u64), 2u64..200, Just(4096), Just(64 * 4096)];
        let input = (batches, 3u32..40, prop::collection::vec(steps(), 1..150));
        TestRunner::new(config)
            .run(&input, |(batch, capacity, steps)| {
                compare(batch, capacity, steps);
                Ok(())
            })
            .unwrap_or_else(|error| panic!("{error}"));
    });
}
