//! The source documents' experiments: published figures, and the simulator's predictions.
//!
//! The sources decide which CPU reads and writes which line. Figures that the sources do not give are calibrated on
//! rows marked as such, and everything else is predicted. A prediction is a median and a range over the points of
//! [`crate::machine::Machine::design`], each of which is calibrated by itself.

mod each;
pub mod memcg_layout;
pub mod numa_threshold;
pub mod ours;
pub mod page_counter_layout;
pub mod page_counter_lockless;
pub mod study;

pub use self::each::{each, evenly};
use crate::machine::{Machine, Settings};
use crate::simulate::Error;
use serde::Serialize;

/// The median, the smallest and the largest result of several simulations.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// The median.
    pub median: f64,
    /// The smallest.
    pub low: f64,
    /// The largest.
    pub high: f64,
}

impl Interval {
    /// Returns the interval of one value or more.
    ///
    /// # Panics
    /// If there is no value.
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

    /// Returns whether a value lies within the interval.
    #[must_use]
    pub fn holds(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }
}

/// One variant of an experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The name that the document gives it.
    pub name: String,
    /// The document's figure; `None` if it has only words.
    pub published: Option<f64>,
    /// The document's words, if it has no figure.
    pub words: Option<&'static str>,
    /// The simulator's prediction.
    pub predicted: Interval,
    /// The basis of the predicted figure.
    pub basis: Basis,
    /// The throughput of all CPUs, if the document has such a column.
    pub throughput: Option<Throughput>,
}

impl Row {
    /// Returns a row without a published throughput.
    fn new(name: &str, published: Option<f64>, predicted: Interval, basis: Basis) -> Row {
        let name = name.to_owned();
        Row { name, published, words: None, predicted, basis, throughput: None }
    }
}

/// The basis of a row's predicted figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// No part of the row: the figure is a prediction.
    Prediction,
    /// The row itself. A figure of the model was fitted to its published value.
    Calibrated,
    /// Another row's published value. The figure equals it to within the repeatability of a row.
    Floor,
    /// The row's definition: the others are changes against it.
    Base,
}

impl Basis {
    /// Returns whether the figure could have come out different from the published one.
    #[must_use]
    pub fn predicts(self) -> bool {
        self == Basis::Prediction
    }
}

/// Operations a second of all CPUs together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Throughput {
    /// The document's figure.
    pub published: f64,
    /// The figure that follows from the predicted cost of an operation at the machine's clock.
    pub predicted: Interval,
}

/// A document's experiment, predicted.
#[derive(Clone, Debug, PartialEq)]
pub struct Experiment {
    /// The experiment's name.
    pub name: &'static str,
    /// The unit of the published and the predicted figures.
    pub unit: &'static str,
    /// The machine file that it was simulated on.
    pub machine: &'static str,
    /// The rows, in the document's order.
    pub rows: Vec<Row>,
    /// The fitted figures, and the row that each was fitted on.
    pub calibrated_on: String,
    /// The largest difference between two simulations of one variant, in the rows' unit, if the document has rows in
    /// words. A smaller difference between rows is not resolved.
    pub resolves: Option<f64>,
    /// The figures that the document does not give, and the measurement that would decide each.
    pub under_determined: &'static [&'static str],
}

/// Finds the argument between two at which a rising function reaches `target`, to a thousandth of their distance.
///
/// If the function never reaches it, the result is the nearer of the two.
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

/// The row of `numa-threshold` (Linux commit 1d90ca897cb0) on which the time between two readers is fitted for every
/// other document. It is the threshold that systems had.
pub const FITTED_ON: u32 = 125;

/// Returns the design points of a document's machine with the one fitted figure that all documents share.
pub(crate) fn shared_points(machine: &str, points: usize) -> Result<Vec<Settings>, Error> {
    let fitted = numa_threshold::fitted(FITTED_ON, points)?;
    let design = built_in(machine).design(points).into_iter().zip(fitted);
    Ok(design.map(|(point, fit)| Settings { read_service: fit.read_service, ..point }).collect())
}

/// Returns a document's machine.
fn built_in(machine: &str) -> Machine {
    Machine::built_in(machine).expect("it comes with the crate")
}

/// Numbers that fill 0 to 1 evenly, and are not those of the design.
pub(crate) fn even(index: usize) -> f64 {
    // Multiples of the golden ratio's fraction never fall together.
    (index as f64 * 0.618_033_988_749_894_9 + 0.5).fract()
}
