//! Derives the work and the hidden waiting of a program from the time of a thread that runs alone, at one design point.
//!
//! A time beside other threads is the sum of work and waiting. It cannot tell them apart: a processor that works while
//! it waits looks like one that has less to do. A time alone has no waiting, so it gives the work. The time beside
//! others then gives how much of the waiting the program hides:
//!
//! ```text
//! work    the simulation of the role on one CPU takes the time alone
//! hides   the simulation of all takes the times beside others: lines are asked for ahead of their accesses, or not;
//!         then work goes on behind accesses, from none to as far as windows reach
//! waits   the measured time beyond the time alone, as a share of the simulated time beyond it
//! ```
//!
//! If several values of `hides` fit about equally well, the points take them in turn, since they predict different
//! costs of other layouts. The share `waits` is one if the model is right. It corrects the remaining error for this
//! machine and program: the measured waiting shrinks in proportion to the simulated waiting.

use ledgerline_layout::Error;

use super::fit;
use super::program::{Program, Stage, Unknown};
use crate::uses::Hides;

/// Windows that are tried, in picoseconds. No processor works on for longer while it waits.
pub(super) const WINDOWS: [u64; 6] = [5_000, 10_000, 20_000, 40_000, 80_000, 120_000];
/// The largest error of a simulation that fits times beside others: as a share of the time, or of the waiting. The
/// second is the model's error for short work (`calibrate --validate`).
const NEAR_BESIDE: f64 = 0.02;
const NEAR_WAITING: f64 = 0.4;
/// The error of a time, as a share: small programs whose fields lie apart took up to 8 % more or less beside others
/// than alone (`ci/predictions`, AMD EPYC (Zen 3), 2026-11-23).
const TIMING: f64 = 0.08;
/// The largest error of a simulated time that meets a given one, as a share.
const NEAR: f64 = 0.003;
/// Steps of the bisection for a work.
const WORK_HALVINGS: usize = 10;
/// Simulated waiting below this share of a time is too little for a correction.
const TOLD: f64 = 0.02;
/// The largest correction. Beyond it, the simulation differs from the timed program.
pub(crate) const MOST_WAITS: f64 = 4.0;

/// A role that was timed alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lone {
    pub role: usize,
    /// Its share of the CPUs.
    pub share: f64,
    /// The time of an operation alone, in nanoseconds.
    pub ns: f64,
    /// The time of an operation beside the others.
    pub takes_ns: Option<f64>,
}

impl Lone {
    /// Returns the same role with errors of its times, given by numbers from -1 to 1.
    pub(super) fn off(self, alone: f64, takes: f64) -> Lone {
        Lone {
            ns: self.ns * (1.0 + TIMING * alone),
            takes_ns: self.takes_ns.map(|ns| ns * (1.0 + TIMING * takes)),
            ..self
        }
    }
}

/// Finds the works of the roles, and how much the program hides so that the simulation meets the times beside others.
/// If nothing fits, takes the nearest.
pub(super) fn settle(
    stage: &dyn Stage,
    lone: &[Lone],
    unknown: Unknown,
    program: &mut Program,
) -> Result<(), Error> {
    let takes: f64 = lone.iter().filter_map(|of| Some(of.share * of.takes_ns?)).sum();
    // The share by which the simulation is too slow, over all roles that were timed both ways. It falls as the program
    // hides more.
    let mut slow = |hides: Option<Hides>| -> Result<f64, Error> {
        for of in lone {
            let alone = |work| stage.alone(of.role, work, hides);
            (program.works[of.role], program.misses[of.role]) = work(of.ns, unknown.work, &alone)?;
        }
        if takes == 0.0 {
            return Ok(0.0);
        }
        let times = stage.beside(&program.works, hides)?;
        let beyond = |of: &Lone| of.takes_ns.map(|takes| of.share * (times[of.role] - takes));
        Ok(lone.iter().filter_map(beyond).sum::<f64>() / takes)
    };
    if takes == 0.0 {
        return slow(None).map(drop);
    }
    let tried = ladder()
        .into_iter()
        .map(|hides| Ok((hides, slow(Some(hides))?)))
        .collect::<Result<Vec<(Hides, f64)>, Error>>()?;
    let waited: f64 = lone.iter().filter_map(|of| Some(of.share * (of.takes_ns? - of.ns))).sum();
    let near = |off: f64| off.abs() <= NEAR_BESIDE.max(NEAR_WAITING * waited / takes);
    let mut fit = fit::all(&tried, near, between, |hides| slow(Some(hides)))?;
    if fit.is_empty() {
        // Nothing fits, so all that are about as near as the nearest are taken. If the simulation is too fast even
        // without hiding, nothing is hidden.
        let least = tried.iter().map(|(_, off)| off.abs()).fold(f64::INFINITY, f64::min);
        let as_near = |off: f64| off.abs() <= least + NEAR_BESIDE + 0.1 * off.max(0.0);
        let nearest = tried.iter().filter(|(_, off)| as_near(*off));
        fit.extend(nearest.map(|(hides, _)| hides));
    }
    let hides = fit::one(&fit, unknown.hides);
    slow(hides)?;
    program.hides = hides;
    Ok(())
}

/// Returns the degrees of hiding that are tried, from none to all: first the program asks for lines earlier, then it
/// works on while it waits.
fn ladder() -> Vec<Hides> {
    let asked = [0.0, 0.5, 1.0].map(|lead| Hides { lead, window: 0 });
    let works_on = WINDOWS.map(|window| Hides { lead: 1.0, window });
    asked.into_iter().chain(works_on).collect()
}

fn between(one: Hides, other: Hides) -> Hides {
    Hides {
        lead: f64::midpoint(one.lead, other.lead),
        window: u64::midpoint(one.window, other.window),
    }
}

/// Returns one of the works with which an operation takes `ns` alone. The time never falls as work grows. If an
/// operation takes longer even without work, returns no work and the time.
fn work(
    ns: f64,
    which: f64,
    time: &dyn Fn(f64) -> Result<f64, Error>,
) -> Result<(f64, Option<f64>), Error> {
    let least = time(0.0)?;
    if least > ns * (1.0 + NEAR) {
        return Ok((0.0, Some(least)));
    }
    // The work at which the time exceeds `taken`.
    let edge = |taken: f64| {
        let (mut low, mut high) = (0.0, 2.0 * ns);
        for _ in 0..WORK_HALVINGS {
            let middle = f64::midpoint(low, high);
            *(if time(middle)? < taken { &mut low } else { &mut high }) = middle;
        }
        Ok::<f64, Error>(f64::midpoint(low, high))
    };
    let (low, high) = (edge(ns * (1.0 - NEAR))?, edge(ns * (1.0 + NEAR))?);
    Ok((low + (high - low) * which, None))
}

/// Sets `waits` of the roles that were timed both ways: the measured waiting as a multiple of the simulated waiting.
pub(super) fn correct(
    stage: &dyn Stage,
    lone: &[Lone],
    program: &mut Program,
) -> Result<(), Error> {
    if lone.is_empty() {
        return Ok(());
    }
    let times = stage.beside(&program.works, program.hides)?;
    for of in lone {
        let Some(takes) = of.takes_ns else { continue };
        let alone = stage.alone(of.role, program.works[of.role], program.hides)?;
        let simulated = times[of.role] - alone;
        if simulated > TOLD * alone {
            program.waits[of.role] = ((takes - of.ns) / simulated).clamp(0.0, MOST_WAITS);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Operations that wait 40 ns for others, times a factor, less the part that the program hides.
    struct Waiting {
        factor: f64,
    }

    impl Stage for Waiting {
        fn alone(&self, _: usize, work: f64, _: Option<Hides>) -> Result<f64, Error> {
            Ok(work + 2.0)
        }

        fn beside(&self, works: &[f64], hides: Option<Hides>) -> Result<Vec<f64>, Error> {
            let hidden = hides.map_or(0, |hides| hides.window) as f64 / 1000.0;
            Ok(works
                .iter()
                .map(|work| work + 2.0 + (40.0 * self.factor - hidden).max(0.0))
                .collect())
        }
    }

    const MIDDLE: Unknown = Unknown { work: 0.5, hides: 0.5, error: 0.5 };

    fn settled(factor: f64, takes_ns: Option<f64>) -> (Vec<f64>, Option<u64>, Vec<f64>) {
        let stage = Waiting { factor };
        let lone = [Lone { role: 0, share: 1.0, ns: 32.0, takes_ns }];
        let mut program = Program::with_works(vec![0.0]);
        settle(&stage, &lone, MIDDLE, &mut program).unwrap();
        correct(&stage, &lone, &mut program).unwrap();
        (program.works, program.hides.map(|hides| hides.window), program.waits)
    }

    #[test]
    fn a_time_alone_says_the_work_and_one_beside_others_what_is_hidden() {
        let (work, window, waits) = settled(1.0, Some(47.0));
        assert!((work[0] - 30.0).abs() < 0.1, "{work:?}");
        // 15 of 40 ns are waited. The tried window that leaves 20 is within the model's error, and the share corrects
        // the rest.
        assert_eq!(window, Some(20_000));
        assert!((waits[0] - 15.0 / 20.0).abs() < 0.02, "{waits:?}");
        // The fit lies between two windows that are tried.
        let (_, window, waits) = settled(1.5, Some(42.0));
        assert!((window.unwrap() as f64 / 1000.0 - 50.0).abs() < 6.0, "{window:?}");
        assert!((waits[0] - 1.0).abs() < 0.5, "{waits:?}");
    }

    #[test]
    fn what_nothing_hidden_explains_is_a_factor() {
        let (_, window, waits) = settled(0.5, Some(62.0));
        assert!(window.unwrap() <= 10_000, "{window:?}");
        assert!((1.5..3.1).contains(&waits[0]), "30 measured, 10 to 20 simulated: {waits:?}");
        let (_, window, waits) = settled(10.0, Some(42.0));
        assert_eq!(window, Some(*WINDOWS.last().unwrap()));
        assert!((waits[0] - 10.0 / 280.0).abs() < 0.01, "{waits:?}");
    }

    #[test]
    fn points_take_in_turn_what_fits_as_well() {
        /// A stage whose time does not depend on how much is hidden.
        struct Flat;
        impl Stage for Flat {
            fn alone(&self, _: usize, work: f64, _: Option<Hides>) -> Result<f64, Error> {
                Ok(work)
            }

            fn beside(&self, works: &[f64], _: Option<Hides>) -> Result<Vec<f64>, Error> {
                Ok(works.iter().map(|work| work + 20.0).collect())
            }
        }
        // The first time fits, the second does not.
        for takes in [50.0, 31.0] {
            let lone = [Lone { role: 0, share: 1.0, ns: 30.0, takes_ns: Some(takes) }];
            let chosen = |hides| {
                let mut program = Program::with_works(vec![0.0]);
                settle(&Flat, &lone, Unknown { hides, ..MIDDLE }, &mut program).unwrap();
                program.hides
            };
            let tried = ladder();
            let all: Vec<Hides> = (0..tried.len())
                .filter_map(|at| chosen((at as f64 + 0.5) / tried.len() as f64))
                .collect();
            assert_eq!(all, tried);
        }
    }

    #[test]
    fn a_time_alone_by_itself_says_the_work_and_nothing_of_waits() {
        let (work, window, waits) = settled(1.0, None);
        assert!((work[0] - 30.0).abs() < 0.1, "{work:?}");
        assert_eq!((window, waits), (None, vec![1.0]));
    }

    #[test]
    fn of_works_that_take_the_same_points_take_each_and_none_is_none() {
        let flat = |work: f64| Ok(f64::max(work, 20.0));
        let works = [0.0, 0.5, 1.0].map(|which| work(20.0, which, &flat).unwrap().0);
        assert!(works[0] < 0.1 && (works[1] - 10.0).abs() < 0.2 && works[2] > 19.9, "{works:?}");
        assert_eq!(work(15.0, 0.5, &flat).unwrap(), (0.0, Some(20.0)));
    }
}
