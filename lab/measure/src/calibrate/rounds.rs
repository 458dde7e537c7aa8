//! Measuring in rounds, over some seconds, so that a machine that changes is seen to change; and what each
//! of its modes comes to.

use super::modes::{Mode, modes};
use super::probe::{Found, visit};
use super::topology::Places;
use crate::stats::median;
use ledgerline_coherence::machine::Distance;
use ledgerline_terminal::progress::Progress;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Rounds of a mode without which it gets no machine file.
pub(super) const LEAST_ROUNDS: usize = 3;

/// Between two rounds, so that they are not all of one moment.
const PAUSE: Duration = Duration::from_millis(120);

/// A figure over the rounds: the median, and between which values all but the outer tenths lie.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) value: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

impl Spread {
    /// None of numbers only that are none.
    pub(super) fn of(values: impl Iterator<Item = f64>) -> Option<Spread> {
        let mut sorted: Vec<f64> = values.filter(|value| value.is_finite()).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let last = sorted.len().checked_sub(1)?;
        let outer = last / 10;
        Some(Spread { value: median(&sorted), low: sorted[outer], high: sorted[last - outer] })
    }

    /// What is less than `least` is that much.
    pub(super) fn at_least(self, least: f64) -> Spread {
        let Spread { value, low, high } = self;
        Spread { value: value.max(least), low: low.max(least), high: high.max(least) }
    }
}

/// All visits to a pair of CPUs that are `distance` apart.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    pub(super) cpus: [usize; 2],
    pub(super) distance: Distance,
    pub(super) visits: Vec<Found>,
}

impl Pair {
    /// The modes of its transfers, the most frequent first.
    pub(super) fn modes(&self) -> Vec<Mode> {
        let games = self.visits.iter().flat_map(|visit| [visit.before, visit.after]);
        modes(&games.collect::<Vec<f64>>())
    }

    /// The visits during all of which the machine was in a mode.
    pub(super) fn during<'a>(&'a self, mode: &'a Mode) -> impl Iterator<Item = &'a Found> + Clone {
        self.visits.iter().filter(|visit| mode.holds(visit.before) && mode.holds(visit.after))
    }

    /// Whether a mode has enough rounds to be described.
    pub(super) fn settled(&self) -> bool {
        self.modes().iter().any(|mode| self.during(mode).count() >= LEAST_ROUNDS)
    }

    /// A figure over the visits of a mode; none where each try was disturbed.
    pub(super) fn figure(&self, mode: &Mode, figure: impl Fn(&Found) -> f64) -> Option<Spread> {
        Spread::of(self.during(mode).map(figure))
    }
}

/// One pair for each distance that there is: the first two CPUs, then others, the nearest first.
pub(super) fn pairs(cpus: &[usize], places: &Places) -> Vec<Pair> {
    let mut pairs: Vec<Pair> = Vec::new();
    for other in 1..cpus.len() {
        for one in 0..other {
            let distance = places.distance(one, other);
            if pairs.iter().all(|pair| pair.distance != distance) {
                let cpus = [cpus[one], cpus[other]];
                pairs.push(Pair { cpus, distance, visits: Vec::new() });
            }
        }
    }
    pairs[1..].sort_by_key(|pair| pair.distance);
    pairs
}

/// Visits every pair `rounds` times, or fewer, but three, where that takes longer than `patience`: who
/// shares the CPUs with others gets fewer rounds. Where the machine changed so often that no mode has enough of
/// them, it goes on as long as `patience` lasts.
///
/// # Errors
/// A CPU that cannot be used.
pub(super) fn measure(
    pairs: &mut [Pair],
    rounds: usize,
    patience: Duration,
    progress: &Progress,
) -> Result<(), String> {
    let start = Instant::now();
    for round in 1.. {
        let enough = round > rounds && pairs[0].settled();
        if enough || round > LEAST_ROUNDS && start.elapsed() > patience {
            break;
        }
        for pair in &mut *pairs {
            let [one, other] = pair.cpus;
            let rounds = rounds.max(round);
            progress.show(format_args!("round {round} of {rounds}: CPUs {one} and {other}"));
            pair.visits.push(visit(pair.cpus)?);
        }
        sleep(PAUSE);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_pair_for_each_distance_and_the_first_two_cpus_come_first() {
        let place = |core: &str, complex: &str| super::super::topology::Place {
            package: "0".to_owned(),
            complex: complex.to_owned(),
            core: core.to_owned(),
        };
        let list = vec![place("0", "a"), place("1", "a"), place("2", "b"), place("0", "a")];
        let pairs = pairs(&[0, 2, 4, 1], &Places::from(list, false));
        let found: Vec<_> = pairs.iter().map(|pair| (pair.cpus, pair.distance)).collect();
        let (near, sibling) = (([0, 2], Distance::Near), ([0, 1], Distance::Sibling));
        assert_eq!(found, [near, sibling, ([0, 4], Distance::Socket)]);
    }

    #[test]
    fn a_spread_leaves_the_outer_tenths_out() {
        let spread = Spread::of((0..=20).map(f64::from).chain([f64::NAN])).unwrap();
        assert_eq!(spread, Spread { value: 10.0, low: 2.0, high: 18.0 });
        assert_eq!(Spread::of([7.0].into_iter()).unwrap().low, 7.0);
        assert_eq!(Spread::of([f64::NAN].into_iter()), None);
    }
}
