//! Finds the work of an operation from the time of the whole operation.
//!
//! The time of a whole operation includes waits, and a simulation would add the waits again. So if a profile has such a
//! time ([`WorkBasis::Takes`]), each design point finds the work with which the simulation of today's layout meets it
//! ([`beside`](super::beside)). Such a time does not give how much of its waiting the program hides, so the points
//! differ in that, which widens the prediction. If the profile also has the time of a thread alone
//! ([`WorkBasis::Alone`]), the two times determine it ([`alone`](super::alone)).

use ledgerline_coherence::experiments::{Interval, each};
use ledgerline_coherence::machine::{Machine, Settings};
use ledgerline_layout::Error;
use serde::Serialize;
use std::f64::consts::SQRT_2;

use super::alone::{self, Lone};
use super::beside::{self, Joint};
use super::program::{Program, Stage, Unknown};
use super::{Place, Question, run};
use crate::profile::WorkBasis;
use crate::uses::{Hides, Settled, Uses};

/// The golden ratio.
const GOLDEN: f64 = 1.618_033_988_749_895;
const SQRT_3: f64 = 1.732_050_807_568_877;
const SQRT_5: f64 = 2.236_067_977_499_79;
const SQRT_7: f64 = 2.645_751_311_064_59;
const SQRT_11: f64 = 3.316_624_790_355_4;
const SQRT_37: f64 = 6.082_762_530_298_219;
/// The error of the cost of recording, as a share.
const RECORDING: f64 = 0.1;

/// The work that was found for a role.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Work {
    /// The role.
    pub role: String,
    /// The profile's time of an operation beside all others, in nanoseconds, without the cost of recording.
    pub takes_ns: Option<f64>,
    /// The profile's time of an operation alone.
    pub alone_ns: Option<f64>,
    /// The work, over the design points, in nanoseconds.
    pub work_ns: Interval,
    /// The least simulated time, over the points where no work fits; `None` if there are none.
    pub least_ns: Option<Interval>,
    /// The waiting for other CPUs as a multiple of the simulated waiting; `None` if no times give it.
    pub waits: Option<Interval>,
}

/// The machine and the CPUs on which operations were timed.
#[derive(Clone, Debug, PartialEq)]
pub struct Timed {
    /// The machine.
    pub machine: Machine,
    /// The CPUs that took part.
    pub cpus: usize,
}

/// The values that were found at one design point.
struct Found {
    settled: Settled,
    /// By role, the least simulated time if no work fits.
    misses: Vec<Option<f64>>,
}

/// Returns the uses with the works that the profile leaves open: by design point in [`Uses::settled`], and their median
/// in each role. Today's layout is `place`. Without `timed`, operations were timed on the machine of the question, with
/// as many CPUs.
///
/// Takes as long as some hundred simulations for each point if the profile has times, and almost no time otherwise.
///
/// # Errors
/// Like [`super::of`].
pub fn settle(
    question: &Question<'_>,
    timed: Option<&Timed>,
    uses: Uses,
    place: &Place,
) -> Result<(Uses, Vec<Work>), Error> {
    if uses.roles.iter().all(|role| role.basis == WorkBasis::Stated) {
        return Ok((uses, Vec::new()));
    }
    question.check()?;
    let machine = timed.map_or(question.machine, |timed| &timed.machine);
    let cpus = timed.map_or(question.cpus, |timed| timed.cpus).clamp(1, machine.topology.cpus());
    let settings = machine.design(question.points);
    let dealt = run::deal(&uses.roles, cpus);
    let found = each(&settings, |point, settings| {
        find(&At { settings, dealt: &dealt, uses: &uses, place, point })
    })?;
    // The correction of waits holds only for the machine and the CPUs on which operations were timed.
    let here = cpus == question.cpus && machine == question.machine;
    let mut settled = uses;
    let mut works = Vec::new();
    for (index, role) in settled.roles.iter_mut().enumerate() {
        let over = |of: &dyn Fn(&Found) -> Option<f64>| {
            let values: Vec<f64> = found.iter().filter_map(of).collect();
            (!values.is_empty()).then(|| Interval::of(values))
        };
        let work_ns = over(&|found| Some(found.settled.works[index])).expect("there is a point");
        let (takes_ns, alone_ns) = match role.basis {
            WorkBasis::Takes { ns, recording_ns } => (Some(ns - recording_ns), None),
            WorkBasis::Alone { ns, takes_ns } => (takes_ns, Some(ns)),
            _ => (None, None),
        };
        if takes_ns.is_some() || alone_ns.is_some() {
            let waits = over(&|found| found.settled.waits.get(index).copied());
            works.push(Work {
                role: role.name.clone(),
                takes_ns,
                alone_ns,
                work_ns,
                least_ns: over(&|found| found.misses[index]),
                waits: waits.filter(|_| takes_ns.is_some() && alone_ns.is_some()),
            });
        }
        role.work_ns = work_ns.median;
    }
    let forget = |settled| if here { settled } else { Settled { waits: Vec::new(), ..settled } };
    settled.settled = found.into_iter().map(|found| forget(found.settled)).collect();
    Ok((settled, works))
}

/// The program and the machine at one design point.
struct At<'a> {
    settings: &'a Settings,
    dealt: &'a [usize],
    uses: &'a Uses,
    place: &'a Place,
    point: usize,
}

impl At<'_> {
    fn times(
        &self,
        dealt: &[usize],
        works: &[f64],
        hides: Option<Hides>,
    ) -> Result<Vec<f64>, Error> {
        let At { settings, uses, place, point, .. } = self;
        let settings = Settled { hides, ..Settled::default() }.on(settings);
        let uses = &uses.with_works(works);
        let (begins, between) = (place.begins(*point), between(*point));
        run::times(&run::Stage { settings, uses, place, begins, between }, dealt)
    }
}

impl Stage for At<'_> {
    fn alone(&self, role: usize, work: f64, hides: Option<Hides>) -> Result<f64, Error> {
        let works = vec![work; self.uses.roles.len()];
        Ok(self.times(&[role], &works, hides)?[role])
    }

    fn beside(&self, works: &[f64], hides: Option<Hides>) -> Result<Vec<f64>, Error> {
        self.times(self.dealt, works, hides)
    }
}

/// Finds the works and the hiding at one design point.
fn find(at: &At<'_>) -> Result<Found, Error> {
    let At { uses, point, .. } = *at;
    let unknown = Unknown {
        work: evenly(point, GOLDEN),
        hides: evenly(point, SQRT_11),
        error: evenly(point, SQRT_37),
    };
    let off_by = |step: f64| 2.0 * evenly(point, step) - 1.0;
    // All threads have the same error: a disturbance slows all of them.
    let (alone_off, takes_off) = (off_by(SQRT_3), off_by(SQRT_5));
    let recording_off = 1.0 + RECORDING * off_by(SQRT_2);
    let (mut lone, mut timed, mut works) = (Vec::new(), Vec::new(), Vec::new());
    for (role, of) in uses.roles.iter().enumerate() {
        works.push(match of.basis {
            WorkBasis::Stated => of.work_ns,
            WorkBasis::Within { low, high } => low + (high - low) * unknown.work,
            WorkBasis::Takes { ns: takes_ns, recording_ns } => {
                timed.push(Joint { role, takes_ns, recorded_ns: recording_ns * recording_off });
                0.7 * (takes_ns - recording_ns).max(0.0)
            }
            WorkBasis::Alone { ns, takes_ns } => {
                let of = Lone { role, share: of.share, ns, takes_ns };
                lone.push(of.off(alone_off, takes_off));
                ns
            }
        });
    }
    let mut program = Program::with_works(works);
    alone::settle(at, &lone, unknown, &mut program)?;
    beside::settle(at, &timed, unknown, &mut program)?;
    alone::correct(at, &lone, &mut program)?;
    let Program { works, misses, hides, waits } = program;
    let waits = if lone.is_empty() && timed.is_empty() { Vec::new() } else { waits };
    Ok(Found { settled: Settled { works, hides, waits, between: between(point) }, misses })
}

/// Returns how much of the work lies between accesses at a design point. Programs range from adjacent accesses to
/// distant ones, and neither counts nor times determine it.
fn between(point: usize) -> f64 {
    evenly(point, SQRT_7)
}

/// Returns the fraction of a multiple of an irrational number. The values are evenly distributed between 0 and 1 for
/// any number of points.
fn evenly(point: usize, step: f64) -> f64 {
    ((point + 1) as f64 * step).fract()
}
