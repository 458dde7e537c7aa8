//! Derives the work of roles that were not timed alone from the times beside others, at one design point.
//!
//! A time beside others is the sum of work and waiting and cannot tell them apart. The design point chooses the unknown
//! part, and the work follows from it:
//!
//! ```text
//! hides   how much of the waiting the program hides: points go from programs that wait for every line to such that
//!         ask for lines early, and on to such that work while lines are on their way
//! error   simulated waiting counts for more or less, by as much as the model may be off
//! work    with it the simulation of all takes the times
//! ```
//!
//! In tight loops several works fit, since a visit to a contended line lasts for whole operations, and the time grows
//! in steps. The points take them in turn. If none fits, because the simulation takes longer even without work, the
//! program hides more than the point chose. If the simulation takes too long even with everything hidden, the model
//! waits too long. Then the point chooses the share of work in the time, and the simulated waiting is scaled to the
//! rest.

use ledgerline_layout::Error;

use super::alone::{MOST_WAITS, WINDOWS};
use super::fit;
use super::program::{Program, Stage, Unknown};
use crate::uses::Hides;

/// The largest error of a simulated time, as a share.
const NEAR: f64 = 0.03;
/// Number of works that are tried in a round.
const TRIED: usize = 20;
/// Rounds over the roles, if there are several.
const ROUNDS: usize = 4;
/// The factor by which measured waits exceed the model's, or fall short of them, in nine of ten cases of two CPUs that
/// contend for a line (`calibrate --validate`, works from 10 to 1 000 cycles, both modes of an AMD EPYC (Zen 5),
/// 2026-11-27).
const ERROR: f64 = 1.6;
/// The longest window of a program whose window no time gives, in picoseconds. By their times alone, most programs of
/// `ci/predictions` hide less.
const MOST_WINDOW: f64 = 40_000.0;

/// A role with a time beside others only.
#[derive(Clone, Copy, Debug)]
pub(super) struct Joint {
    pub role: usize,
    /// The time of an operation beside the others, in nanoseconds.
    pub takes_ns: f64,
    /// The part of it that recording took.
    pub recorded_ns: f64,
}

/// Finds the works of the roles that were timed; the other roles keep theirs. Also finds `program.hides`, if it is not
/// known yet.
pub(super) fn settle(
    stage: &dyn Stage,
    timed: &[Joint],
    unknown: Unknown,
    program: &mut Program,
) -> Result<(), Error> {
    if timed.is_empty() {
        return Ok(());
    }
    let factor = ERROR.powf(1.0 - 2.0 * unknown.error);
    let given = program.clone();
    let path = match given.hides {
        Some(hides) => vec![hides],
        None => path(unknown.hides),
    };
    for hides in path {
        *program = Program { hides: Some(hides), ..given.clone() };
        rounds(stage, timed, (unknown.work, factor), program)?;
        if timed.iter().all(|of| program.misses[of.role].is_none()) {
            break;
        }
    }
    for of in timed {
        program.waits[of.role] = factor;
    }
    if timed.iter().any(|of| program.misses[of.role].is_some()) {
        meet(stage, timed, unknown.work, program)?;
    }
    Ok(())
}

/// Scales the waits so that the times are met, if no work meets them. A role without a fitting work gets the share
/// `work` of its time as work.
fn meet(stage: &dyn Stage, timed: &[Joint], work: f64, program: &mut Program) -> Result<(), Error> {
    for of in timed.iter().filter(|of| program.misses[of.role].is_some()) {
        program.works[of.role] *= work;
    }
    let works = with_recording(timed, &program.works);
    let times = stage.beside(&works, program.hides)?;
    for of in timed {
        let alone = stage.alone(of.role, works[of.role], program.hides)?;
        let simulated = (times[of.role] - alone).max(f64::MIN_POSITIVE);
        program.waits[of.role] = ((of.takes_ns - alone) / simulated).clamp(0.0, MOST_WAITS);
    }
    Ok(())
}

/// Returns the hiding at a position from 0 for none to 1 for the most, and then the longer windows to try if that is
/// too little.
fn path(along: f64) -> Vec<Hides> {
    let (lead, window) = ((2.0 * along).min(1.0), (2.0 * along - 1.0).max(0.0) * MOST_WINDOW);
    let first = Hides { lead, window: window.round() as u64 };
    let more = WINDOWS.into_iter().filter(|&longer| longer > first.window);
    let more = more.map(|window| Hides { lead: 1.0, window });
    [first].into_iter().chain(more).collect()
}

fn with_recording(timed: &[Joint], works: &[f64]) -> Vec<f64> {
    let mut works = works.to_vec();
    for of in timed {
        works[of.role] += of.recorded_ns;
    }
    works
}

/// Finds a work for each role while the others keep theirs, until the works no longer change.
fn rounds(
    stage: &dyn Stage,
    timed: &[Joint],
    (which, factor): (f64, f64),
    program: &mut Program,
) -> Result<(), Error> {
    let hides = program.hides;
    for _ in 0..if timed.len() > 1 { ROUNDS } else { 1 } {
        let before = program.works.clone();
        for of in timed {
            let time = |work: f64| {
                let mut works = with_recording(timed, &program.works);
                works[of.role] = work + of.recorded_ns;
                let alone = stage.alone(of.role, works[of.role], hides)?;
                let beside = stage.beside(&works, hides)?[of.role];
                Ok(alone + factor * (beside - alone).max(0.0))
            };
            let most = (of.takes_ns - of.recorded_ns).max(0.0);
            let (work, miss) = fitting(of.takes_ns, most, which, &time)?;
            (program.works[of.role], program.misses[of.role]) = (work, miss);
        }
        // Roles that hardly contend agree after one round.
        let agrees = |(old, new): (&f64, &f64)| (old - new).abs() <= 0.01 * new.abs();
        if before.iter().zip(&program.works).all(agrees) {
            break;
        }
    }
    Ok(())
}

/// Returns one of the works up to `most` with which the time is `takes`; `which`, from 0 to 1, chooses among them. If
/// none fits, returns `most` and the least simulated time.
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
    let off: Vec<(f64, f64)> = tried.iter().map(|&(work, took)| (work, took - takes)).collect();
    let near = |off: f64| off.abs() <= NEAR * takes;
    let fit = fit::all(&off, near, f64::midpoint, |work| Ok(time(work)? - takes))?;
    if let Some(work) = fit::one(&fit, which) {
        return Ok((work, None));
    }
    let least = tried.iter().map(|&(_, took)| took).fold(f64::INFINITY, f64::min);
    Ok((most, Some(least)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two threads that wait 40 ns for each other, less the part that the program hides.
    struct Waiting;

    impl Stage for Waiting {
        fn alone(&self, _: usize, work: f64, _: Option<Hides>) -> Result<f64, Error> {
            Ok(work + 2.0)
        }

        fn beside(&self, works: &[f64], hides: Option<Hides>) -> Result<Vec<f64>, Error> {
            let hidden = hides.map_or(0.0, |of| 10.0 * of.lead + of.window as f64 / 2000.0);
            Ok(works.iter().map(|work| work + 2.0 + (40.0 - hidden).max(0.0)).collect())
        }
    }

    const TIMED: [Joint; 2] = [
        Joint { role: 0, takes_ns: 80.0, recorded_ns: 0.0 },
        Joint { role: 1, takes_ns: 100.0, recorded_ns: 20.0 },
    ];

    fn found(timed: &[Joint], unknown: Unknown) -> Program {
        let mut program = Program::with_works(vec![30.0; 2]);
        settle(&Waiting, timed, unknown, &mut program).unwrap();
        program
    }

    /// Returns the times of operations in the program that was found.
    fn taken(program: &Program, timed: &[Joint]) -> Vec<f64> {
        let works = with_recording(timed, &program.works);
        let times = Waiting.beside(&works, program.hides).unwrap();
        (works.iter().zip(&times).zip(&program.waits))
            .map(|((work, time), waits)| work + 2.0 + waits * (time - work - 2.0))
            .collect()
    }

    #[test]
    fn whatever_a_point_says_of_the_program_its_time_is_met() {
        for at in 0..27 {
            let third = |of: usize| f64::from(u8::try_from(of % 3).unwrap()) * 0.49;
            let unknown = Unknown { work: third(at), hides: third(at / 3), error: third(at / 9) };
            let program = found(&TIMED, unknown);
            for (time, of) in taken(&program, &TIMED).into_iter().zip(&TIMED) {
                assert!((time / of.takes_ns - 1.0).abs() < 1.5 * NEAR, "{unknown:?} {program:?}");
            }
        }
    }

    #[test]
    fn points_go_from_programs_that_hide_nothing_to_such_that_go_on_with_their_work() {
        let of = |hides, error| found(&TIMED, Unknown { work: 0.5, hides, error });
        // All of the 40 ns are waited, then 30, then nearly 10.
        let works = [0.0, 0.5, 0.999].map(|hides| of(hides, 0.5).works[0]);
        for (work, expected) in works.into_iter().zip([38.0, 48.0, 68.0]) {
            assert!((work - expected).abs() < 3.0, "{works:?}");
        }
        // The model waits too little, then too much.
        let (more, less) = (of(0.0, 0.0), of(0.0, 1.0));
        assert!((more.works[0] - (78.0 - 40.0 * ERROR)).abs() < 3.0, "{more:?}");
        assert!((less.works[0] - (78.0 - 40.0 / ERROR)).abs() < 3.0, "{less:?}");
        assert_eq!((more.waits[0], less.waits[0]), (ERROR, 1.0 / ERROR));
    }

    #[test]
    fn a_program_hides_more_where_its_time_would_be_too_long() {
        let short = [Joint { role: 0, takes_ns: 24.0, recorded_ns: 0.0 }];
        let program = found(&short, Unknown { work: 0.5, hides: 0.0, error: 0.5 });
        assert!(program.hides.is_some_and(|of| of.window >= 20_000), "{program:?}");
        assert_eq!(program.misses, [None; 2]);
    }

    #[test]
    fn where_nothing_fits_waiting_counts_for_less_and_that_is_told() {
        // However much the program hides, 100 ns remain for the first role, and for the other the work of the first.
        struct Slow;
        impl Stage for Slow {
            fn alone(&self, _: usize, work: f64, _: Option<Hides>) -> Result<f64, Error> {
                Ok(work + 2.0)
            }

            fn beside(&self, works: &[f64], _: Option<Hides>) -> Result<Vec<f64>, Error> {
                Ok(vec![works[0] + 102.0, works.get(1).map_or(0.0, |work| work + 2.0 + works[0])])
            }
        }
        let timed = [
            Joint { role: 0, takes_ns: 42.0, recorded_ns: 0.0 },
            Joint { role: 1, takes_ns: 80.0, recorded_ns: 0.0 },
        ];
        for work in [0.3, 0.5, 0.9] {
            let mut program = Program::with_works(vec![1.0; 2]);
            settle(&Slow, &timed, Unknown { work, hides: 0.5, error: 0.5 }, &mut program).unwrap();
            assert_eq!(program.misses, [Some(102.0), None]);
            assert_eq!(program.works[0], 42.0 * work);
            let times = Slow.beside(&program.works, None).unwrap();
            for (of, time) in timed.iter().zip(times) {
                let alone = program.works[of.role] + 2.0;
                let took = alone + program.waits[of.role] * (time - alone);
                assert!((took - of.takes_ns).abs() < 1e-6, "{program:?}");
            }
        }
        let timed = [Joint { role: 0, takes_ns: 1.0, recorded_ns: 0.0 }];
        let mut program = Program::with_works(vec![1.0]);
        settle(&Slow, &timed, Unknown { work: 0.0, hides: 0.5, error: 0.5 }, &mut program).unwrap();
        assert_eq!(program.waits, [0.0]);
    }

    #[test]
    fn what_is_known_of_hiding_stays() {
        let known = Hides { lead: 0.25, window: 7_000 };
        let mut program = Program { hides: Some(known), ..Program::with_works(vec![30.0; 2]) };
        let unknown = Unknown { work: 0.5, hides: 0.9, error: 0.5 };
        settle(&Waiting, &TIMED[..1], unknown, &mut program).unwrap();
        assert_eq!(program.hides, Some(known));
    }

    #[test]
    fn a_work_fits_where_the_time_is_met_or_passed() {
        let line = |work: f64| Ok(work + 10.0);
        let (work, miss) = fitting(40.0, 40.0, 0.5, &line).unwrap();
        assert!((work - 30.0).abs() <= 1.2 && miss.is_none(), "{work}");
        // A step: below 20 the time is 25, above it is 50. No work takes exactly 40, but the step crosses it.
        let step = |work: f64| Ok(if work < 20.0 { 25.0 } else { 50.0 });
        let (work, miss) = fitting(40.0, 40.0, 0.9, &step).unwrap();
        assert!((work - 20.0).abs() <= 0.5 && miss.is_none(), "{work}");
    }

    #[test]
    fn of_several_works_points_take_each() {
        let flat = |_: f64| Ok(40.0);
        let works: Vec<f64> = (0..16)
            .map(|point| fitting(40.0, 40.0, (f64::from(point) + 0.5) / 16.0, &flat).unwrap().0)
            .collect();
        let (least, most) =
            works.iter().fold((f64::MAX, 0.0f64), |(a, b), &w| (a.min(w), b.max(w)));
        assert!(least < 6.0 && most > 34.0, "{works:?}");
    }

    #[test]
    fn where_no_work_fits_the_least_that_is_taken_is_told() {
        let slow = |work: f64| Ok(work + 60.0);
        assert_eq!(fitting(40.0, 40.0, 0.3, &slow).unwrap(), (40.0, Some(60.0)));
    }
}
