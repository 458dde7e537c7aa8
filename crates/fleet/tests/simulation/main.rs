//! The protocol in a simulated world: the real node and book code, and a seed that decides all else.

mod check;
mod faults;
mod machine;
mod random;
mod steps;
mod world;

use world::{Mistake, Size, World};

/// Machines that come and go, and a store that fails.
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
        check_every: 5_000,
    }
}

fn is_long() -> bool {
    std::env::var("LEDGERLINE_SOAK").is_ok_and(|how| how == "long")
}

/// The seed to replay, if one is given; otherwise so many, or as many as `LEDGERLINE_SEEDS` says.
fn seeds(count: u64) -> Vec<u64> {
    match std::env::var("LEDGERLINE_SEED") {
        Ok(seed) => vec![seed.parse().expect("LEDGERLINE_SEED is a number")],
        Err(_) => match std::env::var("LEDGERLINE_SEEDS") {
            Ok(count) => (0..count.parse().expect("LEDGERLINE_SEEDS is a number")).collect(),
            Err(_) => (0..count).collect(),
        },
    }
}

fn run(seed: u64, size: Size, mistake: Mistake) -> Result<World, String> {
    let time = size.time;
    let mut world = World::new(seed, size, mistake);
    world.run_until(time)?;
    world.ends_clean()?;
    Ok(world)
}

fn all_hold(test: &str, size: &Size, count: u64) {
    let mut faults = 0;
    for seed in seeds(count) {
        match run(seed, size.clone(), Mistake::None) {
            Ok(world) => faults += world.faults.values().sum::<u64>(),
            Err(why) => panic!(
                "seed {seed}: {why}\nreplay: LEDGERLINE_SEED={seed} cargo test -p ledgerline-fleet --test simulation {test}"
            ),
        }
    }
    assert!(faults > 0, "nothing went wrong in any of these worlds");
}

#[test]
fn what_always_holds_holds_in_small_worlds() {
    all_hold("small", &small(), if is_long() { 20_000 } else { 300 });
}

#[test]
fn what_always_holds_holds_with_fifty_nodes_and_two_hundred_budgets() {
    all_hold("fifty", &middle(), if is_long() { 200 } else { 2 });
}

/// How many of these worlds show the mistake.
fn found(mistake: Mistake) -> u64 {
    (0..40).filter(|seed| run(*seed, small(), mistake).is_err()).count() as u64
}

#[test]
fn a_node_that_raises_before_it_hears_is_found() {
    assert!(found(Mistake::RaiseFirst) > 0);
}

#[test]
fn a_node_that_tells_before_it_lowers_is_found() {
    assert!(found(Mistake::TellFirst) > 0);
}

#[test]
fn a_store_without_a_grace_is_found() {
    assert!(found(Mistake::NoGrace) > 0);
}

#[test]
fn a_node_that_ends_its_leases_late_is_found() {
    assert!(found(Mistake::EndLate) > 0);
}

#[test]
fn a_store_that_adopts_a_message_twice_is_found() {
    assert!(found(Mistake::AdoptAgain) > 0);
}

#[test]
fn a_node_that_measures_its_leases_from_a_later_moment_is_found() {
    assert!(found(Mistake::MeasureLate) > 0);
}

/// Takes hours, so it runs in the long form alone.
#[test]
fn what_always_holds_holds_with_a_thousand_nodes_and_ten_thousand_tenants() {
    let large = Size {
        machines: 1_000,
        organisations: 100,
        tenants: 100,
        jobs: 2,
        opened: 12,
        works_for: 4,
        time: 2 * 3_600_000,
        faults: 250,
        load: 1_000,
        check_every: 200_000,
    };
    // The short form is the same world for some seconds.
    let size = if is_long() { large } else { Size { time: 3_000, ..large } };
    all_hold("thousand", &size, 1);
}
