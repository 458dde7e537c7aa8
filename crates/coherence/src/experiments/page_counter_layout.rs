//! Seed 000: the six rows of the series on `struct page_counter`, charged by network traffic.
//!
//! Structure, from the patch and Linux 6.0. All traffic charges one group, three levels below the root.
//! A CPU charges and uncharges from its stock; when that is empty or full it walks the levels: adds to
//! `usage`, reads what protection needs, `watermark`, `max` and `parent`, and after a charge reads `usage`
//! and `high` of every level once more. The top level has `min` and `low` set, and before patch A each walk
//! exchanges `min_usage` and `low_usage` there although nothing changes. Patch B is the layout, patch C
//! doubles the batch.

use super::{Experiment, Interval, Row, calibrate, each, even, shared_points};
use crate::layout::{FieldId, Layout, Scope};
use crate::machine::{Machine, Settings};
use crate::program::{Program, Step};
use crate::simulate::{Error, Setup};

/// Which of the series' patches are in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Patches {
    /// No exchange when protection does not change.
    pub a: bool,
    /// The layout.
    pub b: bool,
    /// A batch of 64 pages instead of 32.
    pub c: bool,
}

/// The rows below the root: name, patches, published Mbit/s.
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
/// The CPUs of the machine in the mail.
pub const CPUS: usize = 72;

/// The share of walks that remains when the batch is doubled: half, where each fetches a batch; more where
/// charges are larger than that or the stock holds another group's pages, at most this.
const MOST_REMAINING: f64 = 0.7;

/// Nanoseconds for a message of 10 KiB at a rate, read as each instance's own.
pub(super) fn message_ns(rate: f64) -> f64 {
    10_240.0 * 8.0 * 1000.0 / rate
}

struct Counter {
    usage: FieldId,
    min: FieldId,
    low: FieldId,
    high: FieldId,
    max: FieldId,
    min_usage: FieldId,
    low_usage: FieldId,
    watermark: FieldId,
    parent: FieldId,
}

impl Counter {
    /// `begins`: where the counter begins in a pair of lines, which the mail does not say.
    fn new(layout: &mut Layout, level: &str, apart: bool, begins: u64) -> Counter {
        let counter = layout.object_at(level, Scope::Machine, if apart { 0 } else { begins });
        let mut field =
            |name, packed, padded| layout.field(counter, name, if apart { padded } else { packed });
        Counter {
            usage: field("usage", 0, 0),
            min: field("min", 8, 128),
            low: field("low", 16, 136),
            high: field("high", 24, 144),
            max: field("max", 32, 152),
            min_usage: field("min_usage", 48, 72),
            low_usage: field("low_usage", 72, 96),
            watermark: field("watermark", 88, 112),
            parent: field("parent", 104, 160),
        }
    }

    /// What a walk does on a level that is not the root.
    fn walk(&self, charge: bool, exchange: bool) -> Vec<Step> {
        let mut steps = vec![Step::rmw(self.usage)];
        steps.extend([self.min, self.min_usage].map(Step::load_overlapping));
        if exchange {
            steps.push(Step::rmw(self.min_usage));
        }
        steps.extend([self.low, self.low_usage].map(Step::load_overlapping));
        if exchange {
            steps.push(Step::rmw(self.low_usage));
        }
        if charge {
            steps.extend([self.max, self.watermark].map(Step::load_overlapping));
        }
        steps.push(Step::load(self.parent));
        steps
    }
}

/// One side of a message, with so many walks of each kind for it.
///
/// `begins` is where the counters of the old layout begin in a pair of lines.
#[must_use]
pub fn setup(settings: Settings, patches: Patches, walks: f64, begins: u64, cpus: usize) -> Setup {
    let mut layout = Layout::new();
    let levels =
        ["leaf", "middle", "top"].map(|level| Counter::new(&mut layout, level, patches.b, begins));
    let root = Counter::new(&mut layout, "root", patches.b, begins);
    let walk = |charge: bool| {
        let mut steps = Vec::new();
        for (level, counter) in levels.iter().enumerate() {
            steps.extend(counter.walk(charge, level == 2 && !patches.a));
        }
        steps.push(Step::rmw(root.usage));
        if charge {
            steps.extend([root.max, root.watermark].map(Step::load_overlapping));
            for counter in &levels {
                steps.extend([counter.usage, counter.high].map(Step::load_overlapping));
            }
        }
        steps
    };
    // The walks of a message, in quarters of its time, so that they may be more than one.
    let chance = walks / 4.0;
    let work = message_ns(ROOT) * settings.clock_ghz / 4.0;
    let quarter = |_| {
        [
            Step::compute(work / 2.0),
            Step::chance(chance, walk(true)),
            Step::compute(work / 2.0),
            Step::chance(chance, walk(false)),
        ]
    };
    let program = Program::new("send or receive 10 KiB", (0..4).flat_map(quarter));
    Setup::uniform(settings, layout, program, cpus).during(100_000.0, 500_000.0)
}

/// Each row's rate, walks a message calibrated on the row without patches, over so many design points.
///
/// Takes some second a point.
///
/// # Errors
/// None for a count of points that is not zero.
pub fn predict(points: usize) -> Result<Experiment, Error> {
    table(&self::points(points)?)
}

/// A design point with what is fitted on the row without patches, and what is assumed.
#[derive(Clone, Debug)]
pub struct Point {
    /// The machine, every range settled.
    pub settings: Settings,
    /// Walks of each kind for a message, with batches of 32 pages.
    pub walks: f64,
    /// The share of them that a doubled batch leaves.
    pub remaining: f64,
    /// Where the counters of the old layout begin in a pair of lines.
    pub begins: u64,
}

impl Point {
    /// A side of a message with some of the patches, on so many CPUs.
    #[must_use]
    pub fn setup(&self, patches: Patches, cpus: usize) -> Setup {
        let walks = if patches.c { self.walks * self.remaining } else { self.walks };
        setup(self.settings.clone(), patches, walks, self.begins, cpus)
    }
}

/// So many design points, each fitted on the row without patches.
///
/// # Errors
/// None for a count that is not zero.
pub fn points(count: usize) -> Result<Vec<Point>, Error> {
    let machine = Machine::built_in(MACHINE).expect("it comes with the crate");
    each(&shared_points(&machine, count)?, |index, settings| {
        // `usage` and `high` shared a line: the patch says so. That leaves five places in either line.
        let begins = 8 * (index as u64 % 5) + 64 * (index as u64 / 5 % 2);
        // As with every range, half of the belief lies at or below the best guess.
        let remaining = 0.5 + (MOST_REMAINING - 0.5) * (2.0 * even(index) - 1.0).max(0.0);
        let with = |walks| Point { settings: settings.clone(), walks, remaining, begins };
        let none = Patches::default();
        let walks = calibrate(0.0, 4.0, message_ns(ROWS[0].2), |walks| {
            Ok(with(walks).setup(none, CPUS).run()?.nanoseconds())
        })?;
        Ok(with(walks))
    })
}

/// Each row's rate on design points.
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
    let root = Row {
        name: "all in root".to_owned(),
        published: Some(ROOT),
        predicted: Interval { median: ROOT, low: ROOT, high: ROOT },
        calibration: true,
    };
    let rows = ROWS.iter().enumerate().map(|(row, &(name, _, published))| Row {
        name: name.to_owned(),
        published: Some(published),
        predicted: Interval::of(rates.iter().map(|rate| rate[row]).collect()),
        calibration: row == 0,
    });
    Ok(Experiment {
        name: "page-counter-layout",
        unit: "Mbit/s",
        machine: MACHINE,
        rows: [root].into_iter().chain(rows).collect(),
        calibrated_on:
            "the root row (work without charging) and the row without patches (walks a message); \
                        the time between two readers is seed 003's"
                .to_owned(),
        under_determined: UNDER_DETERMINED,
    })
}

const UNDER_DETERMINED: &[&str] = &[
    "the machine: 72 CPUs are taken for two E5-2699 v3",
    "how many walks a message causes, and how a larger batch changes that: half is taken \
     to remain, or up to 70 %; a count of page_counter_try_charge calls would say",
    "where the counters began in their lines before: anywhere that lets usage and high share one",
];
