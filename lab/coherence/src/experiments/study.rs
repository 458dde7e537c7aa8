//! A document's experiment with everything fitted. It gives the document's table, our own design in it, and other
//! numbers of CPUs.
//!
//! ```
//! use ledgerline_coherence::experiments::{FITTED_ON, study::Study};
//! let study = Study::fit("memcg-layout", 2, FITTED_ON).unwrap();
//! let table = study.table().unwrap();
//! let ours = study.ours().unwrap();
//! assert_eq!(ours.len(), table.rows.len());
//! // On two CPUs of that machine the bad layout costs next to nothing.
//! let few = study.at(2).unwrap();
//! assert!(few.after.median < 1.1 * few.before.median);
//! ```

use super::page_counter_layout::{Patches, message_ns};
use super::{
    Experiment, Interval, each, memcg_layout, numa_threshold, ours, page_counter_layout,
    page_counter_lockless,
};
use crate::machine::Settings;
use crate::simulate::{Error, Setup};

/// The experiments that are simulated, the oldest document first.
pub const NAMES: [&str; 4] =
    ["page-counter-lockless", "numa-threshold", "memcg-layout", "page-counter-layout"];

/// The most CPUs that [`Study::at`] takes.
pub const MOST_CPUS: usize = 1024;

/// An experiment whose design points are fitted.
#[derive(Clone, Debug)]
pub struct Study(Fitted);

#[derive(Clone, Debug)]
enum Fitted {
    Lockless(Vec<page_counter_lockless::Point>),
    Numa(u32, Vec<Settings>),
    Memcg(Vec<memcg_layout::Point>),
    Layout(Vec<page_counter_layout::Point>),
}

/// The design that an operation runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Design {
    Before,
    After,
    Ours,
}

/// The cost of an operation on a number of CPUs, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// The number of CPUs.
    pub cpus: usize,
    /// The number of sockets of the machine.
    pub sockets: usize,
    /// Whether the document's machine had to be grown by whole sockets.
    pub grown: bool,
    /// The cost by the document's older design.
    pub before: Interval,
    /// The cost by its newer design.
    pub after: Interval,
    /// The cost by our design.
    pub ours: Interval,
}

/// The operation and the designs that [`Study::at`] compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Curve {
    /// The operation that a CPU repeats.
    pub operation: &'static str,
    /// The older design.
    pub before: &'static str,
    /// The newer design.
    pub after: &'static str,
    /// Our design.
    pub ours: &'static str,
    /// The document's machine, by the name of its file.
    pub machine: &'static str,
    /// How many CPUs it has, on which the points were fitted.
    pub document_cpus: usize,
}

impl Study {
    /// Fits `points` design points. `row` is the threshold of `numa-threshold` on which the one shared figure is
    /// fitted; the other experiments ignore it and take [`super::FITTED_ON`].
    ///
    /// It takes some tenths of a second a point.
    ///
    /// # Errors
    /// If [`NAMES`] does not have the name, if `points` is zero, or if the document does not have the row.
    pub fn fit(name: &str, points: usize, row: u32) -> Result<Study, Error> {
        if points == 0 {
            return Err(Error::Setup("no design points; one is the least".to_owned()));
        }
        Ok(Study(match name {
            "page-counter-lockless" => Fitted::Lockless(page_counter_lockless::points(points)?),
            "numa-threshold" => Fitted::Numa(row, numa_threshold::fitted(row, points)?),
            "memcg-layout" => Fitted::Memcg(memcg_layout::points(points)?),
            "page-counter-layout" => Fitted::Layout(page_counter_layout::points(points)?),
            other => {
                let names = NAMES.join(", ");
                return Err(Error::Setup(format!("no experiment is called {other}: {names}")));
            }
        }))
    }

    /// Returns the document's rows.
    ///
    /// # Errors
    /// None for a study that was fitted.
    pub fn table(&self) -> Result<Experiment, Error> {
        match &self.0 {
            Fitted::Lockless(points) => page_counter_lockless::table(points),
            Fitted::Numa(row, points) => numa_threshold::table(*row, points),
            Fitted::Memcg(points) => memcg_layout::table(points),
            Fitted::Layout(points) => page_counter_layout::table(points),
        }
    }

    /// Returns the prediction for our own design in each of the document's rows, in the document's unit; `None` for a
    /// row in which nothing is counted.
    ///
    /// # Errors
    /// None for a study that was fitted.
    pub fn ours(&self) -> Result<Vec<Option<Interval>>, Error> {
        match &self.0 {
            Fitted::Lockless(points) => {
                let visits = page_counter_lockless::VISITS.iter().enumerate();
                let cycles = visits
                    .map(|(which, &visits)| {
                        each(points, |_, point| {
                            let (settings, work) = (point.settings.clone(), point.work[which]);
                            let cpus = page_counter_lockless::CPUS;
                            let setup = ours::page_counter_lockless(settings, visits, work, cpus);
                            Ok(setup.run()?.cycles())
                        })
                    })
                    .collect::<Result<Vec<Vec<f64>>, Error>>()?;
                // Two rows stand for all numbers of visits, and each number has one more.
                let all = Some(Interval::of(cycles.concat()));
                Ok([all, all]
                    .into_iter()
                    .chain(cycles.into_iter().map(Interval::of).map(Some))
                    .collect())
            }
            Fitted::Numa(_, points) => {
                let rows = numa_threshold::ROWS.iter();
                rows.map(|&(threshold, ..)| {
                    let Some(threshold) = threshold else { return Ok(None) };
                    let cycles = each(points, |index, point| {
                        let cpus = numa_threshold::CPUS;
                        let repeat = |figure| numa_threshold::repeatability(3 * index + figure);
                        let floor = ours::numa_floor(threshold) * repeat(1);
                        let setup = ours::numa_threshold(point.clone(), threshold, floor, cpus);
                        Ok(setup.run()?.cycles() * repeat(2))
                    })?;
                    Ok(Some(Interval::of(cycles)))
                })
                .collect()
            }
            Fitted::Memcg(points) => {
                let change = each(points, |index, _| {
                    let cost = |design| self.cost(index, design, memcg_layout::CPUS);
                    Ok(100.0 * (cost(Design::Before)? / cost(Design::Ours)? - 1.0))
                })?;
                Ok(vec![Some(Interval::of(change)); memcg_layout::VARIANTS.len()])
            }
            Fitted::Layout(points) => {
                let rates = each(points, |index, _| {
                    let cost = self.cost(index, Design::Ours, page_counter_layout::CPUS)?;
                    Ok(message_ns(1.0) / cost)
                })?;
                let mut rows = vec![Some(Interval::of(rates)); page_counter_layout::ROWS.len() + 1];
                // The root is not charged.
                rows[0] = None;
                Ok(rows)
            }
        }
    }

    /// Returns the operation and the designs that [`Study::at`] compares.
    #[must_use]
    pub fn curve(&self) -> Curve {
        match self.0 {
            Fitted::Lockless(_) => Curve {
                operation: "a page fault in a group of the CPU's own",
                before: "locked",
                after: "lockless",
                ours: "ours",
                machine: page_counter_lockless::MACHINE,
                document_cpus: page_counter_lockless::CPUS,
            },
            Fitted::Numa(..) => Curve {
                operation: "an allocation of a page and its freeing",
                before: "threshold 125",
                after: "threshold 65533",
                ours: "ours, threshold 125",
                machine: numa_threshold::MACHINE,
                document_cpus: numa_threshold::CPUS,
            },
            Fitted::Memcg(_) => Curve {
                operation: "a fault and the unmapping of its page, all in one group",
                before: "before the commit",
                after: "after the commit",
                ours: "ours",
                machine: memcg_layout::MACHINE,
                document_cpus: memcg_layout::CPUS,
            },
            Fitted::Layout(_) => Curve {
                operation: "a side of a message of 10 KiB, all in one group of three levels",
                before: "three levels",
                after: "A+B+C",
                ours: "ours",
                machine: page_counter_layout::MACHINE,
                document_cpus: page_counter_layout::CPUS,
            },
        }
    }

    /// Returns an operation's cost on another number of CPUs. All other figures are as fitted on the document's
    /// machine.
    ///
    /// The first `cpus` CPUs of the document's machine run, every core's first thread before any second. A machine
    /// that is too small is grown by whole sockets; each is one link from every other unless the machine file has
    /// sockets two links apart. If a document leaves open how often the counters are visited
    /// (`page-counter-lockless`), the points take the possible numbers in turn.
    ///
    /// It takes some tenths of a second a point, and longer the more CPUs wait for a lock.
    ///
    /// # Errors
    /// If `cpus` is zero or more than [`MOST_CPUS`], or if there is so much contention that no operation ends within
    /// the simulated window.
    pub fn at(&self, cpus: usize) -> Result<Scale, Error> {
        if !(1..=MOST_CPUS).contains(&cpus) {
            return Err(Error::Setup(format!("{cpus} CPUs; from 1 to {MOST_CPUS} are simulated")));
        }
        let (points, topology) = match &self.0 {
            Fitted::Lockless(points) => (points.len(), points[0].settings.topology),
            Fitted::Numa(_, points) => (points.len(), points[0].topology),
            Fitted::Memcg(points) => (points.len(), points[0].settings.topology),
            Fitted::Layout(points) => (points.len(), points[0].settings.topology),
        };
        let points = vec![(); points];
        let cost = |design| -> Result<Interval, Error> {
            Ok(Interval::of(each(&points, |index, ()| self.cost(index, design, cpus))?))
        };
        Ok(Scale {
            cpus,
            sockets: topology.grown_to(cpus).sockets,
            grown: cpus > topology.cpus(),
            before: cost(Design::Before)?,
            after: cost(Design::After)?,
            ours: cost(Design::Ours)?,
        })
    }

    /// Returns the nanoseconds of an operation on one design point.
    fn cost(&self, index: usize, design: Design, cpus: usize) -> Result<f64, Error> {
        let grown = |settings: &Settings| Settings {
            topology: settings.topology.grown_to(cpus),
            ..settings.clone()
        };
        let setup: Setup = match &self.0 {
            Fitted::Lockless(points) => {
                let (settings, which) =
                    (grown(&points[index].settings), index % page_counter_lockless::VISITS.len());
                let (visits, work) =
                    (page_counter_lockless::VISITS[which], points[index].work[which]);
                match design {
                    Design::Ours => ours::page_counter_lockless(settings, visits, work, cpus),
                    Design::Before | Design::After => {
                        let locked = design == Design::Before;
                        page_counter_lockless::setup(settings, locked, visits, work, cpus)
                    }
                }
            }
            Fitted::Numa(_, points) => {
                use numa_threshold::{SIGNED, UNSIGNED, setup};
                let settings = grown(&points[index]);
                match design {
                    Design::Before => setup(settings, 125, SIGNED, cpus),
                    Design::After => setup(settings, 65_533, UNSIGNED, cpus),
                    Design::Ours => ours::numa_threshold(settings, 125, SIGNED, cpus),
                }
            }
            Fitted::Memcg(points) => {
                let settings = grown(&points[index].settings);
                let point = memcg_layout::Point { settings, ..points[index] };
                let with = |offsets| {
                    memcg_layout::setup(point.settings.clone(), offsets, point.base_ns, cpus)
                };
                match design {
                    Design::Before => with(memcg_layout::GOOD),
                    Design::After => with(memcg_layout::VARIANTS[1].1),
                    Design::Ours => ours::memcg_layout(&point, cpus),
                }
            }
            Fitted::Layout(points) => {
                let settings = grown(&points[index].settings);
                let point = page_counter_layout::Point { settings, ..points[index] };
                match design {
                    Design::Before => point.setup(Patches::default(), cpus),
                    Design::After => point.setup(Patches { a: true, b: true, c: true }, cpus),
                    Design::Ours => ours::page_counter_layout(&point, cpus),
                }
            }
        };
        let outcome = setup.run()?;
        if outcome.total() == 0 {
            let window = setup.window.to_ns / 1e6;
            return Err(Error::Setup(format!(
                "no operation of {cpus} CPUs ended within {window} ms; take fewer CPUs"
            )));
        }
        Ok(outcome.nanoseconds())
    }
}
