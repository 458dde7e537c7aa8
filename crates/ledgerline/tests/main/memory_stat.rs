//! `memory.stat`: the counts of groups and subtrees, compared with a simple, slow count.

use crate::common::{in_both_modes, unique};
use crate::support::in_all_modes;
use ledgerline::{Group, Ledger, Limit, Mistakes};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

const ITEMS: [&str; 3] = ["rows_read", "spills", "sorts"];
/// The lines of a ledger that keeps flows and has these items.
const LINES: [&str; 11] = [
    "charged",
    "freed",
    "blocks_live",
    "blocks_total",
    "refused",
    "reclaimed",
    "throttled",
    "throttled_usec",
    "rows_read",
    "spills",
    "sorts",
];

#[derive(Clone, Copy, Debug)]
enum Step {
    Create(usize),
    Destroy(usize),
    Charge(usize, u64),
    /// A charge of more than the root's limit allows.
    Refused(usize),
    Uncharge(usize),
    Count(usize, usize, i64),
    Reclaim(usize, u64),
    Read(usize),
    Drain(usize),
}

fn steps() -> impl Strategy<Value = Step> {
    let any = any::<u16>().prop_map(usize::from);
    prop_oneof![
        2 => any.clone().prop_map(Step::Create),
        1 => any.clone().prop_map(Step::Destroy),
        10 => (any.clone(), 1u64..200_000).prop_map(|(g, n)| Step::Charge(g, n)),
        1 => any.clone().prop_map(Step::Refused),
        8 => any.clone().prop_map(Step::Uncharge),
        8 => (any.clone(), 0usize..3, -1000i64..1000).prop_map(|(g, i, n)| Step::Count(g, i, n)),
        1 => (any.clone(), 0u64..1 << 40).prop_map(|(g, n)| Step::Reclaim(g, n)),
        4 => any.clone().prop_map(Step::Read),
        1 => any.prop_map(Step::Drain),
    ]
}

/// One group of the simple count.
#[derive(Clone, Debug)]
struct Model {
    parent: Option<usize>,
    own: [i64; LINES.len()],
    /// The outstanding charges, oldest first.
    charges: Vec<u64>,
    children: usize,
    live: bool,
}

impl Model {
    fn below(parent: Option<usize>) -> Model {
        Model { parent, own: [0; LINES.len()], charges: Vec::new(), children: 0, live: true }
    }
}

struct Both<'l> {
    groups: Vec<Group<'l>>,
    models: Vec<Model>,
}

impl<'l> Both<'l> {
    fn add(&mut self, group: usize, line: usize, n: i64) {
        self.models[group].own[line] += n;
    }

    /// Picks a live group.
    fn pick(&self, pick: usize) -> usize {
        let live: Vec<usize> =
            (0..self.models.len()).filter(|&group| self.models[group].live).collect();
        live[pick % live.len()]
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Create(parent) => {
                let parent = self.pick(parent);
                if let Ok(group) = self.groups[parent].create(&unique("group")) {
                    self.groups.push(group);
                    self.models.push(Model::below(Some(parent)));
                    self.models[parent].children += 1;
                }
            }
            Step::Destroy(group) => {
                let group = self.pick(group);
                let model = &mut self.models[group];
                if group == 0 || model.children > 0 {
                    return;
                }
                // A group with outstanding charges keeps its row, and its own count of blocks; its parent's subtree has
                // them in any case.
                model.live = false;
                let parent = model.parent.expect("not the root");
                self.models[parent].children -= 1;
                self.groups[group].destroy().unwrap();
            }
            Step::Charge(group, n) => {
                let group = self.pick(group);
                self.groups[group].try_charge_units(n).unwrap();
                self.models[group].charges.push(n);
                self.add(group, 0, n as i64);
                self.add(group, 2, 1);
                self.add(group, 3, 1);
            }
            Step::Refused(group) => {
                let group = self.pick(group);
                self.groups[group].try_charge_units(1 << 50).unwrap_err();
                self.add(group, 4, 1);
            }
            Step::Uncharge(group) => {
                // Of destroyed groups, too: late uncharges find their owner.
                let group = group % self.models.len();
                let Some(n) = self.models[group].charges.pop() else { return };
                self.groups[group].uncharge_units(n);
                self.add(group, 1, n as i64);
                self.add(group, 2, -1);
            }
            Step::Count(group, item, n) => {
                let group = self.pick(group);
                let counted = self.groups[group].ledger().item(ITEMS[item]).unwrap();
                self.groups[group].add_stat(counted, n);
                self.add(group, LINES.len() - ITEMS.len() + item, n);
            }
            Step::Reclaim(group, n) => {
                let group = self.pick(group);
                self.groups[group].add_reclaimed(n);
                self.add(group, 5, n as i64);
            }
            Step::Read(group) => self.check(self.pick(group)),
            Step::Drain(group) => {
                self.groups[self.pick(group)].drain();
            }
        }
    }

    fn is_below(&self, mut group: usize, top: usize) -> bool {
        loop {
            if group == top {
                return true;
            }
            match self.models[group].parent {
                Some(parent) => group = parent,
                None => return false,
            }
        }
    }

    fn check(&self, top: usize) {
        let stat = self.groups[top].stat();
        assert_eq!(stat.lines.iter().map(|line| &line.name[..]).collect::<Vec<_>>(), LINES);
        for (line, name) in LINES.iter().enumerate() {
            let subtree: i64 = (0..self.models.len())
                .filter(|&group| self.is_below(group, top))
                .map(|group| self.models[group].own[line])
                .sum();
            let read = stat.get(name).unwrap();
            assert_eq!(read.subtree, subtree, "{name} below {}", self.groups[top].path());
            // A parent's own blocks include those of children that are gone.
            if !name.starts_with("blocks") {
                assert_eq!(read.own, self.models[top].own[line], "{name}");
            }
        }
    }
}

#[test]
fn every_number_is_that_of_a_slow_obvious_count() {
    in_all_modes("every_number_is_that_of_a_slow_obvious_count", || {
        let mut runner = TestRunner::new(crate::common::cases::few(
            file!(),
            if cfg!(debug_assertions) { 60 } else { 400 },
        ));
        let steps = prop::collection::vec(steps(), 1..200);
        runner
            .run(&steps, |steps| {
                let ledger =
                    Ledger::builder().capacity(64).items(&ITEMS).flows(true).anonymous().unwrap();
                ledger.root().set_max(Limit::units(1 << 40)).unwrap();
                let mut both =
                    Both { groups: vec![ledger.root()], models: vec![Model::below(None)] };
                for step in steps {
                    both.step(step);
                }
                for group in 0..both.models.len() {
                    if both.models[group].live {
                        both.check(group);
                    }
                }
                assert_eq!(ledger.mistakes(), Mistakes::default());
                Ok(())
            })
            .unwrap();
    });
}

#[test]
fn nothing_is_lost_while_a_reader_collects_under_fire() {
    in_both_modes("nothing_is_lost_while_a_reader_collects_under_fire", || {
        const THREADS: usize = 4;
        let rounds: i64 = if cfg!(debug_assertions) { 30_000 } else { 200_000 };
        let ledger = Ledger::builder().items(&ITEMS).flows(true).anonymous().unwrap();
        let tenants: Vec<Group<'_>> =
            (0..3).map(|n| ledger.root().create(&format!("t{n}")).unwrap()).collect();
        let queries: Vec<Group<'_>> =
            (0..9).map(|n| tenants[n % 3].create(&format!("q{n}")).unwrap()).collect();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let (queries, item) = (&queries, ledger.item(ITEMS[1]).unwrap());
                    scope.spawn(move || {
                        for round in 0..rounds {
                            let query = queries[(round as usize + thread) % queries.len()];
                            query.try_charge_units(100).unwrap();
                            query.add_stat(item, 3);
                            query.uncharge_units(100);
                        }
                    })
                })
                .collect();
            let (root, stop, tenants) = (ledger.root(), &stop, &tenants);
            scope.spawn(move || {
                let mut last = HashMap::new();
                while !stop.load(Relaxed) {
                    for group in [root, tenants[0]] {
                        let stat = group.stat();
                        for name in ["charged", "freed", "blocks_total", "spills"] {
                            let now = stat.get(name).unwrap().subtree;
                            let before = last.insert((group.id(), name), now).unwrap_or(0);
                            assert!(now >= before, "{name} ran backwards: {before} to {now}");
                        }
                    }
                }
            });
            for writer in writers {
                writer.join().unwrap();
            }
            stop.store(true, Relaxed);
        });
        let total = THREADS as i64 * rounds;
        let stat = ledger.root().stat();
        let subtree = |name: &str| stat.get(name).unwrap().subtree;
        assert_eq!(subtree("spills"), 3 * total);
        assert_eq!((subtree("charged"), subtree("freed")), (100 * total, 100 * total));
        assert_eq!((subtree("blocks_live"), subtree("blocks_total")), (0, total));
        let by_tenant: i64 =
            tenants.iter().map(|tenant| tenant.stat().get("spills").unwrap().subtree).sum();
        assert_eq!(by_tenant, 3 * total);
    });
}

#[test]
fn somebody_who_looks_on_sees_what_was_not_collected_yet() {
    let file = tempfile();
    let ledger = Ledger::builder().items(&ITEMS).flows(true).create_in(&file).unwrap();
    let tenant = ledger.root().create("acme").unwrap();
    let query = tenant.create("q1").unwrap();
    let sorts = ledger.item("sorts").unwrap();
    query.try_charge_units(1000).unwrap();
    query.add_stat(sorts, 7);
    let looker = Ledger::open_in(&file).unwrap();
    assert_eq!(looker.item_names(), ITEMS);
    let look = || looker.group(tenant.id()).stat();
    for round in 1..4 {
        let stat = look();
        let subtree = |name: &str| stat.get(name).unwrap().subtree;
        assert_eq!((subtree("charged"), subtree("sorts")), (1000 * round, 7 * round));
        assert_eq!((subtree("blocks_live"), subtree("blocks_total")), (round, round));
        assert_eq!(stat.get("sorts").unwrap().own, 0);
        // The writer collects one half of the following counts, but not the other.
        query.try_charge_units(1000).unwrap();
        if round == 2 {
            assert_eq!(query.stat().get("charged").unwrap().own, 3000);
        }
        query.add_stat(sorts, 7);
    }
}

#[test]
fn what_no_group_can_count_is_refused_or_noted() {
    let ledger = Ledger::builder().items(&["rows"]).anonymous().unwrap();
    let group = ledger.root().create("a").unwrap();
    let rows = ledger.item("rows").unwrap();
    let other = Ledger::builder().items(&["rows", "more"]).anonymous().unwrap();
    assert_eq!(ledger.item("more"), None);
    group.add_stat(other.item("more").unwrap(), 5);
    assert_eq!(ledger.mistakes().strays, 1, "an item that the ledger does not have");
    group.add_stat(rows, 5);
    assert_eq!(ledger.root().stat().to_string().lines().last(), Some("rows 5"));
    group.destroy().unwrap();
    group.add_stat(rows, 5);
    assert_eq!(ledger.mistakes().strays, 2, "a group that is gone");
    assert_eq!(ledger.root().stat().get("rows").unwrap().subtree, 5);
    let many: Vec<String> = (0..25).map(|n| format!("item{n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for (names, why) in [
        (&["Rows"][..], "a name has 1 to 32"),
        (&[""], "a name has 1 to 32"),
        (&["a_name_of_more_than_32_characters"], "a name has 1 to 32"),
        (&["rows", "rows"], "is there already"),
        (&["refused"], "is there already"),
        (&many, "at most 24"),
    ] {
        let error = Ledger::builder().items(names).anonymous().unwrap_err();
        assert!(error.to_string().contains(why), "{names:?}: {error}");
    }
}

fn tempfile() -> std::fs::File {
    use std::os::fd::FromRawFd;
    // SAFETY: creates a new anonymous file, whose descriptor is ours.
    unsafe {
        let descriptor = libc::memfd_create(c"ledger".as_ptr(), libc::MFD_CLOEXEC);
        assert!(descriptor >= 0);
        std::fs::File::from_raw_fd(descriptor)
    }
}
