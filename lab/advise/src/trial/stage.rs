//! Sets up objects in memory and threads on CPUs, and plays both layouts in turn.

use std::sync::Mutex;
use std::time::Duration;

use crate::cost::{PAIR, Place, Script, script};
use crate::profile::{Instances, Row};
use crate::uses::Uses;
use ledgerline_bench::measure::harness::{self, Case, Rounds, Step};
use ledgerline_bench::measure::machine;
use ledgerline_bench::measure::padded::Padded;
use ledgerline_bench::measure::shuffle::shuffle;
use ledgerline_bench::measure::stats::{median, quantile};
use ledgerline_coherence::experiments::Interval;
use ledgerline_layout::Error;

use crate::trial::acts::acts;
use crate::trial::play::{Actor, Block, Op};
use crate::trial::tune::{Pace, Tuned};

/// Seconds for which a layout is played before the other one's turn.
const ROUND: f64 = 0.01;
/// The least and the most rounds of a layout.
const ROUNDS: (f64, f64) = (5.0, 400.0);
/// The most offsets in a pair of lines at which objects begin.
const PLACES: usize = 4;
/// Bytes of memory for all objects.
const MOST_BYTES: u64 = 512 << 20;
/// A round is quiet if no thread waited for its CPU for more than this share of it.
const QUIET: f64 = 0.02;
/// The number of quiet rounds that is enough.
const LEAST_QUIET: usize = 5;
/// An operation that is longer than it should be by this share differs from the profile.
const TOO_LONG: f64 = 0.1;

/// The places of a type's fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Bytes of the type.
    pub size: u64,
    /// The places of its touched fields.
    pub place: Place,
}

/// The input of a replay.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    /// The accesses.
    pub uses: &'a Uses,
    /// Today's places of the fields.
    pub today: &'a Order,
    /// The proposed places of the fields.
    pub proposed: Option<&'a Order>,
    /// The CPUs that take part: thread `i` runs on the `i`-th.
    pub cpus: &'a [usize],
    /// About the length of the replay, to which some tenths of a second of preparation add.
    pub seconds: f64,
}

/// The result of a replay. Ranges hold nine tenths of the rounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Nanoseconds an operation, averaged over the CPUs.
    pub today: Interval,
    /// The same for the proposed order, and the difference.
    pub proposed: Option<(Interval, Gain)>,
    /// Number of rounds of each layout that count: the quiet ones, if there are enough.
    pub rounds: usize,
    /// The time of a line from one CPU to another during the replay, in nanoseconds, if two took part.
    pub transfer_ns: Option<f64>,
    /// The share of those rounds in which other programs had the CPU of a thread.
    pub disturbed: f64,
    /// Roles whose operations are too short for a replay.
    pub short: Vec<Short>,
    /// Roles without a CPU, because there are too few.
    pub absent: Vec<String>,
    /// The number of objects that were used, if the profile has more.
    pub objects: Option<usize>,
}

/// The gain of the proposed order, from the differences of rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gain {
    /// Nanoseconds an operation that it saves.
    pub ns: Interval,
    /// The increase of throughput, in per cent.
    pub throughput: Interval,
}

/// A role whose operations are shorter than a replay can make them.
#[derive(Clone, Debug, PartialEq)]
pub struct Short {
    /// The role.
    pub role: String,
    /// The time of an operation alone by the profile, in nanoseconds.
    pub wanted_ns: f64,
    /// The time alone in the replay.
    pub replayed_ns: f64,
}

/// Replays a plan.
///
/// # Errors
/// If no CPU is named, a CPU cannot be used, or the type is too large.
///
/// # Panics
/// If a place does not belong to these uses.
pub fn measure(plan: &Plan<'_>, progress: &(dyn Fn(Step) + Sync)) -> Result<Measured, Error> {
    if plan.cpus.is_empty() {
        return Err(Error::new("a replay needs a CPU"));
    }
    if !(plan.seconds > 0.0 && plan.seconds <= 3600.0) {
        return Err(Error::new("a replay takes more than no time, and an hour at most"));
    }
    let scenes = scenes(plan)?;
    let cases: Vec<Case<'_>> = scenes.iter().map(Scene::case).collect();
    let each = plan.seconds / cases.len() as f64;
    let runs = (each / ROUND).clamp(ROUNDS.0, ROUNDS.1).round();
    let timing = harness::Plan {
        threads: plan.cpus.len(),
        runs: runs as usize,
        // One more round warms up.
        round: Duration::from_secs_f64(each / (runs + 1.0)),
        cpus: plan.cpus.to_vec(),
    };
    let rounds = harness::rounds(&cases, &timing, progress);
    drop(cases);
    Ok(sum_up(plan, &scenes, &rounds))
}

/// A layout with one offset of objects in a pair of lines, and the threads that use them.
struct Scene {
    name: &'static str,
    script: Script,
    tuned: Vec<Tuned>,
    /// The number of passes of a role while the slowest role does one.
    batches: Vec<u64>,
    actors: Vec<Padded<Mutex<Actor>>>,
    block: Block,
    /// The number of objects in the block, if the profile has more.
    objects: Option<usize>,
}

/// Returns the layouts in the order in which they are played: today's and the proposed one, for each offset of objects.
fn scenes(plan: &Plan<'_>) -> Result<Vec<Scene>, Error> {
    let orders = [("today", Some(plan.today)), ("proposed", plan.proposed)];
    let orders = orders.into_iter().filter_map(|(name, order)| Some((name, order?)));
    let places = |order: &Order| match order.place.row {
        Some(Row { begins: Some(_), .. }) => 1,
        _ => (PAIR / order.place.base.clamp(1, PAIR)) as usize,
    };
    let places = orders.clone().map(|(_, order)| places(order)).max().unwrap_or(1).min(PLACES);
    // The times alone are measured on a CPU that takes part.
    let cpu = plan.cpus[0];
    let build = || {
        machine::pin(cpu).map_err(|error| Error::new(format!("CPU {cpu}: {error}")))?;
        let pace = Pace::measure();
        let room = MOST_BYTES / (places * orders.clone().count()) as u64;
        let mut scenes = Vec::new();
        for point in 0..places {
            for (name, order) in orders.clone() {
                scenes.push(Scene::new(name, plan, order, point, (&pace, room))?);
            }
        }
        Ok(scenes)
    };
    std::thread::scope(|scope| {
        let built = scope.spawn(build).join();
        built.unwrap_or_else(|why| std::panic::resume_unwind(why))
    })
}

impl Scene {
    fn new(
        name: &'static str,
        plan: &Plan<'_>,
        order: &Order,
        point: usize,
        (pace, room): (&Pace, u64),
    ) -> Result<Scene, Error> {
        let (uses, cpus) = (plan.uses, plan.cpus.len());
        let begins = order.place.begins(point);
        let script = script(uses, &order.place, begins, cpus);
        let touched = script.offsets.values().map(|offset| offset + 1).max().unwrap_or(1);
        let alone = order.size.max(touched).saturating_add(begins).next_multiple_of(PAIR);
        let stride = order.place.row.map_or(alone, |row| row.stride);
        if alone.max(stride) > room / (cpus as u64 + 1) {
            let error = Error::new(format!("{} has {} bytes", uses.name, order.size));
            return Err(error.advise("it is too large to be replayed"));
        }
        let asked = match uses.instances {
            Instances::Shared => 1,
            Instances::PerCpu | Instances::Row(_) => cpus,
            Instances::Dealt(count) => count.max(1),
        };
        let count = asked.min((room / stride) as usize);
        let objects = (count < asked).then_some(count);
        // The last object of a row may reach beyond its stride.
        let block = Block::new(stride as usize * count + alone as usize);
        let tuned: Vec<Tuned> = (script.roles.iter())
            .map(|part| pace.tune(&acts(part, &script.offsets, begins), touched as usize))
            .collect();
        let longest = script.dealt.iter().map(|&role| tuned[role].wanted).fold(0.0, f64::max);
        let batch = |tuned: &Tuned| (longest / tuned.wanted.max(1e-3)).round().clamp(1.0, 1e6);
        let batches = tuned.iter().map(|tuned| batch(tuned) as u64).collect();
        let actor = |thread| {
            // If there are fewer objects than threads, threads share them like CPUs in the simulation.
            let mut mine: Vec<u32> = if count < cpus {
                vec![(thread % count) as u32]
            } else {
                (thread..count).step_by(cpus).map(|object| object as u32).collect()
            };
            if mine.len() > 1 {
                // A random order, which no prefetcher learns.
                shuffle(&mut mine);
            }
            let start = |object: u32| (u64::from(object) * stride + begins) as u32;
            Padded(Mutex::new(Actor::new(thread, mine.into_iter().map(start).collect())))
        };
        let actors = (0..cpus).map(actor).collect();
        Ok(Scene { name, script, tuned, batches, actors, block, objects })
    }

    fn case(&self) -> Case<'_> {
        let body = |thread: usize, times| {
            let role = self.script.dealt[thread];
            let ops: &[Op] = &self.tuned[role].ops;
            // Only this thread locks its actor.
            let mut actor = self.actors[thread].lock().expect("no actor panics");
            actor.play(ops, &self.block, times * self.batches[role]);
        };
        Case { name: self.name, granule: 1, body: Box::new(body) }
    }

    /// Returns the time of an operation in each round, averaged over roles by their shares like a prediction.
    fn operations(&self, uses: &Uses, rounds: &Rounds) -> Vec<f64> {
        let count = rounds.threads.first().map_or(0, Vec::len);
        let operation = |round: usize| {
            let (mut sum, mut shares) = (0.0, 0.0);
            for (role, part) in self.script.roles.iter().enumerate() {
                let threads = (0..self.actors.len()).filter(|&t| self.script.dealt[t] == role);
                let times: Vec<f64> = threads.map(|t| rounds.threads[t][round]).collect();
                if !times.is_empty() {
                    // The rates of a role's CPUs add up.
                    let rate: f64 = times.iter().map(|time| 1.0 / time.max(1e-9)).sum();
                    let pass = times.len() as f64 / rate / self.batches[role] as f64;
                    sum += uses.roles[role].share * part.passes * pass;
                    shares += uses.roles[role].share;
                }
            }
            sum / shares.max(f64::MIN_POSITIVE)
        };
        (0..count).map(operation).collect()
    }
}

fn sum_up(plan: &Plan<'_>, scenes: &[Scene], rounds: &[Rounds]) -> Measured {
    let turns = turns(plan, scenes, rounds);
    // While one thread has no CPU, the others share with no thread: such rounds flatter both layouts.
    let quiet: Vec<Turn> = turns.iter().copied().filter(|turn| turn.disturbed <= QUIET).collect();
    let counted = if quiet.len() >= LEAST_QUIET { quiet } else { turns };
    let of = |what: &dyn Fn(&Turn) -> f64| most_of(&counted.iter().map(what).collect::<Vec<_>>());
    let proposed = plan.proposed.map(|_| {
        let gain = Gain {
            ns: of(&|turn| turn.today - turn.proposed),
            throughput: of(&|turn| 100.0 * (turn.today / turn.proposed - 1.0)),
        };
        (of(&|turn| turn.proposed), gain)
    });
    let transfers = rounds.iter().filter_map(|rounds| Some(rounds.transfer?.median));
    let transfers: Vec<f64> = transfers.collect();
    let dealt = &scenes[0].script.dealt;
    let roles = &plan.uses.roles;
    let here = (0..roles.len()).filter(|role| dealt.contains(role));
    let short = here.filter_map(|role| {
        let excess = |scene: &&Scene| scene.tuned[role].excess();
        let worst = scenes.iter().max_by(|a, b| excess(a).total_cmp(&excess(b)))?;
        let (tuned, passes) = (&worst.tuned[role], worst.script.roles[role].passes);
        (tuned.excess() > TOO_LONG).then(|| Short {
            role: roles[role].name.clone(),
            wanted_ns: passes * tuned.wanted,
            replayed_ns: passes * tuned.taken,
        })
    });
    let absent = (0..roles.len()).filter(|role| !dealt.contains(role) && roles[*role].share > 0.0);
    Measured {
        today: of(&|turn| turn.today),
        proposed,
        rounds: counted.len(),
        transfer_ns: (!transfers.is_empty()).then(|| median(&transfers)),
        disturbed: counted.iter().map(|turn| turn.disturbed).sum::<f64>() / counted.len() as f64,
        short: short.collect(),
        absent: absent.map(|role| roles[role].name.clone()).collect(),
        objects: scenes.iter().filter_map(|scene| scene.objects).min(),
    }
}

/// A round of each layout, one right after the other.
#[derive(Clone, Copy, Debug)]
struct Turn {
    today: f64,
    /// The time of today's order if no order is proposed.
    proposed: f64,
    disturbed: f64,
}

fn turns(plan: &Plan<'_>, scenes: &[Scene], rounds: &[Rounds]) -> Vec<Turn> {
    let times: Vec<Vec<f64>> = (scenes.iter().zip(rounds))
        .map(|(scene, rounds)| scene.operations(plan.uses, rounds))
        .collect();
    let orders = if plan.proposed.is_some() { 2 } else { 1 };
    let mut turns = Vec::new();
    for (times, rounds) in times.chunks(orders).zip(rounds.chunks(orders)) {
        let pairs = times[0].iter().zip(&times[orders - 1]).enumerate();
        turns.extend(pairs.map(|(round, (&today, &proposed))| {
            let disturbed = rounds.iter().map(|of| of.disturbed[round]).fold(0.0, f64::max);
            Turn { today, proposed, disturbed }
        }));
    }
    turns
}

/// Returns the median, and the range of nine tenths of the values: a round in which the machine was disturbed is no
/// property of a layout.
fn most_of(values: &[f64]) -> Interval {
    let [low, median, high] = [0.05, 0.5, 0.95].map(|share| quantile(values, share));
    Interval { median, low, high }
}

#[cfg(test)]
mod tests;
