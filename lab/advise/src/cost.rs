//! Predicts by simulation what a layout costs the program that uses it.
//!
//! The input is a type's fields at offsets, the [`Uses`] of a profile, a machine and a number of CPUs. The prediction
//! is in nanoseconds an operation: the whole, the waiting by field and by line, and the pairs of a field that is
//! written and a field whose access waits for it. Every figure is a median with a range over the machine's design
//! points, which fill the range of each unknown of the machine evenly. The same question has the same answer, bit for
//! bit.
//!
//! ```
//! use ledgerline_advise::cost::{self, Place, Question};
//! use ledgerline_advise::profile::{Instances, Kind, Phase, Role, WorkBasis};
//! use ledgerline_advise::uses::{Spot, Touch, Uses};
//! use ledgerline_coherence::machine::Machine;
//!
//! let spot = |path: &str, offset| Spot {
//!     path: path.to_owned(), offset, size: 8, divided: false, awaited: true,
//! };
//! let touch = |spot, kind| Touch { spot, kind, times: 1.0 };
//! let phase = Phase {
//!     name: "charge".to_owned(),
//!     times: 1.0,
//!     accesses: vec![touch(0, Kind::Atomic), touch(1, Kind::Load)],
//! };
//! let phases = vec![Phase { name: "check".to_owned(), accesses: vec![touch(1, Kind::Load)], ..phase.clone() }, phase];
//! let uses = Uses {
//!     name: "counter".to_owned(),
//!     instances: Instances::Shared,
//!     spots: vec![spot("usage", 0), spot("parent", 8)],
//!     roles: vec![Role { name: "all".to_owned(), share: 1.0, work_ns: 3000.0, basis: WorkBasis::Stated, phases }],
//!     unknown: Vec::new(),
//!     settled: Vec::new(),
//! };
//! let machine = Machine::built_in("haswell-ep-2699v3").unwrap();
//! let question = Question { machine: &machine, cpus: 72, points: 2 };
//! let today = cost::of(&question, &uses, &Place::of(&uses)).unwrap();
//! assert_eq!((&*today.pairs[0].writer, &*today.pairs[0].victim), ("usage", "parent"));
//! let apart = Place { offsets: vec![0, 128], ..Place::of(&uses) };
//! let apart = cost::of(&question, &uses, &apart).unwrap();
//! assert!(cost::difference(&today, &apart).change.high < 0.0);
//! ```

mod alone;
mod beside;
mod fit;
mod program;
mod run;
mod script;
mod steps;
mod work;

pub use script::{Part, Script, script};

pub use work::{Timed, Work, settle};

pub(crate) use alone::MOST_WAITS;
pub(crate) use run::deal;
pub(crate) use steps::{Fetch, outgrows, parts, passes, share};

use std::collections::{BTreeMap, BTreeSet};

use ledgerline_coherence::experiments::Interval;
use ledgerline_coherence::machine::Machine;
use ledgerline_layout::Error;
use serde::Serialize;

use crate::profile::Row;
use crate::uses::Uses;

/// A question: which machine, how many CPUs, how many design points.
#[derive(Clone, Copy, Debug)]
pub struct Question<'m> {
    /// The machine, with its ranges.
    pub machine: &'m Machine,
    /// CPUs that take part.
    pub cpus: usize,
    /// Design points. Each is one simulation, which takes some hundredth of a second.
    pub points: usize,
}

impl Question<'_> {
    /// Checks that the question has an answer.
    ///
    /// # Errors
    /// If it asks for no point, or for more CPUs than the machine has.
    pub fn check(&self) -> Result<(), Error> {
        if self.points == 0 {
            let error = Error::new("a cost of no design point is asked for");
            return Err(error.advise("ask for 1 or more"));
        }
        let most = self.machine.topology.cpus();
        if self.cpus == 0 || self.cpus > most {
            let (cpus, name) = (self.cpus, &self.machine.name);
            let error = Error::new(format!("{cpus} CPUs are asked for, {name} has 1 to {most}"));
            return Err(error.advise("give fewer, or a larger machine"));
        }
        Ok(())
    }
}

/// The places of the fields and of the objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The offset of each spot of the [`Uses`] from the start of the type.
    pub offsets: Vec<u64>,
    /// Objects begin at multiples of this, a power of two. If it is 128 or more, they begin a pair of lines. If it is
    /// less, the design points take the possible places in turn.
    pub base: u64,
    /// The distances of different CPUs' objects, if they lie in a row.
    pub row: Option<Row>,
}

pub use ledgerline_coherence::layout::PAIR;

/// A smaller difference, as a share of a cost, is below the resolution of a simulation.
pub(crate) const RESOLVED: f64 = 5e-4;

impl Place {
    /// Returns today's place. Objects begin a pair of lines, unless the profile has their place.
    #[must_use]
    pub fn of(uses: &Uses) -> Place {
        let row = uses.instances.row();
        Place { offsets: uses.offsets(), base: row.map_or(PAIR, Row::base), row }
    }

    /// Returns the same place with all addresses of objects at multiples of `base`, if given.
    #[must_use]
    pub fn based(self, base: Option<u64>) -> Place {
        let Some(base) = base else { return self };
        Place { base, row: self.row.map(|row| Row { begins: None, ..row }), ..self }
    }

    /// Returns where in a pair of lines objects begin at one of the design points; of a row, the first object.
    #[must_use]
    pub fn begins(&self, point: usize) -> u64 {
        if let Some(Row { begins: Some(begins), .. }) = self.row {
            return begins % PAIR;
        }
        let step = self.base.clamp(1, PAIR);
        // An odd multiplier visits all of them before any twice.
        (point as u64 * 5) % (PAIR / step) * step
    }
}

/// The cost of a layout.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    /// The time of an operation, averaged over the CPUs.
    pub nanoseconds: Interval,
    /// The part of it that is waiting for lines that other CPUs hold.
    pub waiting: Interval,
    /// By spot, in the order of the [`Uses`].
    pub fields: Vec<FieldCost>,
    /// Pairs of a field that is written and a field that waits for it, the dearest pair first.
    pub pairs: Vec<PairCost>,
    /// The answer of each design point.
    pub points: Vec<Point>,
}

/// The cost of the accesses to a field.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldCost {
    /// Its path.
    pub path: String,
    /// Waiting because other CPUs wrote its line or the line's neighbour, in nanoseconds an operation.
    pub waiting: Interval,
    /// The cost of fetching its line from the second cache, in nanoseconds an operation, if the operation's other work
    /// has filled the first. If a CPU has more objects than its second cache holds, the line comes from the last cache.
    pub fetching: f64,
}

/// The cost of a line.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LineCost {
    /// Its number.
    pub line: u64,
    /// The sum of its fields' waiting.
    #[serde(rename = "waiting_ns")]
    pub waiting: Interval,
    /// The sum of its fields' fetching.
    #[serde(rename = "fetching_ns")]
    pub fetching: f64,
    /// How often an operation moves it from one CPU to another.
    pub transfers: Interval,
}

/// A pair of fields that share a line or a pair of lines, and what it costs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PairCost {
    /// The field whose writing takes the line away.
    pub writer: String,
    /// The field whose access waits for the line.
    pub victim: String,
    /// The waiting, in nanoseconds an operation.
    #[serde(rename = "waiting_ns")]
    pub waiting: Interval,
}

/// The answer of one design point, in nanoseconds an operation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Point {
    /// The whole.
    pub nanoseconds: f64,
    /// Waiting.
    pub waiting: f64,
    /// Waiting, by writer and victim.
    pub pairs: BTreeMap<(usize, usize), f64>,
    /// Transfers of each spot's line an operation, counted at the first spot of the line.
    pub transfers: BTreeMap<usize, f64>,
    /// Fetching, by spot.
    pub fetching: Vec<f64>,
}

/// Predicts the cost of a layout.
///
/// Takes some hundredth of a second for each point. Points run in parallel on the available cores.
///
/// # Errors
/// Like [`Question::check`].
pub fn of(question: &Question<'_>, uses: &Uses, place: &Place) -> Result<Cost, Error> {
    let points = run::points(question, uses, place)?;
    let waiting = |wanted: &dyn Fn(usize, usize) -> bool| {
        over(&points, |point| {
            let pairs = point.pairs.iter().filter(|((writer, victim), _)| wanted(*writer, *victim));
            pairs.map(|(_, waited)| waited).sum()
        })
    };
    let fields: Vec<FieldCost> = (uses.spots.iter().enumerate())
        .map(|(spot, of)| FieldCost {
            path: of.path.clone(),
            waiting: waiting(&|_, victim| victim == spot),
            fetching: over(&points, |point| point.fetching[spot]).median,
        })
        .collect();
    let mut pairs: Vec<PairCost> = points
        .iter()
        .flat_map(|point| point.pairs.keys().copied())
        .collect::<BTreeSet<_>>()
        .into_iter()
        .map(|(writer, victim)| PairCost {
            writer: uses.spots[writer].path.clone(),
            victim: uses.spots[victim].path.clone(),
            waiting: waiting(&|one, other| (one, other) == (writer, victim)),
        })
        .collect();
    pairs.sort_by(|a, b| b.waiting.median.total_cmp(&a.waiting.median));
    Ok(Cost {
        nanoseconds: over(&points, |point| point.nanoseconds),
        waiting: over(&points, |point| point.waiting),
        fields,
        pairs,
        points,
    })
}

/// A figure over all points.
fn over(points: &[Point], of: impl Fn(&Point) -> f64) -> Interval {
    Interval::of(points.iter().map(of).collect())
}

impl Cost {
    /// Returns the costs of lines of `size` bytes, 128 for pairs, counted from the start of the type as if it began a
    /// line. `place` is the one that the cost is of.
    #[must_use]
    pub fn by_lines(&self, place: &Place, size: u64) -> Vec<LineCost> {
        let line = |spot: usize| place.offsets[spot] / size;
        let numbers: BTreeSet<u64> = (0..self.fields.len()).map(line).collect();
        let of = |number: u64| {
            let waited = |point: &Point| {
                let here = point.pairs.iter().filter(|((_, victim), _)| line(*victim) == number);
                here.map(|(_, waited)| waited).sum()
            };
            let moved = |point: &Point| {
                let here = point.transfers.iter().filter(|(spot, _)| line(**spot) == number);
                here.map(|(_, times)| times).sum()
            };
            let here = (0..self.fields.len()).filter(|&spot| line(spot) == number);
            LineCost {
                line: number,
                waiting: over(&self.points, waited),
                fetching: here.map(|spot| self.fields[spot].fetching).sum(),
                transfers: over(&self.points, moved),
            }
        };
        numbers.into_iter().map(of).collect()
    }
}

/// The difference between two layouts.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// New less old, in nanoseconds an operation. Positive if the new layout is dearer.
    pub change: Interval,
    /// The same as a share of the old cost, in per cent.
    pub percent: Interval,
    /// The change of throughput, in per cent. Negative if the new layout is slower.
    pub throughput: Interval,
}

impl Difference {
    /// Returns whether the sign is certain: the median is beyond the resolution of the simulation, and no point is
    /// beyond it on the other side. Some points may have no change, because a program may hide all of its waiting.
    #[must_use]
    pub fn is_sure(&self) -> bool {
        let Interval { median, low, high } = self.percent;
        let resolved = 100.0 * RESOLVED;
        (median > resolved && low > -resolved) || (median < -resolved && high < resolved)
    }

    /// Returns whether the new layout is certainly cheaper.
    pub(crate) fn is_gain(&self) -> bool {
        self.is_sure() && self.change.median < 0.0
    }
}

/// Returns the cost of `new` less that of `old`. The difference is taken at each design point, so that unknowns of the
/// machine that both have in common do not blur it.
///
/// Both must answer the same question.
///
/// # Panics
/// If they have different numbers of points.
#[must_use]
pub fn difference(old: &Cost, new: &Cost) -> Difference {
    assert_eq!(old.points.len(), new.points.len(), "both answer one question");
    let of = |change: &dyn Fn(f64, f64) -> f64| {
        let both = old.points.iter().zip(&new.points);
        Interval::of(both.map(|(old, new)| change(old.nanoseconds, new.nanoseconds)).collect())
    };
    Difference {
        change: of(&|old, new| new - old),
        percent: of(&|old, new| 100.0 * (new / old - 1.0)),
        throughput: of(&|old, new| 100.0 * (old / new - 1.0)),
    }
}
