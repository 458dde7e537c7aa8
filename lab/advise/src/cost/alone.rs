//! What the time of a thread that runs alone says of its program, at one design point.
//!
//! A time beside others is work and waiting, and does not say how much of each: a processor that works while it waits
//! looks as one that has less to do. A time alone has no waiting. So it says the work, and then the time beside others
//! says how much of the waiting the processor hides:
//!
//! ```text
//! work    the simulation of the role on one CPU takes the time alone
//! window  the simulation of all takes the times beside others; from nothing to as far as windows reach
//! waits   what was measured beyond the time alone, as a share of what is simulated beyond it
//! ```
//!
//! The share is one where the model is right. It corrects what is left, for this machine and program: what another layout
//! saves of the simulated waiting, it saves of the measured one.

use ledgerline_layout::Error;

/// No processor works on for longer while it waits, in picoseconds.
const LONGEST_WINDOW: u64 = 120_000;
/// How often the reach of the window is halved.
const HALVINGS: usize = 5;
/// By what share a time may be off: small programs whose fields lie apart took up to 8 % more or less beside others than
/// alone (`ci/predictions`, AMD EPYC (Zen 3), 2026-11-23).
const TIMING: f64 = 0.08;
/// How near a simulated time is to one that is looked for, as a share.
const NEAR: f64 = 0.003;
/// How often works are halved.
const WORK_HALVINGS: usize = 10;
/// Simulated waiting below this share of a time says nothing of how much is waited.
const TOLD: f64 = 0.02;
/// The correction is not larger: what is simulated is something else than what was timed.
pub(crate) const MOST_WAITS: f64 = 4.0;

/// A role that was timed alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lone {
    pub role: usize,
    /// Its part of the CPUs.
    pub share: f64,
    /// What an operation takes alone, in nanoseconds.
    pub ns: f64,
    /// What it takes beside the others.
    pub takes_ns: Option<f64>,
}

impl Lone {
    /// The same with times that are off, by numbers from -1 to 1.
    pub(super) fn off(self, alone: f64, takes: f64) -> Lone {
        Lone {
            ns: self.ns * (1.0 + TIMING * alone),
            takes_ns: self.takes_ns.map(|ns| ns * (1.0 + TIMING * takes)),
            ..self
        }
    }
}

/// Simulates the program at a design point; windows are in picoseconds, the point's own where none is given.
pub(super) trait Stage {
    /// What an operation of a role takes on one CPU, with a work.
    fn alone(&self, role: usize, work: f64, window: Option<u64>) -> Result<f64, Error>;
    /// What an operation of each role takes beside the others, with works.
    fn beside(&self, works: &[f64], window: Option<u64>) -> Result<Vec<f64>, Error>;
}

/// Puts the works of the roles in place, and says the window with which the simulation is as near to the times beside
/// others as it comes. `which`, from 0 to 1, chooses among works that fit. Where none does, `misses` says what the
/// simulation takes at least.
pub(super) fn works(
    stage: &dyn Stage,
    lone: &[Lone],
    which: f64,
    works: &mut [f64],
    misses: &mut [Option<f64>],
) -> Result<Option<u64>, Error> {
    // By what the simulation is too slow, over all roles that were timed both ways; hiding more makes it faster.
    let mut slow = |window: Option<u64>| -> Result<f64, Error> {
        for of in lone {
            let alone = |work| stage.alone(of.role, work, window);
            (works[of.role], misses[of.role]) = work(of.ns, which, &alone)?;
        }
        if lone.iter().all(|of| of.takes_ns.is_none()) {
            return Ok(0.0);
        }
        let times = stage.beside(works, window)?;
        let beyond = |of: &Lone| of.takes_ns.map(|takes| of.share * (times[of.role] - takes));
        Ok(lone.iter().filter_map(beyond).sum())
    };
    if lone.iter().all(|of| of.takes_ns.is_none()) {
        slow(None)?;
        return Ok(None);
    }
    let (mut low, mut high) = (0, LONGEST_WINDOW);
    if slow(Some(low))? <= 0.0 {
        return Ok(Some(low));
    }
    if slow(Some(high))? >= 0.0 {
        return Ok(Some(high));
    }
    for _ in 0..HALVINGS {
        let middle = u64::midpoint(low, high);
        *(if slow(Some(middle))? > 0.0 { &mut low } else { &mut high }) = middle;
    }
    let window = u64::midpoint(low, high);
    slow(Some(window))?;
    Ok(Some(window))
}

/// One of the works with which an operation takes `ns` alone; more work never takes less. Where it takes longer without
/// any, nothing, and how long.
fn work(
    ns: f64,
    which: f64,
    time: &dyn Fn(f64) -> Result<f64, Error>,
) -> Result<(f64, Option<f64>), Error> {
    let least = time(0.0)?;
    if least > ns * (1.0 + NEAR) {
        return Ok((0.0, Some(least)));
    }
    // From which work on it takes longer than that.
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

/// By role, how many times what is simulated beyond the time alone was measured; one where nobody knows.
pub(super) fn waits(
    stage: &dyn Stage,
    lone: &[Lone],
    works: &[f64],
    window: Option<u64>,
) -> Result<Vec<f64>, Error> {
    let times = stage.beside(works, window)?;
    let mut waits = vec![1.0; works.len()];
    for of in lone {
        let Some(takes) = of.takes_ns else { continue };
        let alone = stage.alone(of.role, works[of.role], window)?;
        let simulated = times[of.role] - alone;
        if simulated > TOLD * alone {
            waits[of.role] = ((takes - of.ns) / simulated).clamp(0.0, MOST_WAITS);
        }
    }
    Ok(waits)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Operations that wait 40 ns for others, times a factor, less what the window hides.
    struct Waiting {
        factor: f64,
    }

    impl Stage for Waiting {
        fn alone(&self, _: usize, work: f64, _: Option<u64>) -> Result<f64, Error> {
            Ok(work + 2.0)
        }

        fn beside(&self, works: &[f64], window: Option<u64>) -> Result<Vec<f64>, Error> {
            let hidden = window.unwrap_or(0) as f64 / 1000.0;
            Ok(works
                .iter()
                .map(|work| work + 2.0 + (40.0 * self.factor - hidden).max(0.0))
                .collect())
        }
    }

    fn settled(factor: f64, takes_ns: Option<f64>) -> (Vec<f64>, Option<u64>, Vec<f64>) {
        let stage = Waiting { factor };
        let lone = [Lone { role: 0, share: 1.0, ns: 32.0, takes_ns }];
        let mut found = vec![0.0];
        let window = works(&stage, &lone, 0.5, &mut found, &mut [None]).unwrap();
        let waits = waits(&stage, &lone, &found, window).unwrap();
        (found, window, waits)
    }

    #[test]
    fn a_time_alone_says_the_work_and_one_beside_others_what_is_hidden() {
        let (work, window, waits) = settled(1.0, Some(47.0));
        assert!((work[0] - 30.0).abs() < 0.1, "{work:?}");
        // 15 of 40 are waited.
        assert!((window.unwrap() as f64 / 1000.0 - 25.0).abs() < 4.0, "{window:?}");
        assert!((waits[0] - 1.0).abs() < 0.3, "{waits:?}");
    }

    #[test]
    fn what_no_window_explains_is_a_factor() {
        let (_, window, waits) = settled(0.5, Some(62.0));
        assert_eq!(window, Some(0));
        assert!((waits[0] - 1.5).abs() < 0.1, "30 measured, 20 simulated: {waits:?}");
        let (_, window, waits) = settled(10.0, Some(42.0));
        assert_eq!(window, Some(LONGEST_WINDOW));
        assert!((waits[0] - 10.0 / 280.0).abs() < 0.01, "{waits:?}");
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
