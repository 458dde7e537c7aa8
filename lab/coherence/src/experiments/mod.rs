//! The source documents' experiments: what was published, and what the simulator says.
//!
//! Who reads and writes which line is fixed from the sources; what the sources do not give is calibrated on
//! rows that say so, and everything else is predicted. A prediction is a median and a range over the
//! points of [`crate::machine::Machine::design`], each calibrated for itself.

mod each;
pub mod memcg_layout;
pub mod numa_threshold;
pub mod ours;
pub mod page_counter_layout;
pub mod page_counter_lockless;
pub mod study;

pub(crate) use self::each::each;
use crate::machine::{Machine, Settings};
use crate::simulate::Error;

/// What a set of simulations says: its median, smallest and largest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// In the middle.
    pub median: f64,
    /// The least.
    pub low: f64,
    /// The most.
    pub high: f64,
}

impl Interval {
    /// Of one value or more.
    ///
    /// # Panics
    /// Of none.
    #[must_use]
    pub fn of(mut values: Vec<f64>) -> Interval {
        values.sort_unstable_by(f64::total_cmp);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 {
            values[middle]
        } else {
            f64::midpoint(values[middle - 1], values[middle])
        };
        Interval { median, low: values[0], high: values[values.len() - 1] }
    }

    /// Whether a value lies within.
    #[must_use]
    pub fn holds(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }
}

/// One variant of an experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// As the document calls it.
    pub name: String,
    /// What the document says; none where it only says "restored".
    pub published: Option<f64>,
    /// What the simulator says.
    pub predicted: Interval,
    /// Whether the prediction was calibrated on this row, and so says nothing.
    pub calibration: bool,
}

/// A document's experiment, predicted.
#[derive(Clone, Debug, PartialEq)]
pub struct Experiment {
    /// What people call it.
    pub name: &'static str,
    /// Of the published and predicted figures.
    pub unit: &'static str,
    /// The machine file it ran on.
    pub machine: &'static str,
    /// In the document's order.
    pub rows: Vec<Row>,
    /// What was fitted, and to what.
    pub calibrated_on: String,
    /// What the document does not give, and what would pin it down.
    pub under_determined: &'static [&'static str],
}

/// Finds where a rising function reaches `target`, between two arguments, to a thousandth of their distance.
///
/// The nearer end where it never does.
pub(crate) fn calibrate(
    mut low: f64,
    mut high: f64,
    target: f64,
    mut value: impl FnMut(f64) -> Result<f64, Error>,
) -> Result<f64, Error> {
    for _ in 0..10 {
        let middle = f64::midpoint(low, high);
        if value(middle)? < target { low = middle } else { high = middle }
    }
    Ok(f64::midpoint(low, high))
}

/// The row of seed 003 on which the time between two readers is fitted for every other document: the
/// threshold that systems had.
pub const FITTED_ON: u32 = 125;

/// A machine's design points with the one fitted figure, in nanoseconds, that all documents share.
pub(crate) fn shared_points(machine: &Machine, points: usize) -> Result<Vec<Settings>, Error> {
    let broadwell = Machine::built_in(numa_threshold::MACHINE).expect("it comes with the crate");
    let fitted = numa_threshold::fitted(&broadwell, FITTED_ON, points)?;
    let design = machine.design(points).into_iter().zip(fitted);
    Ok(design.map(|(point, fit)| Settings { read_service: fit.read_service, ..point }).collect())
}

/// Numbers that fill 0 to 1 evenly, apart from those of the design.
pub(crate) fn even(index: usize) -> f64 {
    // The golden ratio's fraction: no two of them ever fall together.
    (index as f64 * 0.618_033_988_749_894_9 + 0.5).fract()
}
