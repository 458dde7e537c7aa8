//! Objects in memory, threads on CPUs, and rounds of both layouts in turn.

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

/// How long a layout is played before it is the other's turn.
const ROUND: f64 = 0.01;
/// Rounds of a layout, at least and at most.
const ROUNDS: (f64, f64) = (5.0, 400.0);
/// Where in a pair of lines objects begin, at most so many places.
const PLACES: usize = 4;
/// Bytes of memory for all objects.
const MOST_BYTES: u64 = 512 << 20;
/// A round counts if no thread had to wait for its CPU for more than this share of it.
const QUIET: f64 = 0.02;
/// So many such rounds are enough.
const LEAST_QUIET: usize = 5;
/// An operation that is longer than it should be by this share is not what the profile says.
const TOO_LONG: f64 = 0.1;

/// Where a type's fields lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Bytes of the type.
    pub size: u64,
    /// Where its touched fields are.
    pub place: Place,
}

/// What is replayed.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    /// Who touches what.
    pub uses: &'a Uses,
    /// Where the fields lie.
    pub today: &'a Order,
    /// Where else they could lie.
    pub proposed: Option<&'a Order>,
    /// The CPUs that take part: thread `i` runs on the `i`-th.
    pub cpus: &'a [usize],
    /// For how long, about, beside some tenths of a second before.
    pub seconds: f64,
}

/// What a replay came to. Ranges hold nine tenths of the rounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Nanoseconds an operation, averaged over the CPUs.
    pub today: Interval,
    /// The same of the proposed order, and the difference.
    pub proposed: Option<(Interval, Gain)>,
    /// Rounds of each layout that count: those that nobody disturbed, if there are enough of them.
    pub rounds: usize,
    /// What a line took from one CPU to another meanwhile, in nanoseconds, where two took part.
    pub transfer_ns: Option<f64>,
    /// The part of those rounds for which other programs had the CPU of a thread.
    pub disturbed: f64,
    /// Roles whose operations could not be made as short as they are.
    pub short: Vec<Short>,
    /// Roles that have no CPU, since there are too few.
    pub absent: Vec<String>,
    /// How many objects were used, where that is fewer than the profile has.
    pub objects: Option<usize>,
}

/// What the proposed order gains, round by round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gain {
    /// Nanoseconds an operation that it takes less.
    pub ns: Interval,
    /// How much more is done in the same time, in per cent.
    pub throughput: Interval,
}

/// A role whose operations are shorter than a replay can make them.
#[derive(Clone, Debug, PartialEq)]
pub struct Short {
    /// The role.
    pub role: String,
    /// What an operation of it takes alone by the profile, in nanoseconds.
    pub wanted_ns: f64,
    /// What it takes alone in the replay.
    pub replayed_ns: f64,
}

/// Replays.
///
/// # Errors
/// When no CPU is named, a CPU cannot be used, or the type is too large.
///
/// # Panics
/// When a place is not of these uses.
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
        // A round more warms up.
        round: Duration::from_secs_f64(each / (runs + 1.0)),
        cpus: plan.cpus.to_vec(),
    };
    let rounds = harness::rounds(&cases, &timing, progress);
    drop(cases);
    Ok(sum_up(plan, &scenes, &rounds))
}

/// A layout, with objects that begin somewhere in a pair of lines, and the threads that use them.
struct Scene {
    name: &'static str,
    script: Script,
    tuned: Vec<Tuned>,
    /// How many passes a role does while the slowest does one.
    batches: Vec<u64>,
    actors: Vec<Padded<Mutex<Actor>>>,
    block: Block,
    /// How many objects the block has, if the profile has more.
    objects: Option<usize>,
}

/// The layouts in the order in which they are played: today's and the proposed one, for each place of objects.
fn scenes(plan: &Plan<'_>) -> Result<Vec<Scene>, Error> {
    let orders = [("today", Some(plan.today)), ("proposed", plan.proposed)];
    let orders = orders.into_iter().filter_map(|(name, order)| Some((name, order?)));
    let places = |order: &Order| match order.place.row {
        Some(Row { begins: Some(_), .. }) => 1,
        _ => (PAIR / order.place.base.clamp(1, PAIR)) as usize,
    };
    let places = orders.clone().map(|(_, order)| places(order)).max().unwrap_or(1).min(PLACES);
    // What is timed alone is timed on a CPU that takes part.
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
        // (The last of a row reaches beyond its stride, if the row begins late.)
        let block = Block::new(stride as usize * count + alone as usize);
        let tuned: Vec<Tuned> = (script.roles.iter())
            .map(|part| pace.tune(&acts(part, &script.offsets, begins), touched as usize))
            .collect();
        let longest = script.dealt.iter().map(|&role| tuned[role].wanted).fold(0.0, f64::max);
        let batch = |tuned: &Tuned| (longest / tuned.wanted.max(1e-3)).round().clamp(1.0, 1e6);
        let batches = tuned.iter().map(|tuned| batch(tuned) as u64).collect();
        let actor = |thread| {
            // Fewer objects than threads are shared, as CPUs share them in the simulation.
            let mut mine: Vec<u32> = if count < cpus {
                vec![(thread % count) as u32]
            } else {
                (thread..count).step_by(cpus).map(|object| object as u32).collect()
            };
            if mine.len() > 1 {
                // No prefetcher learns it.
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
            // Nobody else asks for this thread's actor.
            let mut actor = self.actors[thread].lock().expect("no actor panics");
            actor.play(ops, &self.block, times * self.batches[role]);
        };
        Case { name: self.name, granule: 1, body: Box::new(body) }
    }

    /// The time of an operation in each round: averaged over roles by their shares, as a prediction is.
    fn operations(&self, uses: &Uses, rounds: &Rounds) -> Vec<f64> {
        let count = rounds.threads.first().map_or(0, Vec::len);
        let operation = |round: usize| {
            let (mut sum, mut shares) = (0.0, 0.0);
            for (role, part) in self.script.roles.iter().enumerate() {
                let threads = (0..self.actors.len()).filter(|&t| self.script.dealt[t] == role);
                let times: Vec<f64> = threads.map(|t| rounds.threads[t][round]).collect();
                if !times.is_empty() {
                    // CPUs of a role add up what they do in the same time.
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
    // While one thread has no CPU the others share with nobody: such rounds flatter both layouts.
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
    /// Today's again where nothing is proposed.
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

/// The median, and the range of nine tenths of the values: a round in which the machine did something else is no
/// property of a layout.
fn most_of(values: &[f64]) -> Interval {
    let [low, median, high] = [0.05, 0.5, 0.95].map(|share| quantile(values, share));
    Interval { median, low, high }
}

#[cfg(test)]
mod tests;
