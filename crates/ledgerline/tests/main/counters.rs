//! Compares counters with a slow oracle, on simulated CPUs: every total, every bound, every sum.

use ledgerline::stat::{
    Clamps, Counters, On, PlaceId, Places, Reading, ThresholdError, Width, WidthKind,
};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::collections::BTreeMap;

ledgerline::items! {
    /// A few things to count.
    enum Vm {
        /// Free.
        Free = "nr_free_pages",
        /// Of files.
        File = "nr_file_pages",
        /// To be written.
        Dirty = "nr_dirty",
    }
}

const ITEMS: [Vm; 3] = [Vm::Free, Vm::File, Vm::Dirty];

/// The machine, two nodes, three zones; all of them are updated.
fn machine() -> (Places, Vec<PlaceId>) {
    let mut tree = Places::builder("machine");
    let nodes = ["0", "1"].map(|name| tree.node(name).unwrap());
    tree.zone(nodes[0], "DMA").unwrap();
    tree.zone(nodes[0], "Normal").unwrap();
    tree.zone(nodes[1], "Normal").unwrap();
    let places = tree.build().unwrap();
    let all = places.iter().collect();
    (places, all)
}

/// The common interface of the three widths.
trait Drive: Width {
    fn apply(on: On<'_, Vm, Self>, place: PlaceId, item: Vm, n: i64);
    /// Returns `false` if the width has no decrement.
    fn dec(on: On<'_, Vm, Self>, place: PlaceId, item: Vm) -> bool;
}

macro_rules! drive {
    ($Width:ty, $add:expr, $dec:expr) => {
        impl Drive for $Width {
            fn apply(on: On<'_, Vm, Self>, place: PlaceId, item: Vm, n: i64) {
                let add: fn(On<'_, Vm, Self>, PlaceId, Vm, i64) = $add;
                add(on, place, item, n);
            }
            fn dec(on: On<'_, Vm, Self>, place: PlaceId, item: Vm) -> bool {
                let dec: fn(On<'_, Vm, Self>, PlaceId, Vm) -> bool = $dec;
                dec(on, place, item)
            }
        }
    };
}

drive!(i8, |on, place, item, n| on.add(place, item, n), |on, place, item| {
    on.dec(place, item);
    true
});
drive!(u16, |on, place, item, n| on.add(place, item, n.unsigned_abs() as u32), |_, _, _| false);
drive!(i64, |on, place, item, n| on.add(place, item, n), |on, place, item| {
    on.dec(place, item);
    true
});

/// One step. Places and CPUs are taken modulo their number.
#[derive(Clone, Copy, Debug)]
enum Step {
    Inc(u32, usize, usize),
    Dec(u32, usize, usize),
    Add(u32, usize, usize, i64),
    Fold,
    FoldPlace(usize),
    FoldCpu(u32),
    Drain(usize),
    Threshold(usize, u32),
}

fn steps() -> impl Strategy<Value = Step> {
    // Few CPUs and items are hit often, so that their differences grow.
    let cpu = || prop_oneof![3 => 0..3u32, 1 => any::<u32>()];
    let place = 0..6usize;
    let item = 0..3usize;
    let amount = prop_oneof![
        6 => -130..130i64,
        2 => -70_000..70_000i64,
        1 => -(1i64 << 40)..1 << 40,
    ];
    let threshold = prop_oneof![Just(0), Just(1), 0..126u32, Just(125), 0..65534u32];
    prop_oneof![
        40 => (cpu(), place.clone(), item.clone()).prop_map(|(c, p, i)| Step::Inc(c, p, i)),
        20 => (cpu(), place.clone(), item.clone()).prop_map(|(c, p, i)| Step::Dec(c, p, i)),
        40 => (cpu(), place.clone(), item, amount).prop_map(|(c, p, i, n)| Step::Add(c, p, i, n)),
        1 => Just(Step::Fold),
        2 => place.clone().prop_map(Step::FoldPlace),
        2 => cpu().prop_map(Step::FoldCpu),
        1 => place.clone().prop_map(Step::Drain),
        3 => (place, threshold).prop_map(|(p, t)| Step::Threshold(p, t)),
    ]
}

/// The rules, taken literally, with a map for everything.
struct Oracle {
    kind: WidthKind,
    cpus: u32,
    /// For each place, the place that contains it.
    parents: Vec<Option<usize>>,
    thresholds: Vec<i64>,
    differences: BTreeMap<(usize, u32, usize), i64>,
    totals: BTreeMap<(usize, usize), i64>,
    /// The true sum at each place.
    truth: BTreeMap<(usize, usize), i64>,
}

impl Oracle {
    fn lineage(&self, place: usize) -> Vec<usize> {
        std::iter::successors(Some(place), |&at| self.parents[at]).collect()
    }

    fn carry(&mut self, place: usize, item: usize, n: i64) {
        for at in self.lineage(place) {
            *self.totals.entry((at, item)).or_default() += n;
        }
    }

    fn update(&mut self, cpu: u32, place: usize, item: usize, n: i64, by_one: bool) {
        for at in self.lineage(place) {
            *self.truth.entry((at, item)).or_default() += n;
        }
        let t = self.thresholds[place];
        let difference = self.differences.entry((place, cpu, item)).or_default();
        let x = *difference + n;
        let carry = match self.kind {
            WidthKind::I64 => {
                *difference = x;
                0
            }
            // A place with threshold 0 keeps nothing back, whatever the rule.
            _ if t == 0 => n,
            WidthKind::U16 if x > t => {
                *difference = 0;
                x
            }
            WidthKind::I8 if by_one && n > 0 && x > t => {
                *difference = -(t >> 1);
                x + (t >> 1)
            }
            WidthKind::I8 if by_one && n < 0 && x < -t => {
                *difference = t >> 1;
                x - (t >> 1)
            }
            WidthKind::I8 if x.abs() > t => {
                *difference = 0;
                x
            }
            _ => {
                *difference = x;
                0
            }
        };
        self.carry(place, item, carry);
    }

    /// Takes differences. Returns how many were not zero.
    fn fold(&mut self, which: impl Fn(usize, u32) -> bool) -> u64 {
        if self.kind == WidthKind::I64 {
            return 0;
        }
        let taken: Vec<_> = self
            .differences
            .iter_mut()
            .filter(|((place, cpu, _), _)| which(*place, *cpu))
            .map(|(&(place, _, item), difference)| (place, item, std::mem::take(difference)))
            .filter(|&(_, _, difference)| difference != 0)
            .collect();
        for &(place, item, difference) in &taken {
            self.carry(place, item, difference);
        }
        taken.len() as u64
    }

    fn bound(&self, place: usize) -> u64 {
        (0..self.parents.len())
            .filter(|&at| self.lineage(at).contains(&place))
            .map(|at| self.thresholds[at] as u64 * u64::from(self.cpus))
            .sum()
    }
}

fn agree<W: Drive>(cpus: u32, threshold: Option<u32>, steps: &[Step]) -> Result<(), TestCaseError> {
    let (places, all) = machine();
    let mut builder = Counters::<Vm, W>::builder(&places).cpus(cpus);
    if let Some(threshold) = threshold {
        builder = builder.threshold(threshold);
    }
    let counters = builder.anonymous().unwrap();
    let mut oracle = Oracle {
        kind: W::KIND,
        cpus,
        parents: all.iter().map(|&p| places.parent(p).map(PlaceId::index)).collect(),
        thresholds: all.iter().map(|&p| counters.threshold(p).into()).collect(),
        differences: BTreeMap::new(),
        totals: BTreeMap::new(),
        truth: BTreeMap::new(),
    };
    let most = match W::KIND {
        WidthKind::I8 => 125,
        WidthKind::U16 => 65533,
        WidthKind::I64 => 0,
    };
    for &step in steps {
        match step {
            Step::Inc(cpu, place, item) => {
                counters.on(cpu % cpus).inc(all[place], ITEMS[item]);
                oracle.update(cpu % cpus, place, item, 1, true);
            }
            Step::Dec(cpu, place, item) => {
                if W::dec(counters.on(cpu % cpus), all[place], ITEMS[item]) {
                    oracle.update(cpu % cpus, place, item, -1, true);
                }
            }
            Step::Add(cpu, place, item, n) => {
                let n = if W::KIND == WidthKind::U16 { n.abs() & 0xffff_ffff } else { n };
                W::apply(counters.on(cpu % cpus), all[place], ITEMS[item], n);
                oracle.update(cpu % cpus, place, item, n, false);
            }
            Step::Fold => prop_assert_eq!(counters.fold(), oracle.fold(|_, _| true)),
            Step::FoldPlace(place) => {
                let expected = oracle.fold(|at, _| at == place);
                prop_assert_eq!(counters.fold_place(all[place]), expected);
            }
            Step::FoldCpu(cpu) => {
                let expected = oracle.fold(|_, at| at == cpu % cpus);
                prop_assert_eq!(counters.fold_cpu(cpu % cpus), expected);
            }
            Step::Drain(place) => {
                let below: Vec<usize> =
                    (0..all.len()).filter(|&at| oracle.lineage(at).contains(&place)).collect();
                let expected = oracle.fold(|at, _| below.contains(&at));
                below.iter().for_each(|&at| oracle.thresholds[at] = 0);
                prop_assert_eq!(counters.drain(all[place]), Ok(expected));
            }
            Step::Threshold(place, threshold) => {
                let set = counters.set_threshold(all[place], threshold);
                if threshold > most {
                    prop_assert_eq!(set, Err(ThresholdError::TooLarge { threshold, most }));
                } else {
                    prop_assert_eq!(set, Ok(()));
                    oracle.fold(|at, _| at == place);
                    oracle.thresholds[place] = threshold.into();
                }
            }
        }
        // The numbers that the step may have changed; everything at the end.
        compare(&counters, &oracle, &all, &ITEMS[..1])?;
    }
    compare(&counters, &oracle, &all, &ITEMS)?;
    let table = counters.table();
    prop_assert!(table.steady);
    for (place, expected) in table.places.iter().zip(&all) {
        prop_assert_eq!(&place.name, places.name(*expected));
        for (item, &value) in ITEMS.iter().zip(&place.values) {
            prop_assert_eq!(value, counters.snapshot(*expected, *item));
        }
    }
    prop_assert_eq!(counters.clamps().saturated, 0);
    Ok(())
}

fn compare<W: Drive>(
    counters: &Counters<Vm, W>,
    oracle: &Oracle,
    all: &[PlaceId],
    items: &[Vm],
) -> Result<(), TestCaseError> {
    for (at, &place) in all.iter().enumerate() {
        prop_assert_eq!(i64::from(counters.threshold(place)), oracle.thresholds[at]);
        for (item, &which) in items.iter().enumerate() {
            let truth = oracle.truth.get(&(at, item)).copied().unwrap_or(0);
            let total = oracle.totals.get(&(at, item)).copied().unwrap_or(0);
            prop_assert_eq!(counters.precise(place, which), truth);
            prop_assert_eq!(counters.snapshot(place, which), truth.max(0) as u64);
            let Reading { value, bound } = counters.approximate(place, which);
            let expected = if W::KIND == WidthKind::I64 { truth } else { total };
            prop_assert_eq!(value, expected.max(0) as u64);
            prop_assert_eq!(bound, oracle.bound(at));
            prop_assert!(truth.abs_diff(expected) <= bound, "{} {} {}", truth, expected, bound);
        }
    }
    Ok(())
}

fn check<W: Drive>() {
    let cpus = prop_oneof![Just(1u32), 2..9u32, 1..1025u32, Just(1024)];
    let most = if W::KIND == WidthKind::I64 { 1u32 } else { 126 };
    let threshold = proptest::option::of(0..most);
    let input = (cpus, threshold, proptest::collection::vec(steps(), 0..250));
    let mut runner = TestRunner::new(crate::common::cases::few(file!(), 64));
    runner.run(&input, |(cpus, threshold, steps)| agree::<W>(cpus, threshold, &steps)).unwrap();
}

#[test]
fn signed_bytes_do_what_the_rule_says_on_any_number_of_cpus() {
    check::<i8>();
}

#[test]
fn sixteen_bits_do_what_the_rule_says_on_any_number_of_cpus() {
    check::<u16>();
}

#[test]
fn sixty_four_bits_add_up_on_any_number_of_cpus() {
    check::<i64>();
}

#[test]
fn the_bound_is_attained_on_both_sides() {
    let (places, all) = machine();
    let (node, zone) = (all[1], all[3]);
    for cpus in [1, 2, 64, 1024] {
        for t in [1, 10, 125] {
            let up = Counters::<Vm, i8>::builder(&places).cpus(cpus).threshold(t);
            let counters = up.anonymous().unwrap();
            let most = u64::from(cpus * t);
            for cpu in 0..cpus {
                counters.on(cpu).add(zone, Vm::Free, t.into());
            }
            let reading = counters.approximate(zone, Vm::Free);
            assert_eq!(reading, Reading { value: 0, bound: most });
            assert_eq!(counters.snapshot(zone, Vm::Free), most, "all that may be hidden is");
            // Downwards, from a value that is in the total.
            counters.on(0).add(zone, Vm::File, 1 << 40);
            for cpu in 0..cpus {
                counters.on(cpu).add(zone, Vm::File, -i64::from(t));
            }
            let reading = counters.approximate(zone, Vm::File);
            assert_eq!(reading, Reading { value: 1 << 40, bound: most });
            assert_eq!(counters.snapshot(zone, Vm::File), (1 << 40) - most);
            // A node: its own differences and those of its two zones.
            for place in [node, all[4]] {
                for cpu in 0..cpus {
                    counters.on(cpu).add(place, Vm::Free, t.into());
                }
            }
            let reading = counters.approximate(node, Vm::Free);
            assert_eq!(reading, Reading { value: 0, bound: 3 * most });
            assert_eq!(counters.snapshot(node, Vm::Free), 3 * most);
        }
        let counters = Counters::<Vm, u16>::builder(&places).cpus(cpus).anonymous().unwrap();
        for cpu in 0..cpus {
            counters.on(cpu).add(zone, Vm::Free, 65533);
        }
        let most = u64::from(cpus) * 65533;
        assert_eq!(counters.approximate(zone, Vm::Free), Reading { value: 0, bound: most });
        assert_eq!(counters.snapshot(zone, Vm::Free), most);
    }
}

#[test]
fn a_counter_that_only_grows_oversteps_once_in_one_and_a_half_thresholds() {
    let (places, all) = machine();
    for t in [1u32, 2, 36, 124, 125] {
        let counters = Counters::<Vm, i8>::builder(&places).cpus(1).threshold(t);
        let counters = counters.anonymous().unwrap();
        let mut totals = Vec::new();
        for _ in 0..10_000 {
            counters.on(0).inc(all[3], Vm::Free);
            totals.push(counters.approximate(all[3], Vm::Free).value);
        }
        let oversteps = totals.windows(2).filter(|pair| pair[0] != pair[1]).count() as u32;
        let period = t + t / 2 + 1;
        assert!((oversteps).abs_diff(10_000 / period) <= 1, "{oversteps} with threshold {t}");
    }
}

#[test]
fn what_does_not_fit_is_clamped_and_counted_and_nothing_wraps() {
    let places = Places::single("machine").unwrap();
    let root = places.root();
    let counters = Counters::<Vm, i64>::builder(&places).cpus(2).anonymous().unwrap();
    for cpu in [0, 1] {
        counters.on(cpu).add(root, Vm::Free, i64::MAX);
        assert_eq!(counters.precise(root, Vm::Free), i64::MAX, "the sum ends at i64");
    }
    assert_eq!(counters.clamps(), Clamps::default(), "nothing is lost so far");
    counters.on(0).add(root, Vm::Free, 5);
    counters.on(0).add(root, Vm::Free, -5);
    for cpu in [0, 1] {
        counters.on(cpu).add(root, Vm::Free, -i64::MAX);
    }
    // The 5 went to the total, and is not taken back from there: the difference had room for -5.
    assert_eq!(counters.precise(root, Vm::Free), 0);

    let bytes = Counters::<Vm, i8>::builder(&places).cpus(1).anonymous().unwrap();
    bytes.on(0).add(root, Vm::File, i64::MAX);
    assert_eq!(bytes.precise(root, Vm::File), 1 << 60, "a total ends there");
    bytes.on(0).add(root, Vm::File, i64::MAX);
    assert_eq!(bytes.clamps().saturated, 2);
    bytes.on(0).add(root, Vm::Dirty, -500);
    assert_eq!(bytes.precise(root, Vm::Dirty), -500);
    assert_eq!(bytes.snapshot(root, Vm::Dirty), 0);
    assert_eq!(bytes.approximate(root, Vm::Dirty).value, 0);
    assert_eq!(bytes.clamps(), Clamps { below_zero: 2, saturated: 2 });
}

#[test]
fn what_makes_no_table_is_refused() {
    ledgerline::items! {
        enum Spaced {
            /// Two words.
            Two = "two words",
        }
    }
    ledgerline::items! {
        enum Twice {
            /// One.
            One = "same",
            /// Other.
            Other = "same",
        }
    }
    let places = Places::single("machine").unwrap();
    let kind = |result: std::io::Result<()>| result.unwrap_err().kind();
    let invalid = std::io::ErrorKind::InvalidInput;
    assert_eq!(kind(Counters::<Spaced, i8>::new(&places).map(drop)), invalid);
    assert_eq!(kind(Counters::<Twice, i8>::new(&places).map(drop)), invalid);
    let bytes = || Counters::<Vm, i8>::builder(&places);
    assert_eq!(kind(bytes().cpus(0).anonymous().map(drop)), invalid);
    assert_eq!(kind(bytes().cpus(1 << 17).anonymous().map(drop)), invalid);
    assert_eq!(kind(bytes().threshold(126).anonymous().map(drop)), invalid);
    let wide = Counters::<Vm, i64>::builder(&places);
    assert_eq!(kind(wide.threshold(1).anonymous().map(drop)), invalid);
}

#[test]
#[should_panic(expected = "a place of another tree")]
fn a_place_of_another_tree_is_refused() {
    let (places, _) = machine();
    let (other, _) = machine();
    Counters::<Vm, i8>::new(&places).unwrap().inc(other.root(), Vm::Free);
}

#[test]
#[should_panic(expected = "CPU 4 of 4")]
fn a_cpu_that_is_not_there_is_refused() {
    let (places, _) = machine();
    let counters = Counters::<Vm, i8>::builder(&places).cpus(4).anonymous().unwrap();
    counters.on(4).inc(places.root(), Vm::Free);
}
