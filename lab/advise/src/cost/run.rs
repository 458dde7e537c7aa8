//! Runs the simulations behind a cost, one for each design point.

use std::collections::HashMap;

use ledgerline_coherence::experiments::each;
use ledgerline_coherence::layout::FieldId;
use ledgerline_coherence::machine::Settings;
use ledgerline_coherence::program;
use ledgerline_coherence::simulate::{Outcome, Setup, Window};
use ledgerline_layout::Error;

use super::steps::{self, Fetch, Running};
use super::{Place, Point, Question};
use crate::profile::Role;
use crate::uses::{Touch, Uses};

/// About the most accesses in the simulation of one point.
const MOST_ACCESSES: f64 = 8e5;
/// The same if one point needs many simulations.
const QUICK: f64 = 1e5;
/// How often the rarest phase should occur in the observed time, over all CPUs.
const RARE_SEEN: f64 = 400.0;
/// The least number of operations of a CPU in the observed time.
const LEAST_OPERATIONS: f64 = 200.0;

pub(super) fn points(
    question: &Question<'_>,
    uses: &Uses,
    place: &Place,
) -> Result<Vec<Point>, Error> {
    question.check()?;
    assert_eq!(place.offsets.len(), uses.spots.len(), "a place has an offset for each spot");
    let settings = question.machine.design(question.points);
    let dealt = deal(&uses.roles, question.cpus);
    each(&settings, |point, settings| {
        // Without times, these are the uses as they are.
        let settled = uses.settled.get(point).cloned().unwrap_or_default();
        let (uses, settings) = (&uses.with_works(&settled.works), settled.on(settings));
        let (begins, between) = (place.begins(point), settled.between);
        simulate(&Stage { settings, uses, place, begins, between }, &dealt, &settled.waits)
    })
}

/// The input of a simulation, except the CPUs.
pub(super) struct Stage<'a> {
    pub settings: Settings,
    pub uses: &'a Uses,
    pub place: &'a Place,
    /// The offset in a pair of lines at which objects begin.
    pub begins: u64,
    /// See [`Settled::between`](crate::uses::Settled::between).
    pub between: f64,
}

/// Returns the time of an operation of each role, in nanoseconds.
pub(super) fn times(stage: &Stage<'_>, dealt: &[usize]) -> Result<Vec<f64>, Error> {
    let simulated = Simulated::run(stage, dealt, QUICK)?;
    let last: f64 = simulated.fetching.iter().map(|(_, last)| last).sum();
    Ok(simulated.times(stage.uses).into_iter().map(|time| time + last).collect())
}

/// Returns the role of each CPU: as near to the shares as whole CPUs allow, spread evenly over the machine.
pub(crate) fn deal(roles: &[Role<Touch>], cpus: usize) -> Vec<usize> {
    let shares: Vec<f64> = roles.iter().map(|role| role.share).collect();
    let mut dealt = program::deal(&shares, cpus);
    let mut counts = vec![0usize; roles.len()];
    dealt.iter().for_each(|&role| counts[role] += 1);
    // A rare role gets a CPU too, if there are enough.
    for role in 0..roles.len() {
        if counts[role] == 0 && roles[role].share > 0.0 {
            let most = (0..roles.len()).max_by_key(|&other| counts[other]).unwrap_or(role);
            if counts[most] > 1
                && let Some(cpu) = dealt.iter().rposition(|&other| other == most)
            {
                dealt[cpu] = role;
                counts[most] -= 1;
                counts[role] += 1;
            }
        }
    }
    dealt
}

fn simulate(stage: &Stage<'_>, dealt: &[usize], waits: &[f64]) -> Result<Point, Error> {
    let uses = stage.uses;
    // The times of operations alone, which `waits` does not scale.
    let alone = |role: usize| {
        let alone = Simulated::run(stage, &[role], QUICK)?;
        Ok::<f64, Error>(alone.times(uses)[role])
    };
    let alone = (0..waits.len()).map(alone).collect::<Result<Vec<f64>, Error>>()?;
    let simulated = Simulated::run(stage, dealt, MOST_ACCESSES)?;
    let mut point = simulated.point(uses, &alone, waits);
    point.nanoseconds += simulated.fetching.iter().map(|(_, last)| last).sum::<f64>();
    point.fetching = simulated.fetching.into_iter().map(|(second, last)| second + last).collect();
    Ok(point)
}

/// A finished simulation.
struct Simulated {
    outcome: Outcome,
    running: Vec<Running>,
    /// The spot of each field in the simulator.
    spot_of: HashMap<FieldId, usize>,
    /// First touches of lines, by spot: from the second cache, and from the last.
    fetching: Vec<(f64, f64)>,
}

impl Simulated {
    fn run(stage: &Stage<'_>, dealt: &[usize], most: f64) -> Result<Simulated, Error> {
        let &Stage { ref settings, uses, place, begins, between } = stage;
        let (layout, fields) = steps::layout(uses, place, begins, dealt.len());
        let fetch = Fetch::new(settings, uses, dealt.len());
        let fetching = steps::fetching(&fetch, uses, place, begins);
        let hit_cycles = settings.in_cycles(settings.first_cache as f64);
        let running: Vec<Running> = (uses.roles.iter())
            .map(|role| {
                steps::running(role, uses, &fields, settings.clock_ghz, hit_cycles, between)
            })
            .collect();
        let spots = fields.iter().enumerate();
        let spot_of =
            spots.flat_map(|(spot, fields)| fields.iter().map(move |&field| (field, spot)));
        let spot_of = spot_of.collect();
        let setup = Setup {
            settings: settings.clone(),
            layout,
            programs: running.iter().map(|running| running.program.clone()).collect(),
            cpus: dealt.to_vec(),
            window: window(uses, &running, dealt, most),
            seed: 1,
        };
        let outcome =
            setup.run().map_err(|error| Error::new(error.to_string()).within(&uses.name))?;
        Ok(Simulated { outcome, running, spot_of, fetching })
    }

    /// Returns the time of an operation of each role, in nanoseconds. A role without a CPU has its work as its time.
    fn times(&self, uses: &Uses) -> Vec<f64> {
        let Simulated { outcome, running, .. } = self;
        let time = |role: usize| match outcome.cpus_of[role] {
            0 => uses.roles[role].work_ns,
            cpus => {
                let passes = outcome.operations[role].max(1) as f64;
                let window = outcome.picoseconds as f64 / 1000.0;
                running[role].passes * cpus as f64 * window / passes
            }
        };
        (0..running.len()).map(time).collect()
    }

    /// Returns the point, in nanoseconds an operation. If `alone` is not empty, the time of a role beyond its time
    /// `alone` is multiplied by `waits`.
    fn point(&self, uses: &Uses, alone: &[f64], waits: &[f64]) -> Point {
        let Simulated { outcome, spot_of, .. } = self;
        let (mut simulated, mut nanoseconds, mut shares) = (0.0, 0.0, 0.0);
        // The scaled time beyond the times alone.
        let mut counted = 0.0;
        for (role, time) in self.times(uses).into_iter().enumerate() {
            let share = uses.roles[role].share;
            if outcome.cpus_of[role] == 0 {
                continue;
            }
            shares += share;
            simulated += share * time;
            nanoseconds += share * time;
            if let (Some(alone), Some(waits)) = (alone.get(role), waits.get(role)) {
                let beyond = (time - alone).max(0.0);
                nanoseconds += share * (waits - 1.0) * beyond;
                counted += share * waits * beyond;
            }
        }
        let simulated = simulated / shares.max(f64::MIN_POSITIVE);
        let nanoseconds = nanoseconds / shares.max(f64::MIN_POSITIVE);
        let counted = counted / shares.max(f64::MIN_POSITIVE);
        // Converts a time of all CPUs to its part of an operation.
        let all = outcome.cpus as f64 * outcome.picoseconds as f64;
        let share = |stalled: u64| stalled as f64 / all * simulated;
        // The time beyond the times alone is split over the stalls in proportion.
        let stood = share(outcome.stalled);
        let counts = match stood {
            _ if alone.is_empty() => 1.0,
            0.0 => 0.0,
            stood => counted / stood,
        };
        let part = |stalled: u64| share(stalled) * counts;
        let mut point = Point { nanoseconds, waiting: part(outcome.stalled), ..Point::default() };
        for blame in &outcome.blame {
            let pair = (spot_of[&blame.writer], spot_of[&blame.victim]);
            *point.pairs.entry(pair).or_default() += part(blame.stalled);
        }
        for line in &outcome.lines {
            // Transfers while every CPU does one operation, divided by the CPUs.
            let times = line.transfers as f64 / all * 1000.0 * simulated;
            *point.transfers.entry(spot_of[&line.field]).or_default() += times;
        }
        point
    }
}

/// Returns the time to simulate: long enough to see rare phases, and short enough for a user to wait.
fn window(uses: &Uses, running: &[Running], dealt: &[usize], most: f64) -> Window {
    let mut length = 100_000f64;
    let mut rate = 0.0;
    for (role, running) in running.iter().enumerate() {
        let cpus = dealt.iter().filter(|&&dealt| dealt == role).count() as f64;
        if cpus == 0.0 {
            continue;
        }
        // The time of the accesses is not known yet, so each is assumed to be short.
        let pass = uses.roles[role].work_ns / running.passes + 5.0 + 5.0 * running.accesses;
        length = length.max(LEAST_OPERATIONS * pass);
        length = length.max(RARE_SEEN / running.rarest.max(1e-9) * pass / cpus);
        rate += cpus * running.accesses.max(0.1) / pass;
    }
    let length = length.min(most / rate.max(1e-9)).clamp(1_000.0, 8e8);
    Window { from_ns: 0.1 * length, to_ns: 1.1 * length }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::WorkBasis;

    fn roles(shares: &[f64]) -> Vec<Role<Touch>> {
        let role = |&share| Role {
            name: String::new(),
            share,
            work_ns: 1.0,
            basis: WorkBasis::Stated,
            phases: Vec::new(),
        };
        shares.iter().map(role).collect()
    }

    #[test]
    fn cpus_are_dealt_by_share_and_nobody_is_left_out() {
        let count = |dealt: &[usize], role| dealt.iter().filter(|&&of| of == role).count();
        let dealt = deal(&roles(&[0.75, 0.25]), 72);
        assert_eq!((count(&dealt, 0), count(&dealt, 1)), (54, 18));
        // The roles are spread evenly: every four CPUs have one of the second role.
        assert!(dealt.chunks(4).all(|four| count(four, 1) == 1));
        let dealt = deal(&roles(&[0.99, 0.01]), 8);
        assert_eq!((count(&dealt, 0), count(&dealt, 1)), (7, 1));
        assert_eq!(deal(&roles(&[0.5, 0.5]), 1).len(), 1);
    }
}
