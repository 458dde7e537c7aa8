//! What a layout costs the program that uses it, by simulation.
//!
//! From a type's fields at offsets, the [`Uses`] of a profile, a machine and a number of CPUs it predicts nanoseconds
//! an operation: the whole, the waiting by field and by line, and which field's writing makes which field's access
//! wait. Every figure is a median with a range over the machine's design points (they fill evenly what no source says
//! of the machine). The same question has the same answer, bit for bit.
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
    /// Whether it has an answer.
    ///
    /// # Errors
    /// When no point is asked for, or more CPUs than the machine has.
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

/// Where the fields lie, and where objects begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Of each spot of the [`Uses`], from the start of the type.
    pub offsets: Vec<u64>,
    /// Objects begin at multiples of this, a power of two. From 128 on they begin a pair of lines. Below, the design
    /// points take the possible places in turn.
    pub base: u64,
    /// How objects of different CPUs lie, where they lie in a row.
    pub row: Option<Row>,
}

pub use ledgerline_coherence::layout::PAIR;

/// A difference below this share of a cost is below what a simulation resolves.
pub(crate) const RESOLVED: f64 = 5e-4;

impl Place {
    /// Today's, of objects that begin a pair of lines, if the profile does not say otherwise.
    #[must_use]
    pub fn of(uses: &Uses) -> Place {
        let row = uses.instances.row();
        Place { offsets: uses.offsets(), base: row.map_or(PAIR, Row::base), row }
    }

    /// The same of objects whose addresses are all multiples of `base`, if somebody says so.
    #[must_use]
    pub fn based(self, base: Option<u64>) -> Place {
        let Some(base) = base else { return self };
        Place { base, row: self.row.map(|row| Row { begins: None, ..row }), ..self }
    }

    /// Where in a pair objects begin (of a row, the first) at one of the design points.
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

/// What a layout costs.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    /// The time of an operation, averaged over the CPUs.
    pub nanoseconds: Interval,
    /// The part of it that is waiting for lines that others hold.
    pub waiting: Interval,
    /// By spot, in the order of the [`Uses`].
    pub fields: Vec<FieldCost>,
    /// Which field makes which other wait, the dearest pair first.
    pub pairs: Vec<PairCost>,
    /// The same, point by point.
    pub points: Vec<Point>,
}

/// What the accesses to a field cost.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldCost {
    /// Its path.
    pub path: String,
    /// Waiting because others wrote its line or the line's neighbour, in nanoseconds an operation.
    pub waiting: Interval,
    /// What it costs to fetch its line from the second cache, in nanoseconds an operation, since the operation's other
    /// work has filled the first; from the last cache, where a CPU has more objects than its second cache holds.
    pub fetching: f64,
}

/// What a line costs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LineCost {
    /// Which.
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
    /// How long, in nanoseconds an operation.
    #[serde(rename = "waiting_ns")]
    pub waiting: Interval,
}

/// One design point's answer, in nanoseconds an operation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Point {
    /// All of it.
    pub nanoseconds: f64,
    /// Waiting.
    pub waiting: f64,
    /// Waiting, by writer and victim.
    pub pairs: BTreeMap<(usize, usize), f64>,
    /// Transfers of each spot's line an operation, put down to the first spot of the line.
    pub transfers: BTreeMap<usize, f64>,
    /// Fetching, by spot.
    pub fetching: Vec<f64>,
}

/// What a layout costs.
///
/// Takes some hundredth of a second for each point. Points run at once on the cores there are.
///
/// # Errors
/// As [`Question::check`].
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
    /// What lines of `size` bytes cost, 128 for pairs, counted from the start of the type as if it began a line; `place` is
    /// the one that the cost is of.
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

/// What another layout changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// New less old, in nanoseconds an operation: above zero it became dearer.
    pub change: Interval,
    /// The same as a share of the old cost, in per cent.
    pub percent: Interval,
    /// The same of throughput, in per cent: below zero it became slower.
    pub throughput: Interval,
}

impl Difference {
    /// Whether the sign is sure: more is changed in the middle than the simulation resolves, and nowhere the other way.
    /// (Somewhere nothing may change, where a program hides all of its waiting.)
    #[must_use]
    pub fn is_sure(&self) -> bool {
        let Interval { median, low, high } = self.percent;
        let resolved = 100.0 * RESOLVED;
        (median > resolved && low > -resolved) || (median < -resolved && high < resolved)
    }

    /// Whether the new layout is cheaper for sure.
    pub(crate) fn is_gain(&self) -> bool {
        self.is_sure() && self.change.median < 0.0
    }
}

/// What `new` costs beyond `old`. The difference is taken at each design point, so that what is unknown about the
/// machine, and common to both, does not blur it.
///
/// Both must be answers to one question.
///
/// # Panics
/// When they are of different numbers of points.
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
