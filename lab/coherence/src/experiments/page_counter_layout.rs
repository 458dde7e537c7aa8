//! Linux commit 408587baee39, "mm: page_counter: rearrange struct page_counter fields", and its series: six rows, in
//! which network traffic charges page counters.
//!
//! The structure is that of the patches and Linux 6.0. All traffic charges one group, three levels below the root. A
//! CPU charges and uncharges from its stock. When that is empty or full, the CPU walks the levels: it adds to
//! `usage`, and reads what protection needs, `watermark`, `max` and `parent`; after a charge it reads `usage` and
//! `high` of every level once more, of memory and of swap. The top level has `min` and `low` set, and before patch A
//! each walk exchanges `min_usage` and `low_usage` there although nothing changes. Patch B is the layout, patch C
//! doubles the batch.
//!
//! A CPU that returns memory without a walk reads as well: each return checks whether the group or one above it is
//! short of memory for sockets, and finds the groups above through `css.parent`. That lies 16 bytes before `usage`,
//! on its line, until patch B begins a line with `usage`. Linux 6.0 returns the memory of each packet at once.

use super::{Basis, Experiment, Interval, Row, calibrate, each, shared_points};
use crate::layout::{FieldId, Layout, Scope};
use crate::machine::Settings;
use crate::program::{Program, Step};
use crate::simulate::{Error, Setup};

/// Which of the series' patches are applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Patches {
    /// Patch A: no exchange when protection does not change.
    pub a: bool,
    /// Patch B: the layout.
    pub b: bool,
    /// Patch C: a batch of 64 pages instead of 32.
    pub c: bool,
}

/// The rows below the root, each with its name, its patches and the published Mbit/s.
pub const ROWS: [(&str, Patches, f64); 5] = [
    ("three levels", Patches { a: false, b: false, c: false }, 10_482.7),
    ("A", Patches { a: true, b: false, c: false }, 14_542.5),
    ("B", Patches { a: false, b: true, c: false }, 12_413.7),
    ("C", Patches { a: false, b: false, c: true }, 17_063.7),
    ("A+B+C", Patches { a: true, b: true, c: true }, 20_120.3),
];

/// Mbit/s with everything in the root group, which is not charged.
pub const ROOT: f64 = 21_694.8;

/// The machine file.
pub const MACHINE: &str = "haswell-ep-2699v3";
/// The number of CPUs of the machine in the mail.
pub const CPUS: usize = 72;

/// The share of walks that remain with a doubled batch. It is half on a CPU that only takes or only returns, since no
/// message needs more than a batch. It is less if both go through one stock and cancel each other. It is a little
/// more since a full stock is returned whole, with the units that filled it.
const REMAINING: [f64; 2] = [0.4, 0.55];

/// The number of checks whether memory is short, for a side of a message. There is one for each packet that it frees.
/// A packet is one message if it is sent at once, and two if messages gather. If a window grows, there is a second
/// check.
const CHECKS: [f64; 2] = [0.5, 1.5];

/// Nanoseconds to charge and return a message's pages from stock: a few calls of some dozens of nanoseconds each,
/// with interrupts off. The root group has no such cost.
const STOCK_NS: [f64; 2] = [50.0, 150.0];

/// Returns the nanoseconds of a message of 10 KiB at a rate, which is assumed to be that of each instance.
pub(super) fn message_ns(rate: f64) -> f64 {
    10_240.0 * 8.0 * 1000.0 / rate
}

struct Counter {
    css_parent: FieldId,
    usage: FieldId,
    min: FieldId,
    low: FieldId,
    high: FieldId,
    max: FieldId,
    min_usage: FieldId,
    low_usage: FieldId,
    watermark: FieldId,
    parent: FieldId,
    swap_usage: FieldId,
    swap_high: FieldId,
}

/// The offset of a group's `css.parent` from the group's third line, which begins a pair.
const CSS_PARENT: u64 = 64;
/// The start of its counter of memory: `css` takes 200 bytes and `id` 8.
const PACKED: u64 = 80;
/// The start of that counter if it begins a line.
const PADDED: u64 = 128;

impl Counter {
    fn new(layout: &mut Layout, level: &str, apart: bool) -> Counter {
        let group = layout.object(level, Scope::Machine);
        let css_parent = layout.field(group, "css.parent", CSS_PARENT);
        let mut field = |name, packed: u64, padded: u64| {
            layout.field(group, name, if apart { PADDED + padded } else { PACKED + packed })
        };
        Counter {
            css_parent,
            usage: field("usage", 0, 0),
            min: field("min", 8, 128),
            low: field("low", 16, 136),
            high: field("high", 24, 144),
            max: field("max", 32, 152),
            min_usage: field("min_usage", 48, 72),
            low_usage: field("low_usage", 72, 96),
            watermark: field("watermark", 88, 112),
            parent: field("parent", 104, 160),
            // The counter of swap follows at once, 112 or 192 bytes on.
            swap_usage: field("swap.usage", 112, 192),
            swap_high: field("swap.high", 136, 336),
        }
    }

    /// Returns the steps of a walk on a level other than the root.
    fn walk(&self, charge: bool, exchange: bool) -> Vec<Step> {
        let mut steps = vec![Step::rmw(self.usage), Step::load_overlapping(self.parent)];
        for (claim, protected) in [(self.min, self.min_usage), (self.low, self.low_usage)] {
            steps.push(Step::load_overlapping(claim));
            // A walk exchanges protection that is claimed without a look, and only looks at what is not claimed.
            let changes =
                if exchange { Step::rmw(protected) } else { Step::load_overlapping(protected) };
            steps.push(changes);
        }
        if charge {
            steps.extend([self.max, self.watermark].map(Step::load_overlapping));
        }
        steps.push(Step::load(self.parent));
        steps
    }
}

/// A design point with the figures fitted on the row without patches, and the assumed ones.
#[derive(Clone, Debug)]
pub struct Point {
    /// The machine, with one value chosen from every range.
    pub settings: Settings,
    /// The number of walks of each kind that a message causes, with batches of 32 pages.
    pub walks: f64,
    /// The share of these walks that remain with a doubled batch.
    pub remaining: f64,
    /// The number of checks whether memory is short, for a side of a message.
    pub checks: f64,
    /// The time to charge a message from stock, in nanoseconds.
    pub stock_ns: f64,
}

impl Point {
    /// Returns the setup of a side of a message with some of the patches, on so many CPUs.
    #[must_use]
    pub fn setup(&self, patches: Patches, cpus: usize) -> Setup {
        let mut layout = Layout::new();
        let levels = ["leaf", "middle", "top", "root"]
            .map(|level| Counter::new(&mut layout, level, patches.b));
        // A message is cut into quarters of its time, so that it may have more than one walk.
        let walks = if patches.c { self.walks * self.remaining } else { self.walks };
        let work = (message_ns(ROOT) + self.stock_ns) * self.settings.clock_ghz / 4.0;
        let short = || levels.iter().map(|level| Step::load(level.css_parent));
        let quarter = |_| {
            [
                Step::compute(work / 2.0),
                Step::chance(walks / 4.0, walk(&levels, patches, true)),
                Step::compute(work / 2.0),
                Step::chance(walks / 4.0, walk(&levels, patches, false)),
                Step::chance(self.checks / 4.0, short()),
            ]
        };
        let program = Program::new("send or receive 10 KiB", (0..4).flat_map(quarter));
        Setup::uniform(self.settings.clone(), layout, program, cpus).during(100_000.0, 500_000.0)
    }
}

/// Returns the steps from the charged group up to the root; after a charge, also those of the second look.
fn walk(levels: &[Counter; 4], patches: Patches, charge: bool) -> Vec<Step> {
    let [below @ .., root] = levels;
    let mut steps = Vec::new();
    for (level, counter) in below.iter().enumerate() {
        steps.extend(counter.walk(charge, level == 2 && !patches.a));
    }
    steps.extend([Step::rmw(root.usage), Step::load_overlapping(root.parent)]);
    if charge {
        steps.extend([root.max, root.watermark].map(Step::load_overlapping));
        for level in levels {
            let high = [level.usage, level.high, level.swap_usage, level.swap_high];
            steps.extend(high.map(Step::load_overlapping));
            steps.push(Step::load(level.css_parent));
        }
    }
    steps
}

/// Makes `count` design points. The number of walks that a message causes is calibrated on the row without patches.
///
/// # Errors
/// None for a count that is not zero.
pub fn points(count: usize) -> Result<Vec<Point>, Error> {
    each(&shared_points(MACHINE, count)?, |index, settings| {
        let within = |[low, high]: [f64; 2], share: f64| low + (high - low) * share;
        let [checks, stock, remaining] = cube(index);
        let with = |walks| Point {
            settings: settings.clone(),
            walks,
            remaining: within(REMAINING, remaining),
            checks: within(CHECKS, checks),
            stock_ns: within(STOCK_NS, stock),
        };
        let none = Patches::default();
        let walks = calibrate(0.0, 1.0, message_ns(ROWS[0].2), |walks| {
            Ok(with(walks).setup(none, CPUS).run()?.nanoseconds())
        })?;
        Ok(with(walks))
    })
}

/// Returns points that fill a cube of 0 to 1 evenly and differ from those of the design.
fn cube(index: usize) -> [f64; 3] {
    // This number's fourth power is itself plus one, so its powers serve as the golden ratio of three dimensions.
    const ROOT: f64 = 1.220_744_084_605_759_5;
    [1, 2, 3].map(|power| (0.5 + index as f64 / ROOT.powi(power)).fract())
}

/// Predicts each row's rate on these design points. It takes some 0.3 seconds a point.
///
/// # Errors
/// None for points from [`points`].
pub fn table(points: &[Point]) -> Result<Experiment, Error> {
    let rates = each(points, |_, point| {
        ROWS.iter()
            .map(|&(_, patches, _)| {
                Ok(message_ns(1.0) / point.setup(patches, CPUS).run()?.nanoseconds())
            })
            .collect::<Result<Vec<f64>, Error>>()
    })?;
    let exactly = Interval::of(vec![ROOT]);
    let root = Row::new("all in root", Some(ROOT), exactly, Basis::Calibrated);
    let rows = ROWS.iter().enumerate().map(|(row, &(name, _, published))| {
        let predicted = Interval::of(rates.iter().map(|rate| rate[row]).collect());
        let basis = if row == 0 { Basis::Calibrated } else { Basis::Prediction };
        Row::new(name, Some(published), predicted, basis)
    });
    Ok(Experiment {
        name: "page-counter-layout",
        unit: "Mbit/s",
        machine: MACHINE,
        rows: [root].into_iter().chain(rows).collect(),
        calibrated_on:
            "the root row (work without charging) and the row without patches (walks a message); \
                        the time between two readers is that of numa-threshold"
                .to_owned(),
        resolves: None,
        under_determined: UNDER_DETERMINED,
    })
}

const UNDER_DETERMINED: &[&str] = &[
    "the machine: 72 CPUs are taken for two E5-2699 v3",
    "how many walks a message causes, and how a larger batch changes that: 40 to 55 % are taken \
     to remain; a count of page_counter_try_charge calls would say",
    "how often memory is returned, and with it `css.parent` read beside `usage`: 0.5 to 1.5 times a message \
     and side; a count of __sk_mem_reduce_allocated calls would narrow rows A and C most",
    "what charging from stock takes: 50 to 150 ns a message; a run in one group below the root, on one CPU, \
     would say",
];
