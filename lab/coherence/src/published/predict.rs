//! Simulates both layouts of a case at points that fill the machine's ranges and the case's together.

use super::program::{Assumed, setup};
use super::{Case, Row, Work};
use crate::experiments::{Interval, calibrate, each, evenly};
use crate::machine::{Range, Settings};
use crate::simulate::Error;

/// Operations that are counted, of all CPUs together and of each at least. A fit counts fewer of all.
const OPERATIONS: f64 = 12_000.0;
const OPERATIONS_TO_FIT: f64 = 3_000.0;
const OPERATIONS_EACH: f64 = 60.0;
/// The shortest and the longest simulated window, in nanoseconds.
const WINDOW_NS: [f64; 2] = [50_000.0, 5e7];
/// The most that the layout before may take without any work, as a multiple of the published time. Beyond it the
/// published figure was not reached.
const REACHED: f64 = 1.05;

/// A published row with its prediction.
#[derive(Clone, Debug)]
pub struct Predicted {
    /// The number of CPUs that took part.
    pub cpus: usize,
    /// The published change of throughput in per cent.
    pub published: f64,
    /// The predicted change of throughput in per cent.
    pub predicted: Interval,
    /// The error of the published change by the source, in per cent.
    pub within: f64,
    /// The share of the points whose change has the published sign.
    pub agreeing: f64,
    /// The share of the points at which the layout before can be as fast as published. The others count only if there
    /// are no such points.
    pub reached: f64,
}

impl Predicted {
    /// Returns whether the predicted median has the sign of the published change.
    #[must_use]
    pub fn right_sign(&self) -> bool {
        self.predicted.median * self.published > 0.0
    }

    /// Returns whether the published change, within the source's error, lies in the predicted interval, and the
    /// layout before can be as fast as published at half of the points.
    #[must_use]
    pub fn inside(&self) -> bool {
        let Interval { low, high, .. } = self.predicted;
        let held = low <= self.published + self.within && self.published - self.within <= high;
        held && self.reached >= 0.5
    }
}

impl Case {
    /// Predicts each row over `points` points.
    ///
    /// # Errors
    /// When the simulation refuses the case, for instance since it has more CPUs than its machine. A built-in case
    /// gives no error.
    pub fn predict(&self, points: usize) -> Result<Vec<Predicted>, Error> {
        if points == 0 {
            return Err(Error::Setup("no design points; one is the least".to_owned()));
        }
        let points = self.points(points);
        // The work is fitted once a point, on the first row.
        let fitted = each(&points, |_, point| self.fit(&self.rows[0], point))?;
        let able: Vec<&Assumed> =
            fitted.iter().filter(|(_, reached)| *reached).map(|(point, _)| point).collect();
        let reached = able.len() as f64 / fitted.len() as f64;
        let all = fitted.iter().map(|(point, _)| point);
        let points = if able.is_empty() { all.collect() } else { able };
        let rows = self.rows.iter().map(|row| {
            let changes = each(&points, |_, point| self.change(row, point))?;
            let agree = changes.iter().filter(|change| *change * row.change > 0.0).count();
            Ok(Predicted {
                cpus: row.cpus,
                published: row.change,
                within: row.within,
                agreeing: agree as f64 / changes.len() as f64,
                predicted: Interval::of(changes),
                reached,
            })
        });
        rows.collect()
    }

    /// Returns points that fill the machine's ranges and the case's evenly. They are the same every time.
    fn points(&self, count: usize) -> Vec<Assumed> {
        let design = self.machine.design(count).into_iter().enumerate();
        let point = |(index, settings)| {
            self.assumed(settings, |dimension, range| range.at(evenly(index, dimension)))
        };
        design.map(point).collect()
    }

    /// Returns the best guess of every figure.
    pub(super) fn best(&self) -> Assumed {
        self.assumed(self.machine.best(), |_, range| range.best)
    }

    /// Returns the choice from each of the case's ranges by its dimension: the work, then the unknowns.
    fn assumed(&self, settings: Settings, choose: impl Fn(usize, &Range) -> f64) -> Assumed {
        let work_ns = match &self.work {
            Work::Unknown(range) => choose(0, range),
            Work::Fitted(_) => 0.0,
        };
        let unknowns = self.unknowns.iter().zip(1..);
        let unknowns = unknowns.map(|((_, range), dimension)| choose(dimension, range)).collect();
        Assumed { settings, work_ns, unknowns }
    }

    /// Chooses the work so that the layout before takes the published time, and returns whether there is such work.
    pub(super) fn fit(&self, row: &Row, point: &Assumed) -> Result<(Assumed, bool), Error> {
        let (Work::Fitted(_), Some(target)) = (&self.work, row.before_ns) else {
            return Ok((point.clone(), true));
        };
        let took = |work_ns| {
            let point = Assumed { work_ns, ..point.clone() };
            self.nanoseconds(0, row, &point, OPERATIONS_TO_FIT)
        };
        let work_ns = calibrate(0.0, target, target, took)?;
        let reached = took(work_ns)? < REACHED * target;
        Ok((Assumed { work_ns, ..point.clone() }, reached))
    }

    /// Returns the change of throughput from the layout before to the one after, in per cent.
    pub(super) fn change(&self, row: &Row, assumed: &Assumed) -> Result<f64, Error> {
        let [before, after] = [0, 1].map(|side| self.nanoseconds(side, row, assumed, OPERATIONS));
        Ok(100.0 * (before? / after? - 1.0))
    }

    /// Returns the nanoseconds of a CPU for an operation, over about `operations` operations.
    fn nanoseconds(
        &self,
        side: usize,
        row: &Row,
        assumed: &Assumed,
        operations: f64,
    ) -> Result<f64, Error> {
        // Contended operations take longer than this, and then there are fewer of them.
        let least = row.before_ns.unwrap_or(assumed.work_ns).max(100.0);
        let each = OPERATIONS_EACH.max(operations / row.cpus as f64);
        let length = (each * least).clamp(WINDOW_NS[0], WINDOW_NS[1]);
        let setup = setup(self, side, row.cpus, assumed).during(0.2 * length, 1.2 * length);
        Ok(setup.run()?.nanoseconds())
    }
}
