//! The report against Linux commit e27be240df53, "mm: memcg: make sure memory.events is uptodate when waking
//! pollers": `struct mem_cgroup` before and after its fields moved by 32 bytes, and the repairs tried.
//!
//! The structure is that of the mail and Linux 4.16. All pages belong to the root group. A fault reads `stat_cpu`
//! to count itself. Mapping the page reads `moving_account`, `stat_cpu` and `move_lock_task`, and so does unmapping
//! it. Each CPU's difference of mapped pages goes to `stat[13]` once in 33 changes, and its difference of faults to
//! `events[PGFAULT]` once in 33. Offsets are those of the mail.

use super::{Basis, Experiment, Interval, Row, each, even, shared_points};
use crate::layout::{Layout, Scope};
use crate::machine::Settings;
use crate::program::{Program, Step};
use crate::simulate::{Error, Setup};

/// The offsets in bytes of the five fields that an operation touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offsets {
    /// `lock_page_memcg` reads this.
    pub moving_account: u64,
    /// `unlock_page_memcg` reads this.
    pub move_lock_task: u64,
    /// Every counted event reads this.
    pub stat_cpu: u64,
    /// `stat[0]`; the first element that is written is `stat[13]`, NR_FILE_MAPPED.
    pub stat: u64,
}

/// The layout before the commit, with which the others are compared.
pub const GOOD: Offsets =
    Offsets { moving_account: 720, move_lock_task: 728, stat_cpu: 744, stat: 752 };

/// The variants, each with its name, its offsets, the published change of throughput in per cent, and the words of
/// the mail if it has no figure.
pub const VARIANTS: [(&str, Offsets, Option<f64>, Option<&str>); 5] = [
    ("before", GOOD, Some(0.0), None),
    (
        "after",
        Offsets { moving_account: 752, move_lock_task: 760, stat_cpu: 776, stat: 784 },
        Some(-27.2),
        None,
    ),
    // The array lies behind the statistics, so the offsets are those of `before`.
    ("memory_events moved", GOOD, None, Some("the performance will restore")),
    // Eight bytes more lie before `stat`, so `stat[13]` leaves the pair of lines.
    (
        "moving_account beside stat_cpu",
        Offsets { move_lock_task: 760, moving_account: 776, stat_cpu: 784, stat: 792 },
        None,
        Some("the performance restored a lot but still not as good as base"),
    ),
    (
        "three fields on a padded line",
        Offsets { moving_account: 768, move_lock_task: 776, stat_cpu: 784, stat: 832 },
        None,
        Some(
            "as long as [the three] being placed in the same cacheline, the performance will restore",
        ),
    ),
];

/// The machine file.
pub const MACHINE: &str = "haswell-ep-2699v3";
/// The number of CPUs of the machine in the mail.
pub const CPUS: usize = 72;

/// The time of an operation beside the fields, in nanoseconds. It is a range, since the mail has no absolute figure.
const BASE_NS: [f64; 2] = [1_000.0, 2_500.0];

/// Returns the setup of a fault and the unmapping of its page.
#[must_use]
pub fn setup(settings: Settings, offsets: Offsets, base_ns: f64, cpus: usize) -> Setup {
    const BATCH: u32 = 33;
    let mut layout = Layout::new();
    let memcg = layout.object("mem_cgroup", Scope::Machine);
    let moving_account = layout.field(memcg, "moving_account", offsets.moving_account);
    let move_lock_task = layout.field(memcg, "move_lock_task", offsets.move_lock_task);
    let stat_cpu = layout.field(memcg, "stat_cpu", offsets.stat_cpu);
    let mapped = layout.field(memcg, "stat[NR_FILE_MAPPED]", offsets.stat + 13 * 8);
    let faults = layout.field(memcg, "events[PGFAULT]", offsets.stat + 34 * 8 + 20 * 8);
    let work = base_ns * settings.clock_ghz;
    let count = |share| {
        [
            Step::compute(work * share),
            // The core goes on while the value is compared and branched on. Work that depends on `stat_cpu` waits.
            Step::load_overlapping(moving_account),
            Step::load(stat_cpu),
            Step::every(BATCH, [Step::rmw(mapped)]),
            Step::load_overlapping(move_lock_task),
        ]
    };
    let fault =
        [Step::compute(work * 0.2), Step::load(stat_cpu), Step::every(BATCH, [Step::rmw(faults)])];
    let steps = fault.into_iter().chain(count(0.4)).chain(count(0.4));
    let program = Program::new("fault and unmap a page", steps).outgrowing_first_cache();
    Setup::uniform(settings, layout, program, cpus).during(30_000.0, 330_000.0)
}

/// A design point with its assumptions about an operation.
#[derive(Clone, Debug)]
pub struct Point {
    /// The machine, with one value chosen from every range.
    pub settings: Settings,
    /// The time of an operation beside the fields, in nanoseconds.
    pub base_ns: f64,
}

/// Makes `count` design points.
///
/// # Errors
/// None for a count that is not zero.
pub fn points(count: usize) -> Result<Vec<Point>, Error> {
    let settings = shared_points(MACHINE, count)?.into_iter().enumerate();
    let base = |index| BASE_NS[0] + (BASE_NS[1] - BASE_NS[0]) * even(index);
    Ok(settings.map(|(index, settings)| Point { settings, base_ns: base(index) }).collect())
}

/// Predicts every variant's change of throughput against `before`, over these design points.
///
/// Nothing is calibrated on this document. The prediction takes some 0.4 seconds a point.
///
/// # Errors
/// None for points from [`points`].
pub fn table(points: &[Point]) -> Result<Experiment, Error> {
    let changes = each(points, |_, point| {
        let cost = |offsets| -> Result<f64, Error> {
            Ok(setup(point.settings.clone(), offsets, point.base_ns, CPUS).run()?.nanoseconds())
        };
        let before = cost(GOOD)?;
        let change = |cost| 100.0 * (before / cost - 1.0);
        let changes = VARIANTS.iter().map(|variant| Ok(change(cost(variant.1)?)));
        // The same layout with other random numbers.
        let setup = setup(point.settings.clone(), GOOD, point.base_ns, CPUS);
        let again = Setup { seed: 2, ..setup }.run()?.nanoseconds();
        Ok((changes.collect::<Result<Vec<f64>, Error>>()?, change(again)))
    })?;
    let resolves = changes.iter().map(|(_, again)| again.abs()).fold(0.0, f64::max);
    let rows = VARIANTS.iter().enumerate().map(|(row, &(name, _, published, words))| {
        let predicted = Interval::of(changes.iter().map(|(change, _)| change[row]).collect());
        // The other rows are changes against the first.
        let basis = if row == 0 { Basis::Base } else { Basis::Prediction };
        Row { words, ..Row::new(name, published, predicted, basis) }
    });
    Ok(Experiment {
        name: "memcg-layout",
        unit: "% of throughput",
        machine: MACHINE,
        rows: rows.collect(),
        calibrated_on:
            "nothing of this document; the time between two readers is that of numa-threshold"
                .to_owned(),
        resolves: Some(resolves),
        under_determined: UNDER_DETERMINED,
    })
}

const UNDER_DETERMINED: &[&str] = &[
    "what an operation takes without contention: 1 000 to 2 500 ns are assumed; operations a second, before \
     and after, would narrow the range most",
    "how often the prefetcher completes a pair: with it off the variants are equal; a run with it switched \
     off would settle the cause",
    "where `moving_account` was put in the second repair: directly before `stat_cpu` is assumed",
];
