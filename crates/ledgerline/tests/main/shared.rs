//! Shared charges are counted once, for one holder, until the last holder is dropped.

use crate::common::{Random, in_both_modes, times, unique};
use ledgerline::{Group, Ledger, Limit, Mistakes, SharedCharge};
use proptest::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

#[test]
fn a_shared_charge_can_be_sent_and_looked_at_by_other_threads() {
    fn is_send_and_sync<T: Send + Sync>() {}
    is_send_and_sync::<SharedCharge<'static>>();
}

#[test]
fn the_oldest_holder_with_room_pays_when_the_payer_goes() {
    in_both_modes("the_oldest_holder_with_room_pays_when_the_payer_goes", || {
        let ledger = Ledger::builder().capacity(8).anonymous().unwrap();
        let [a, b, c] = ["a", "b", "c"].map(|name| ledger.root().create(name).unwrap());
        b.set_max(Limit::units(99)).unwrap();
        let first = a.try_charge(100).unwrap().share();
        let second = first.join(b);
        let third = second.join(c);
        assert_eq!((first.owner(), third.holders(), third.units()), (a, 3, 100));
        drop(first);
        assert_eq!((third.owner(), second.group()), (c, b), "b has no room");
        assert_eq!((a.precise(), b.precise(), c.precise()), (0, 0, 100));
        // Now b is the only holder and is over its limit, which is counted.
        let told = b.max_events();
        drop(third);
        assert_eq!((second.owner(), b.precise(), second.holders()), (b, 100, 1));
        assert!(b.max_events() > told);
        drop(second);
        assert_eq!(ledger.root().precise(), 0);
        assert_eq!(ledger.mistakes(), Mistakes::default());
    });
}

#[test]
fn a_destroyed_group_does_not_pay_and_units_are_not_lost() {
    let ledger = Ledger::builder().capacity(8).anonymous().unwrap();
    let [a, b, c] = ["a", "b", "c"].map(|name| ledger.root().create(name).unwrap());
    let of_a = a.try_charge(100).unwrap().share();
    let of_b = of_a.join(b);
    b.destroy().unwrap();
    drop(of_a);
    assert_eq!((of_b.owner(), a.precise()), (a, 100), "it stays with who paid last");
    let of_c = of_b.join(c);
    assert_eq!((of_b.owner(), a.precise(), c.precise()), (c, 0, 100), "here is one who can pay");
    c.destroy().unwrap();
    assert_eq!(ledger.leaks()[0].path, "/c");
    drop((of_c, of_b));
    assert_eq!((ledger.root().precise(), ledger.leaks().len()), (0, 0));
    assert_eq!(ledger.mistakes(), Mistakes::default());
}

#[test]
fn units_move_to_another_ledger_with_their_payer() {
    let [here, there] = [0, 1].map(|_| Ledger::builder().capacity(4).anonymous().unwrap());
    let first = here.root().try_charge(7).unwrap().share();
    let second = first.join(there.root());
    assert_eq!((here.root().precise(), there.root().precise()), (7, 0));
    drop(first);
    assert_eq!((here.root().precise(), there.root().precise()), (0, 7));
    drop(second);
    assert_eq!(there.root().precise(), 0);
}

#[test]
fn a_charge_of_nothing_can_be_shared_beyond_its_groups_end() {
    let ledger = Ledger::builder().capacity(8).anonymous().unwrap();
    let [a, b] = ["a", "b"].map(|name| ledger.root().create(name).unwrap());
    let first = a.try_charge(0).unwrap().share();
    let second = first.join(b);
    a.destroy().unwrap();
    drop((first, second));
    assert_eq!(ledger.mistakes(), Mistakes::default());
}

/// A group of the model: plain numbers, every level changed for every unit.
struct Node {
    parent: Option<usize>,
    max: u64,
    usage: u64,
    max_events: u64,
    live: bool,
}

struct Shared {
    units: u64,
    at: usize,
    payer: usize,
    /// Numbers and groups, the oldest first.
    holders: Vec<(usize, usize)>,
    next: usize,
}

#[derive(Default)]
struct Model {
    nodes: Vec<Node>,
    shared: Vec<Shared>,
}

impl Model {
    /// Returns the path from a group to the root.
    fn path(&self, group: usize) -> Vec<usize> {
        std::iter::successors(Some(group), |&at| self.nodes[at].parent).collect()
    }

    /// Adds to some levels, the group's first. Returns whether their limits allow it.
    fn add(&mut self, levels: &[usize], units: u64, over: bool) -> bool {
        // No limit prevents a charge of zero.
        if units == 0 {
            return true;
        }
        let full = |&&level: &&usize| self.nodes[level].usage + units > self.nodes[level].max;
        let refuses = levels.iter().find(full).copied();
        if let Some(level) = refuses.filter(|_| !over) {
            self.nodes[level].max_events += 1;
            return false;
        }
        for &level in levels {
            let node = &mut self.nodes[level];
            node.usage += units;
            node.max_events += u64::from(node.usage > node.max);
        }
        true
    }

    fn transfer(&mut self, from: usize, to: usize, units: u64, over: bool) -> bool {
        // A charge of zero whose group is gone has no known place.
        let gone = units == 0 && !self.nodes[from].live && self.nodes[from].usage == 0;
        let (old, new) = (if gone { Vec::new() } else { self.path(from) }, self.path(to));
        let only = |these: &[usize], others: &[usize]| -> Vec<usize> {
            these.iter().copied().filter(|level| !others.contains(level)).collect()
        };
        if !self.nodes[to].live || !self.add(&only(&new, &old), units, over) {
            return false;
        }
        for level in only(&old, &new) {
            self.nodes[level].usage -= units;
        }
        true
    }

    fn choose_payer(&mut self, which: usize) {
        let Shared { units, at, payer, ref holders, .. } = self.shared[which];
        let holders = holders.clone();
        if holders.iter().any(|&(number, _)| number == payer) {
            return;
        }
        if holders.is_empty() {
            for level in self.path(at) {
                self.nodes[level].usage -= units;
            }
            return;
        }
        for over in [false, true] {
            for &(number, group) in &holders {
                let stays = group == at && self.nodes[group].live;
                if stays || self.transfer(at, group, units, over) {
                    (self.shared[which].at, self.shared[which].payer) = (group, number);
                    return;
                }
            }
        }
    }

    fn destroy(&mut self, group: usize) -> bool {
        let has_children = self.nodes.iter().any(|node| node.live && node.parent == Some(group));
        let can = group != 0 && self.nodes[group].live && !has_children;
        self.nodes[group].live &= !can;
        can
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Share(usize, u64),
    Join(usize, usize),
    Drop(usize),
    Destroy(usize),
}

fn steps() -> impl Strategy<Value = Step> {
    let any = any::<u16>().prop_map(usize::from);
    prop_oneof![
        4 => (any.clone(), 0u64..400).prop_map(|(group, units)| Step::Share(group, units)),
        8 => (any.clone(), any.clone()).prop_map(|(holder, group)| Step::Join(holder, group)),
        8 => any.clone().prop_map(Step::Drop),
        1 => any.prop_map(Step::Destroy),
    ]
}

/// Generates the parents and limits of the groups below the root.
fn trees() -> impl Strategy<Value = Vec<(prop::sample::Index, Option<u64>)>> {
    prop::collection::vec((any::<prop::sample::Index>(), prop::option::of(0u64..1000)), 1..14)
}

/// The ledger, the model, and the holders, each with its shared charge of the model.
struct Both<'l> {
    groups: Vec<Group<'l>>,
    model: Model,
    holders: Vec<(usize, usize, SharedCharge<'l>)>,
}

impl Both<'_> {
    fn step(&mut self, step: Step) {
        match step {
            Step::Share(group, units) => {
                let group = group % self.groups.len();
                let path = self.model.path(group);
                let allowed = self.model.nodes[group].live && self.model.add(&path, units, false);
                let charged = self.groups[group].try_charge(units);
                assert_eq!(charged.is_ok(), allowed);
                if let Ok(charge) = charged {
                    let which = self.model.shared.len();
                    let holders = vec![(0, group)];
                    let shared = Shared { units, at: group, payer: 0, holders, next: 1 };
                    self.model.shared.push(shared);
                    self.holders.push((which, 0, charge.share()));
                }
            }
            Step::Join(..) | Step::Drop(_) if self.holders.is_empty() => {}
            Step::Join(holder, group) => {
                let group = group % self.groups.len();
                let (which, _, holder) = &self.holders[holder % self.holders.len()];
                let (which, joined) = (*which, holder.join(self.groups[group]));
                let shared = &mut self.model.shared[which];
                let number = shared.next;
                shared.holders.push((number, group));
                shared.next += 1;
                self.model.choose_payer(which);
                self.holders.push((which, number, joined));
            }
            Step::Drop(holder) => {
                let at = holder % self.holders.len();
                let (which, number, holder) = self.holders.swap_remove(at);
                drop(holder);
                self.model.shared[which].holders.retain(|&(other, _)| other != number);
                self.model.choose_payer(which);
            }
            Step::Destroy(group) => {
                let group = group % self.groups.len();
                assert_eq!(self.groups[group].destroy().is_ok(), self.model.destroy(group));
            }
        }
    }

    fn check(&self) {
        for (group, node) in self.groups.iter().zip(&self.model.nodes).filter(|(_, n)| n.live) {
            let seen = (group.precise(), group.max_events());
            assert_eq!(seen, (node.usage, node.max_events), "{}", group.path());
        }
        for (which, _, holder) in &self.holders {
            let shared = &self.model.shared[*which];
            assert_eq!(holder.owner(), self.groups[shared.at]);
            let seen = (holder.units(), holder.holders());
            assert_eq!(seen, (shared.units, shared.holders.len()));
        }
    }
}

#[test]
fn a_charge_of_nothing_outlives_its_group_and_goes_to_who_joins() {
    let ledger = Ledger::new().unwrap();
    let [a, b] = ["a", "b"].map(|name| ledger.root().create(name).unwrap());
    let mine = a.try_charge(0).unwrap().share();
    assert!(a.destroy().is_ok());
    let yours = mine.join(b);
    drop(mine);
    assert_eq!((yours.owner(), yours.units()), (b, 0));
    drop(yours);
    assert_eq!(ledger.mistakes(), Mistakes::default());
}

proptest! {
    #![proptest_config(crate::common::cases::few(file!(), 256))]

    #[test]
    fn any_joins_and_drops_in_any_tree_leave_what_the_model_has(
        tree in trees(),
        steps in prop::collection::vec(steps(), 1..80),
    ) {
        let ledger = Ledger::builder().capacity(64).batch(64).anonymous().unwrap();
        let mut both = Both {
            groups: vec![ledger.root()],
            model: Model::default(),
            holders: Vec::new(),
        };
        let node = |parent, max| Node { parent, max, usage: 0, max_events: 0, live: true };
        both.model.nodes.push(node(None, u64::MAX));
        for (parent, max) in tree {
            let parent = parent.index(both.groups.len());
            let group = both.groups[parent].create(&unique("g")).unwrap();
            if let Some(max) = max {
                group.set_max(Limit::units(max)).unwrap();
            }
            both.groups.push(group);
            both.model.nodes.push(node(Some(parent), max.unwrap_or(u64::MAX)));
        }
        for step in steps {
            // Idle units could count as used when a limit is passed by force.
            ledger.root().drain();
            both.step(step);
            both.check();
        }
        while !both.holders.is_empty() {
            ledger.root().drain();
            both.step(Step::Drop(0));
        }
        both.check();
        prop_assert_eq!(ledger.root().precise(), 0);
        prop_assert_eq!(ledger.leaks(), []);
        prop_assert_eq!(ledger.mistakes(), Mistakes::default());
    }
}

/// Joins and leaves shared charges. It always has a holder of each charge except the one that it works on.
fn come_and_go<'l>(
    mut mine: Vec<SharedCharge<'l>>,
    groups: &[Group<'l>],
    seed: u64,
    turns: u64,
) -> Vec<SharedCharge<'l>> {
    let mut random = Random::new(seed);
    for _ in 0..turns {
        let pick = random.below(mine.len() as u64) as usize;
        let group = groups[random.below(groups.len() as u64) as usize];
        mine[pick] = mine[pick].join(group);
    }
    mine
}

#[test]
fn threads_that_join_and_leave_at_once_lose_no_unit_and_count_none_twice() {
    in_both_modes("threads_that_join_and_leave_at_once_lose_no_unit_and_count_none_twice", || {
        let ledger = Ledger::builder().capacity(64).batch(64).anonymous().unwrap();
        let parents = ["p", "q"].map(|name| ledger.root().create(name).unwrap());
        let groups: Vec<_> = (0..6).map(|n| parents[n % 2].create(&unique("g")).unwrap()).collect();
        for group in &groups[..3] {
            group.set_max(Limit::units(1500)).unwrap();
        }
        let shared: Vec<_> = groups.iter().map(|g| g.try_charge(1000).unwrap().share()).collect();
        let all = ledger.root().precise();
        let stop = AtomicBool::new(false);
        let left: Vec<_> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..4)
                .map(|seed| {
                    let mine = shared.iter().map(|held| held.join(held.group())).collect();
                    let groups = &groups;
                    let turns = times(20_000, 2_000_000);
                    scope.spawn(move || come_and_go(mine, groups, seed, turns))
                })
                .collect();
            // From now on the payer may be dropped at any time.
            drop(shared);
            let stop = &stop;
            let root = ledger.root();
            let reader = scope.spawn(move || {
                while !stop.load(Relaxed) {
                    assert_eq!(root.precise(), all);
                }
            });
            let mut left = Vec::new();
            for worker in workers {
                left.extend(worker.join().unwrap());
            }
            stop.store(true, Relaxed);
            reader.join().unwrap();
            left
        });
        for held in &left {
            assert!(groups.contains(&held.owner()));
            assert_eq!((held.holders(), held.units()), (4, 1000));
        }
        let charged: u64 = groups.iter().map(|group| group.precise()).sum();
        assert_eq!((charged, ledger.root().precise()), (all, all));
        // The last holders are dropped at once, too.
        std::thread::scope(|scope| {
            for held in left {
                scope.spawn(move || drop(held));
            }
        });
        ledger.root().drain();
        assert_eq!(ledger.root().approximate().value, 0);
        assert_eq!(ledger.mistakes(), Mistakes::default());
    });
}
