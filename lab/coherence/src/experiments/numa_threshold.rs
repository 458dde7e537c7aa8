//! Linux commit 1d90ca897cb0, "mm: update NUMA counter threshold size", and the mail of its series: the cost of an
//! allocation by the threshold of the per-CPU NUMA counters.
//!
//! The structure is that of the mail and of the tree that it patches. An allocation reads its zone's free pages for
//! the watermark check, and counts `numa_hit` and `numa_local` in its CPU's differences. Both overstep together,
//! once in 1.5 thresholds and one, because an overstep leaves minus half a threshold behind. Then the allocation
//! adds to each counter of the zone and of the whole machine. The free-page count lies on the line of the zone's
//! NUMA counters, or beside it, so each overstep takes that line from all CPUs that allocate there.

use super::{Basis, Experiment, Interval, Row, Throughput, calibrate, each};
use crate::layout::{FieldId, Layout, Scope};
use crate::machine::Settings;
use crate::program::{Program, Step};
use crate::simulate::{Error, Setup};

/// Cycles of the allocation alone, which is the row without statistics.
pub const BARE: f64 = 342.0;
/// Cycles with signed differences of 8 or 16 bits, when nothing oversteps.
pub const SIGNED: f64 = 394.0;
/// Cycles with the differences that the series ends with: unsigned ones of 16 bits.
pub const UNSIGNED: f64 = 369.0;

/// The ten rows: the threshold (`None` where there are no statistics), the floor of that variant, published cycles, and
/// published allocations a second of all CPUs together.
///
/// A floor is a published value as well: that of a row without overflows, which therefore predicts nothing.
/// Allocations a second add nothing to the cycles: the machine's clock, which the mail does not give, was computed
/// from the two.
pub const ROWS: [(Option<u32>, f64, f64, f64); 10] = [
    (Some(32), SIGNED, 799.0, 241_760_478.0),
    (Some(64), SIGNED, 640.0, 301_628_829.0),
    (Some(125), SIGNED, 537.0, 358_906_028.0),
    (Some(256), SIGNED, 468.0, 412_397_590.0),
    (Some(512), SIGNED, 428.0, 450_550_704.0),
    (Some(4096), SIGNED, 399.0, 482_520_943.0),
    (Some(20_000), SIGNED, 394.0, 489_009_617.0),
    (Some(30_000), SIGNED, 395.0, 488_017_817.0),
    (Some(65_533), UNSIGNED, 369.0, 521_661_345.0),
    (None, BARE, 342.0, 562_900_157.0),
];

/// The machine file.
pub const MACHINE: &str = "broadwell-2x22";
/// The number of CPUs of the machine in the mail.
pub const CPUS: usize = 88;

/// Returns the setup of an allocation and its freeing at a threshold. They take `floor` cycles when nothing
/// oversteps.
#[must_use]
pub fn setup(settings: Settings, threshold: u32, floor: f64, cpus: usize) -> Setup {
    let mut layout = Layout::new();
    let zone = layout.object("zone", Scope::Socket);
    let free = layout.field(zone, "nr_free_pages", 0);
    let hit = layout.field(zone, "numa_hit", 16);
    let local = layout.field(zone, "numa_local", 48);
    let all = layout.object("vm_numa_stat", Scope::Machine);
    let all_hit = layout.field(all, "numa_hit", 0);
    let all_local = layout.field(all, "numa_local", 32);
    let own = layout.object("per_cpu_pageset", Scope::Cpu);
    let pages = layout.field(own, "count", 0);
    let differences = layout.field(own, "vm_numa_stat_diff", 64);
    // Both counters overstep in the same allocation: they go from minus half a threshold to one beyond it.
    let period = threshold / 2 + threshold + 1;
    let counting = [
        Step::load(differences),
        Step::store(differences),
        Step::store(differences),
        Step::every(period, [hit, all_hit, local, all_local].map(Step::rmw)),
    ];
    let program = allocation(&settings, floor, [free, pages], counting);
    // The window holds a whole round of every CPU's counters, so that each oversteps as often as it should. If
    // a round is longer than that, oversteps cost less than a cycle an operation anyway.
    let round = f64::from(period) * floor / settings.clock_ghz;
    let length = if round < 1_500_000.0 { round.max(150_000.0) } else { 150_000.0 };
    Setup::uniform(settings, layout, program, cpus).during(0.25 * length, 1.25 * length)
}

/// Returns an allocation and its freeing, which read the free pages, change the CPU's own pages, and count in
/// between. They take `floor` cycles when nothing oversteps.
pub(super) fn allocation(
    settings: &Settings,
    floor: f64,
    [free, pages]: [FieldId; 2],
    counting: impl IntoIterator<Item = Step>,
) -> Program {
    // The floor includes the cost of the accesses when they hit.
    let work = floor - 4.0 * settings.in_cycles(settings.first_cache as f64) - 7.0;
    let change = || [Step::load(pages), Step::store(pages)];
    let steps = [Step::compute(work / 2.0), Step::load_overlapping(free)].into_iter();
    let steps = steps.chain(change()).chain(counting).chain([Step::compute(work / 2.0)]);
    Program::new("allocate and free a page", steps.chain(change()).chain(change()))
}

/// Fits the nanoseconds between two readers of a line, for each design point of the mail's machine, so that the row
/// of threshold `row` comes out as published.
///
/// This is the one fitted figure; the other documents' predictions reuse it.
///
/// # Errors
/// If the document does not have the threshold.
pub fn fitted(row: u32, points: usize) -> Result<Vec<Settings>, Error> {
    let (_, floor, published, _) = *ROWS
        .iter()
        .find(|(threshold, ..)| *threshold == Some(row))
        .ok_or_else(|| Error::Setup(format!("the document has no row for threshold {row}")))?;
    each(&super::built_in(MACHINE).design(points), |index, point| {
        let published = published * repeatability(3 * index);
        let floor = floor * repeatability(3 * index + 1);
        let with = |ns: f64| Settings { read_service: (ns * 1000.0) as u64, ..point.clone() };
        let service = calibrate(0.0, 80.0, published, |ns| {
            Ok(setup(with(ns), row, floor, CPUS).run()?.cycles())
        })?;
        Ok(with(service))
    })
}

/// Predicts the ten rows on design points that were [`fitted`] on the row of one threshold. It takes some 0.3 seconds a
/// point.
///
/// # Errors
/// None for points that were fitted.
pub fn table(row: u32, settings: &[Settings]) -> Result<Experiment, Error> {
    let clock = settings.first().map_or(f64::NAN, |point| point.clock_ghz);
    let rows = ROWS
        .iter()
        .map(|&(threshold, floor, published, throughput)| {
            let cycles = each(settings, |index, point| match threshold {
                Some(threshold) => {
                    // The floors are rows as well, and repeat no better than the others.
                    let floor = floor * repeatability(3 * index + 1);
                    let outcome = setup(point.clone(), threshold, floor, CPUS).run()?;
                    Ok(outcome.cycles() * repeatability(3 * index + 2))
                }
                None => Ok(floor),
            })?;
            let rates = cycles.iter().map(|cycles| CPUS as f64 * clock * 1e9 / cycles).collect();
            let name = threshold.map_or("none".to_owned(), |threshold| threshold.to_string());
            let basis = basis(threshold == Some(row), floor, published);
            let throughput = Throughput { published: throughput, predicted: Interval::of(rates) };
            let row = Row::new(&name, Some(published), Interval::of(cycles), basis);
            Ok(Row { throughput: Some(throughput), ..row })
        })
        .collect::<Result<Vec<Row>, Error>>()?;
    Ok(Experiment {
        name: "numa-threshold",
        unit: "cycles",
        machine: MACHINE,
        rows,
        calibrated_on: format!(
            "the row of threshold {row} (time between two readers of a line); floors: the rows none, 65533 and \
             20000, which have no overflows (342, 369, 394 cycles); 4096 and 30000 are the last floor within \
             what a row repeats"
        ),
        resolves: None,
        under_determined: UNDER_DETERMINED,
    })
}

/// Returns the basis of a row's figure. If the published value is the floor, the basis is that floor. If it exceeds
/// the floor by less than the repeatability of rows, the simulation adds nothing to the floor.
fn basis(fitted: bool, floor: f64, published: f64) -> Basis {
    if fitted || published == floor {
        Basis::Calibrated
    } else if published < floor * (1.0 + REPEATS) {
        Basis::Floor
    } else {
        Basis::Prediction
    }
}

/// The relative error that a published figure may have.
const REPEATS: f64 = 0.015;

/// Returns the relative error that a published figure may have. The mail repeats no row. Rows that should be equal
/// (20 000 and 30 000) differ by 0.3 %, and neighbours in the table lie within 1 % of a smooth curve. So the
/// tolerance of each figure is 1.5 times that.
pub(super) fn repeatability(index: usize) -> f64 {
    1.0 + REPEATS * (2.0 * super::even(index) - 1.0)
}

const UNDER_DETERMINED: &[&str] = &[
    "whether the free pages share the counters' line (CONFIG_CMA) or lie on its neighbour: the same here",
    "how much of the reader's wait the core hides: the range of `overlap`",
    "how far a row repeats: 1.5 % is assumed; a second run of the table would say",
];
