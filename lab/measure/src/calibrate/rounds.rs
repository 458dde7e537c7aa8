//! Measures in rounds, over some seconds, so that changes of the machine are noticed, and reports the figures of each
//! mode.

use super::modes::{Mode, modes};
use super::probe::{Found, visit};
use super::spread::Spread;
use super::topology::Places;
use ledgerline_coherence::machine::Distance;
use ledgerline_view::terminal::progress::Progress;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The fewest rounds of a mode that gets a machine file.
pub(super) const LEAST_ROUNDS: usize = 3;

/// The pause between two rounds, so that they are not all of one moment.
const PAUSE: Duration = Duration::from_millis(120);

/// All visits to a pair of CPUs that are `distance` apart.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    pub(super) cpus: [usize; 2],
    pub(super) distance: Distance,
    pub(super) visits: Vec<Found>,
}

impl Pair {
    /// Returns the modes of its transfers, the most frequent first.
    pub(super) fn modes(&self) -> Vec<Mode> {
        let games = self.visits.iter().flat_map(|visit| [visit.before, visit.after]);
        modes(&games.collect::<Vec<f64>>())
    }

    /// Returns the visits during all of which the machine was in a mode.
    pub(super) fn during<'a>(&'a self, mode: &'a Mode) -> impl Iterator<Item = &'a Found> + Clone {
        self.visits.iter().filter(|visit| mode.holds(visit.before) && mode.holds(visit.after))
    }

    /// Returns whether a mode has enough rounds to be described.
    pub(super) fn settled(&self) -> bool {
        self.modes().iter().any(|mode| self.during(mode).count() >= LEAST_ROUNDS)
    }

    /// Returns a figure over the visits of a mode; none if each try was disturbed.
    pub(super) fn figure(&self, mode: &Mode, figure: impl Fn(&Found) -> f64) -> Option<Spread> {
        Spread::of(self.during(mode).map(figure))
    }
}

/// Returns one pair for each distance: the first two CPUs, then others, the nearest first.
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

/// Visits every pair `rounds` times. If that takes longer than `patience`, because other programs share the CPUs, it
/// visits each pair fewer times, but at least three. If the machine changed so often that no mode has enough visits,
/// it continues until `patience` ends.
///
/// # Errors
/// If a CPU cannot be used.
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
}
