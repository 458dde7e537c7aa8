//! Linux commit 3e32cb2e0a12, "mm: memcontrol: lockless page counters": page counters without locks, against the
//! spinlocked 64-bit counters before.
//!
//! The structure is that of the commit and Linux 3.18. Each CPU faults pages in a group of its own (288 groups on
//! 144 CPUs). Once in 32 faults it fills its stock from the counters: the group's own and the root's, which all CPUs
//! share. Before the commit each counter was changed under its spinlock; after it, by one atomic addition. The
//! document does not say how many such visits 32 faults cause (charge and uncharge, memory and memory with swap),
//! and the cost rises steeply with that number, because of the lock's queue. So the prediction is a range over that
//! number, and no point.

use super::{Basis, Experiment, Interval, Row, calibrate, each, shared_points};
use crate::layout::{Layout, Scope};
use crate::machine::Settings;
use crate::program::{Lock, Program, Step};
use crate::simulate::{Error, Setup};

/// Cycles of a fault with locks: the run's cycles over its page faults.
pub const LOCKED: f64 = 50_134_994_088_218.0 / 1_843_305_768.0;
/// Cycles of a fault without locks.
pub const LOCKLESS: f64 = 32_811_216_801_141.0 / 1_843_304_774.0;
/// The machine file.
pub const MACHINE: &str = "four-socket-144";
/// The number of CPUs of the machine in the commit.
pub const CPUS: usize = 144;
/// The numbers of visits to the counters that 32 faults may cause.
pub const VISITS: [u32; 4] = [1, 2, 3, 4];

/// Returns the setup of a fault on CPUs that visit the counters `visits` times in 32 faults.
#[must_use]
pub fn setup(
    settings: Settings,
    locked: bool,
    visits: u32,
    work_cycles: f64,
    cpus: usize,
) -> Setup {
    let mut layout = Layout::new();
    let mut counter = |name, scope| {
        let object = layout.object(name, scope);
        let usage = layout.field(object, "usage", 0);
        let limit = layout.field(object, "limit", 16);
        let next = layout.field(object, "lock.next", 40);
        let serving = layout.field(object, "lock.serving", 42);
        (usage, limit, Lock::Ticket { next, serving })
    };
    let counters = [counter("group", Scope::Groups(288)), counter("root", Scope::Machine)];
    let mut visit = Vec::new();
    for (usage, limit, lock) in counters {
        if locked {
            visit.extend([Step::Acquire(lock), Step::load(limit), Step::load(usage)]);
            visit.extend([Step::store(usage), Step::Release(lock)]);
        } else {
            visit.extend([Step::rmw(usage), Step::load(limit)]);
        }
    }
    let steps = [Step::compute(work_cycles), Step::chance(f64::from(visits) / 32.0, visit)];
    Setup::uniform(settings, layout, Program::new("fault", steps), cpus)
        .during(500_000.0, 3_000_000.0)
}

/// A design point with the figures fitted on the row without locks.
#[derive(Clone, Debug)]
pub struct Point {
    /// The machine, with one value chosen from every range.
    pub settings: Settings,
    /// Cycles of a fault beside its visits, for each of [`VISITS`].
    pub work: [f64; VISITS.len()],
}

/// Makes `count` design points. A fault's other work is calibrated on the row without locks.
///
/// # Errors
/// None for a count that is not zero.
pub fn points(count: usize) -> Result<Vec<Point>, Error> {
    each(&shared_points(MACHINE, count)?, |_, settings| {
        let mut work = [0.0; VISITS.len()];
        for (work, visits) in work.iter_mut().zip(VISITS) {
            *work = calibrate(0.5 * LOCKLESS, LOCKLESS, LOCKLESS, |work| {
                Ok(setup(settings.clone(), false, visits, work, CPUS).run()?.cycles())
            })?;
        }
        Ok(Point { settings: settings.clone(), work })
    })
}

/// Returns the name of the row of a number of visits.
#[must_use]
pub fn locked(visits: u32) -> String {
    format!("locked, {visits} visit{} in 32 faults", if visits == 1 { "" } else { "s" })
}

/// Predicts the cycles of a fault with locks, for each number of visits, on these design points. It takes some seconds a
/// point.
///
/// # Errors
/// None for points from [`points`].
pub fn table(points: &[Point]) -> Result<Experiment, Error> {
    let exactly = Interval::of(vec![LOCKLESS]);
    let lockless = Row::new("lockless", Some(LOCKLESS), exactly, Basis::Calibrated);
    let cycles = (VISITS.into_iter().enumerate())
        .map(|(which, visits)| {
            each(points, |_, point| {
                let work = point.work[which];
                Ok(setup(point.settings.clone(), true, visits, work, CPUS).run()?.cycles())
            })
        })
        .collect::<Result<Vec<Vec<f64>>, Error>>()?;
    let row = |name: &str, published, cycles| {
        Row::new(name, published, Interval::of(cycles), Basis::Prediction)
    };
    let all = row("locked, 1 to 4 visits in 32 faults", Some(LOCKED), cycles.concat());
    let rows = VISITS.into_iter().zip(cycles);
    let rows = rows.map(|(visits, cycles)| row(&locked(visits), None, cycles));
    Ok(Experiment {
        name: "page-counter-lockless",
        unit: "cycles",
        machine: MACHINE,
        rows: [lockless, all].into_iter().chain(rows).collect(),
        calibrated_on:
            "the row without locks (work of a fault); the time between two readers is that of numa-threshold"
                .to_owned(),
        resolves: None,
        under_determined: UNDER_DETERMINED,
    })
}

const UNDER_DETERMINED: &[&str] = &[
    "visits to the counters in 32 faults: 1 to 4; a count of res_counter_charge calls would pin it down",
    "the machine's latencies: inferred from its two-socket sibling; a few per cent move the cliff by tens",
];
