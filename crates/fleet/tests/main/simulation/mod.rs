//! The protocol in a simulated world: real node and book code. A seed decides everything else.

mod check;
mod faults;
mod machine;
pub mod random;
mod replica;
use crate::seed;
mod steps;
mod world;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{available_parallelism, scope};
use std::time::Instant;

use ledgerline_fleet::book::Terms;

use world::{Mistake, Size, World};

/// Short, so that many leases end in a minute.
const TERMS: Terms = Terms { ttl: 3_000, grace: 1_500 };

/// Returns the size of a small world, with machines that come and go, and a store that fails.
fn small() -> Size {
    Size {
        machines: 5,
        organisations: 1,
        tenants: 2,
        jobs: 2,
        opened: 4,
        works_for: 1,
        time: 60_000,
        faults: 2_000,
        load: 60,
        terms: TERMS,
        check_every: 50,
    }
}

fn middle() -> Size {
    Size {
        machines: 50,
        organisations: 4,
        tenants: 10,
        jobs: 4,
        opened: 8,
        works_for: 2,
        time: 60_000,
        faults: 500,
        load: 100,
        terms: TERMS,
        check_every: 5_000,
    }
}

/// Returns the seed to replay if one is given; otherwise `count` seeds, or those of `LEDGERLINE_SEEDS`: `1000`, or `1000..2000`.
fn seeds(count: u64) -> Vec<u64> {
    let number = |text: &str| text.parse::<u64>().expect("LEDGERLINE_SEEDS is a number or two");
    let Ok(seeds) = std::env::var("LEDGERLINE_SEEDS") else {
        return seed::seeds(0, count, count).collect();
    };
    match seeds.split_once("..") {
        Some((first, end)) => (number(first)..number(end)).collect(),
        None => (0..number(&seeds)).collect(),
    }
}

fn run(seed: u64, size: Size, mistake: Mistake) -> Result<World, String> {
    let time = size.time;
    let mut world = World::new(seed, size, mistake);
    world.run_until(time)?;
    world.ends_clean()?;
    Ok(world)
}

/// Runs the seeds on all processors, and prints the totals.
fn all_hold(test: &str, size: &Size, count: u64) {
    let seeds = seeds(count);
    let start = Instant::now();
    let next = AtomicUsize::new(0);
    let work = || {
        let mut told = Told::default();
        while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
            match run(*seed, size.clone(), Mistake::None) {
                Ok(world) => told = told.and(Told::of(world)),
                Err(why) => panic!(
                    "seed {seed}: {why}\nreplay: LEDGERLINE_SEED={seed} cargo test -p ledgerline-fleet simulation::{test}"
                ),
            }
        }
        told
    };
    let processors = available_parallelism().map_or(1, usize::from).min(seeds.len());
    let told = scope(|scope| {
        let workers: Vec<_> = (0..processors).map(|_| scope.spawn(work)).collect();
        let each = workers.into_iter().map(|worker| worker.join().expect("what always holds"));
        each.reduce(Told::and).unwrap_or_default()
    });
    println!(
        "{} seeds, {} nodes, {} budgets each: {:.1} hours simulated in {:.0} s; {} events, {} syncs, {} faults {:?}",
        seeds.len(),
        size.machines,
        size.organisations * (1 + size.tenants * (1 + size.jobs)),
        told.simulated as f64 / 3_600_000.0,
        start.elapsed().as_secs_f64(),
        told.events,
        told.syncs,
        told.faults.values().sum::<u64>(),
        told.faults,
    );
    assert!(!told.faults.is_empty(), "nothing went wrong in any of these worlds");
}

/// The totals of several worlds.
#[derive(Default)]
struct Told {
    simulated: u64,
    events: u64,
    syncs: u64,
    faults: BTreeMap<&'static str, u64>,
}

impl Told {
    fn of(world: World) -> Self {
        let World { now: simulated, handled: events, syncs, faults, .. } = world;
        Self { simulated, events, syncs, faults }
    }

    fn and(mut self, other: Self) -> Self {
        self.simulated += other.simulated;
        self.events += other.events;
        self.syncs += other.syncs;
        for (fault, count) in other.faults {
            *self.faults.entry(fault).or_default() += count;
        }
        self
    }
}

#[test]
fn what_always_holds_holds_in_small_worlds() {
    all_hold(
        "what_always_holds_holds_in_small_worlds",
        &small(),
        if seed::long() { 20_000 } else { 100 },
    );
}

#[test]
fn what_always_holds_holds_with_fifty_nodes_and_two_hundred_budgets() {
    all_hold(
        "what_always_holds_holds_with_fifty_nodes_and_two_hundred_budgets",
        &middle(),
        if seed::long() { 200 } else { 2 },
    );
}

/// Returns whether one of these worlds reveals the mistake.
fn is_found(mistake: Mistake) -> bool {
    (0..40).any(|seed| run(seed, small(), mistake).is_err())
}

#[test]
fn a_node_that_raises_before_it_hears_is_found() {
    assert!(is_found(Mistake::RaiseFirst));
}

#[test]
fn a_node_that_tells_before_it_lowers_is_found() {
    assert!(is_found(Mistake::TellFirst));
}

#[test]
fn a_store_without_a_grace_is_found() {
    assert!(is_found(Mistake::NoGrace));
}

#[test]
fn a_node_that_ends_its_leases_late_is_found() {
    assert!(is_found(Mistake::EndLate));
}

#[test]
fn a_store_that_adopts_a_message_twice_is_found() {
    assert!(is_found(Mistake::AdoptAgain));
}

#[test]
fn a_node_that_measures_its_leases_from_a_later_moment_is_found() {
    assert!(is_found(Mistake::MeasureLate));
}

/// In the long form two worlds live for an hour, and two thousand for half a minute, plus the time to end clean.
/// `LEDGERLINE_SIMULATED` sets another number of seconds.
#[test]
fn what_always_holds_holds_with_a_thousand_nodes_and_ten_thousand_tenants() {
    let large = |seconds: u64| Size {
        machines: 1_000,
        organisations: 100,
        tenants: 100,
        jobs: 2,
        opened: 12,
        works_for: 4,
        time: seconds * 1_000,
        faults: 250,
        load: 1_000,
        terms: Terms::default(),
        check_every: 200_000,
    };
    if let Ok(seconds) = std::env::var("LEDGERLINE_SIMULATED") {
        let seconds = seconds.parse().expect("LEDGERLINE_SIMULATED is a number of seconds");
        all_hold(
            "what_always_holds_holds_with_a_thousand_nodes_and_ten_thousand_tenants",
            &large(seconds),
            1,
        );
    } else if seed::long() {
        all_hold(
            "what_always_holds_holds_with_a_thousand_nodes_and_ten_thousand_tenants",
            &large(3_600),
            2,
        );
        all_hold(
            "what_always_holds_holds_with_a_thousand_nodes_and_ten_thousand_tenants",
            &large(30),
            2_000,
        );
    } else {
        all_hold(
            "what_always_holds_holds_with_a_thousand_nodes_and_ten_thousand_tenants",
            &large(3),
            1,
        );
    }
}
