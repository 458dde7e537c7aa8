//! Finds the work of an operation from what the operation took as a whole.
//!
//! Whoever times a program times waits as well, and a simulation adds the waits again. So where a profile says what an
//! operation took ([`WorkBasis::Takes`]), the work is looked for with which the simulation of today's layout takes as
//! long, at each design point by itself:
//!
//! ```text
//! for each role, the others as they are:
//!     simulate today's layout with works from nothing to all of the time
//!     a work fits where the simulation is within 3 % of the time, or passes it from one work to the next
//!     of those that fit, the point takes one: points take them in turn
//! again, until the roles agree
//! ```
//!
//! In tight loops several works fit, since a visit to a contended line has whole operations, and time goes in steps.
//! The points then differ, which widens what is predicted. Where none fits, since the simulation takes longer even
//! without work, a processor overlaps the waits with the work (or the machine is another one). Then all of the time is
//! taken for work, and that is said. A processor that overlaps only a part is told from one that works less where the
//! profile has the time of a thread alone as well ([`alone`](super::alone)).

use ledgerline_coherence::experiments::{Interval, each};
use ledgerline_coherence::machine::{Machine, Settings};
use ledgerline_layout::Error;
use serde::Serialize;
use std::f64::consts::SQRT_2;

use super::alone::{self, Lone, Stage};
use super::{Place, Question, run};
use crate::profile::WorkBasis;
use crate::uses::{Hides, Settled, Uses};

/// How near a simulated time has to be, as a share.
const NEAR: f64 = 0.03;
/// Works that are tried in a round; further ones where the time is passed between two.
const TRIED: usize = 20;
const HALVINGS: usize = 3;
/// Rounds over the roles, where there are several.
const ROUNDS: usize = 4;
/// The golden ratio.
const GOLDEN: f64 = 1.618_033_988_749_895;
const SQRT_3: f64 = 1.732_050_807_568_877;
const SQRT_5: f64 = 2.236_067_977_499_79;
const SQRT_7: f64 = 2.645_751_311_064_59;
const SQRT_11: f64 = 3.316_624_790_355_4;
/// By what share the cost of recording may be off.
const RECORDING: f64 = 0.1;

/// The work that was found for a role.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Work {
    /// The role.
    pub role: String,
    /// What the profile says an operation took beside all others, in nanoseconds, without what recording took.
    pub takes_ns: Option<f64>,
    /// What it says an operation took alone.
    pub alone_ns: Option<f64>,
    /// The work, over the design points, in nanoseconds.
    pub work_ns: Interval,
    /// What the simulation takes at least at the points where no work fits; `None` where there are none.
    pub least_ns: Option<Interval>,
    /// How many times what is simulated others made it wait; `None` where no times say that.
    pub waits: Option<Interval>,
}

/// Where operations were timed.
#[derive(Clone, Debug, PartialEq)]
pub struct Timed {
    /// The machine.
    pub machine: Machine,
    /// The CPUs that took part.
    pub cpus: usize,
}

/// What was found at one design point.
struct Found {
    settled: Settled,
    /// By role, the least simulated time where no work fits.
    misses: Vec<Option<f64>>,
}

/// The same uses with the works that the profile leaves open: by design point in [`Uses::settled`], and their median in
/// each role. Today's layout is `place`. Operations were timed on the machine that is asked about, and on as many CPUs,
/// if nothing else is known.
///
/// Takes as long as some hundred simulations for each point where the profile has times, and next to nothing otherwise.
///
/// # Errors
/// As [`super::of`].
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
    // Waits were measured where operations were timed, and are corrected there alone.
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
    fn asks(&self) -> bool {
        self.settings.lead > 0
    }

    fn alone(&self, role: usize, work: f64, hides: Option<Hides>) -> Result<f64, Error> {
        let works = vec![work; self.uses.roles.len()];
        Ok(self.times(&[role], &works, hides)?[role])
    }

    fn beside(&self, works: &[f64], hides: Option<Hides>) -> Result<Vec<f64>, Error> {
        self.times(self.dealt, works, hides)
    }
}

/// What times say at one design point.
fn find(at: &At<'_>) -> Result<Found, Error> {
    let At { uses, point, .. } = *at;
    let (which, off) = (evenly(point, GOLDEN), 2.0 * evenly(point, SQRT_2) - 1.0);
    let recorded: Vec<f64> = (uses.roles.iter())
        .map(|role| match role.basis {
            WorkBasis::Takes { recording_ns, .. } => recording_ns * (1.0 + RECORDING * off),
            _ => 0.0,
        })
        .collect();
    let mut works: Vec<f64> = (uses.roles.iter())
        .map(|role| match role.basis {
            WorkBasis::Stated => role.work_ns,
            WorkBasis::Within { low, high } => low + (high - low) * which,
            WorkBasis::Takes { ns, recording_ns } => 0.7 * (ns - recording_ns).max(0.0),
            WorkBasis::Alone { ns, .. } => ns,
        })
        .collect();
    let mut misses = vec![None; works.len()];
    // What makes one thread slower for a while makes all of them slower.
    let off_by = |step: f64| 2.0 * evenly(point, step) - 1.0;
    let lone: Vec<Lone> = (uses.roles.iter().enumerate())
        .filter_map(|(role, of)| match of.basis {
            WorkBasis::Alone { ns, takes_ns } => {
                let of = Lone { role, share: of.share, ns, takes_ns };
                Some(of.off(off_by(SQRT_3), off_by(SQRT_5)))
            }
            _ => None,
        })
        .collect();
    let chosen = (which, evenly(point, SQRT_11));
    let hides = alone::works(at, &lone, chosen, &mut works, &mut misses)?;
    let open: Vec<(usize, f64)> = (uses.roles.iter().enumerate())
        .filter_map(|(role, of)| match of.basis {
            WorkBasis::Takes { ns, .. } => Some((role, ns)),
            _ => None,
        })
        .collect();
    for _ in 0..if open.len() > 1 { ROUNDS } else { 1 } {
        let before = works.clone();
        for &(role, takes) in &open {
            let time = |work: f64| {
                let mut all: Vec<f64> = works.iter().zip(&recorded).map(|(w, r)| w + r).collect();
                all[role] = work + recorded[role];
                at.beside(&all, hides).map(|times| times[role])
            };
            let most = (takes - recorded[role]).max(0.0);
            let (work, miss) = fitting(takes, most, which, &time)?;
            (works[role], misses[role]) = (work, miss);
        }
        // Roles that hardly meet agree at once.
        let agrees = |(old, new): (&f64, &f64)| (old - new).abs() <= 0.01 * new.abs();
        if before.iter().zip(&works).all(agrees) {
            break;
        }
    }
    let waits = if lone.is_empty() { Vec::new() } else { alone::waits(at, &lone, &works, hides)? };
    let settled = Settled { works, hides, waits, between: between(at.point) };
    Ok(Found { settled, misses })
}

/// One of the works up to `most` with which the time is `takes`: which, says `which`, from 0 to 1. Where there is
/// none, all of the time, and the least that the simulation takes.
fn fitting(
    takes: f64,
    most: f64,
    which: f64,
    time: &dyn Fn(f64) -> Result<f64, Error>,
) -> Result<(f64, Option<f64>), Error> {
    let tried = (0..=TRIED)
        .map(|at| {
            let work = most * at as f64 / TRIED as f64;
            time(work).map(|took| (work, took))
        })
        .collect::<Result<Vec<(f64, f64)>, Error>>()?;
    let near = |took: f64| (took / takes - 1.0).abs() <= NEAR;
    let mut fit: Vec<f64> = Vec::new();
    for (at, &(work, took)) in tried.iter().enumerate() {
        if near(took) {
            fit.push(work);
        } else if let Some(&(next, then)) = tried.get(at + 1)
            && !near(then)
            && (took < takes) != (then < takes)
        {
            let (mut low, mut high) = (work, next);
            for _ in 0..HALVINGS {
                let middle = f64::midpoint(low, high);
                let side = (time(middle)? < takes) == (took < takes);
                *(if side { &mut low } else { &mut high }) = middle;
            }
            fit.push(f64::midpoint(low, high));
        }
    }
    if let Some(&work) =
        fit.get(((which * fit.len() as f64) as usize).min(fit.len().saturating_sub(1)))
    {
        return Ok((work, None));
    }
    let least = tried.iter().map(|&(_, took)| took).fold(f64::INFINITY, f64::min);
    Ok((most, Some(least)))
}

/// How much of the work lies between accesses at a design point. Programs have all there is, from accesses side by side to
/// such that lie far apart, and neither counts nor times tell them.
fn between(point: usize) -> f64 {
    evenly(point, SQRT_7)
}

/// Multiples of an irrational number, without their whole part: evenly between 0 and 1 after a few points as after many.
fn evenly(point: usize, step: f64) -> f64 {
    ((point + 1) as f64 * step).fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_work_fits_where_the_time_is_met_or_passed() {
        let line = |work: f64| Ok(work + 10.0);
        let (work, miss) = fitting(40.0, 40.0, 0.5, &line).unwrap();
        assert!((work - 30.0).abs() <= 1.2 && miss.is_none(), "{work}");
        // A step: below 20 it takes 25, above it takes 50. Nothing takes 40, but the step passes it.
        let step = |work: f64| Ok(if work < 20.0 { 25.0 } else { 50.0 });
        let (work, miss) = fitting(40.0, 40.0, 0.9, &step).unwrap();
        assert!((work - 20.0).abs() <= 0.5 && miss.is_none(), "{work}");
    }

    #[test]
    fn of_several_works_points_take_each() {
        let flat = |_: f64| Ok(40.0);
        let works: Vec<f64> = (0..16)
            .map(|point| fitting(40.0, 40.0, evenly(point, GOLDEN), &flat).unwrap().0)
            .collect();
        let (least, most) =
            works.iter().fold((f64::MAX, 0.0f64), |(a, b), &w| (a.min(w), b.max(w)));
        assert!(least < 6.0 && most > 34.0, "{works:?}");
    }

    #[test]
    fn where_no_work_fits_all_of_the_time_is_work_and_that_is_told() {
        let slow = |work: f64| Ok(work + 60.0);
        assert_eq!(fitting(40.0, 40.0, 0.3, &slow).unwrap(), (40.0, Some(60.0)));
    }
}
