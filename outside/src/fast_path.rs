//! The calls of README's examples in bare loops, written as an outside program would.

use crate::rounds::{Body, Figure, take_turns};
use ledgerline::{Charge, Group, Ledger, Limit};
use std::error::Error;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

/// The units of each charge.
const UNITS: u64 = 64;

/// The most that a guard may cost, relative to the units alone. The documents promise 1.2, also with `?`, and 2.6
/// through a `Vec`, as it was measured; a tenth allows for noise.
pub const MOST: [(&str, f64); 3] = [("guard", 1.3), ("guard_question", 1.3), ("guard_vec", 2.9)];

/// The most that a guard may cost for a thread that owns its column, relative to one with atomic charges. It took
/// 0.16 on a Xeon. The cost of atomics relative to plain additions differs by processor, so two additions are timed
/// but not checked.
pub const MOST_OWNED: f64 = 0.5;

/// Times the units alone and the guards, on a number of threads that share a group three levels deep.
pub fn figures(
    threads: usize,
    rounds: usize,
    operations: u64,
) -> Result<Vec<Figure>, Box<dyn Error>> {
    let ledger = Ledger::new()?;
    let tenant = ledger.root().create("acme")?;
    tenant.set_max(Limit::units(1 << 40))?;
    let query = tenant.create("q42")?;
    let units = black_box(UNITS);
    let sum = AtomicU64::new(0);
    let bodies: [(&'static str, Body<'_>); 6] = [
        ("units", Box::new(|n| alone(query, units, n))),
        ("guard", Box::new(|n| guard(query, units, n))),
        ("guard_question", Box::new(|n| question(query, units, n))),
        ("guard_vec", Box::new(|n| vec(query, units, n))),
        ("guard_split", Box::new(|n| split(query, units, n))),
        ("two_additions", Box::new(|n| atomics(&sum, units, n))),
    ];
    Ok(take_turns(&bodies, threads, rounds, operations))
}

#[inline(never)]
fn alone(group: Group<'_>, units: u64, n: u64) {
    for _ in 0..n {
        group.try_charge_units(units).expect("far below the limit");
        group.uncharge_units(units);
    }
}

#[inline(never)]
fn atomics(sum: &AtomicU64, units: u64, n: u64) {
    for _ in 0..n {
        sum.fetch_add(units, Ordering::Relaxed);
        sum.fetch_sub(units, Ordering::Relaxed);
    }
}

#[inline(never)]
fn guard(group: Group<'_>, units: u64, n: u64) {
    for _ in 0..n {
        let charge = group.try_charge(units).expect("far below the limit");
        drop(charge);
    }
}

fn step(group: Group<'_>, units: u64) -> Result<(), Box<dyn Error>> {
    let _held = group.try_charge(units)?;
    Ok(())
}

#[inline(never)]
fn question(group: Group<'_>, units: u64, n: u64) {
    for _ in 0..n {
        step(group, units).expect("far below the limit");
    }
}

#[inline(never)]
fn vec(group: Group<'_>, units: u64, n: u64) {
    let mut held: Vec<Charge<'_>> = Vec::new();
    for _ in 0..n {
        held.push(group.try_charge(units).expect("far below the limit"));
        black_box(&mut held);
        drop(held.pop());
    }
}

#[inline(never)]
fn split(group: Group<'_>, units: u64, n: u64) {
    for _ in 0..n {
        let mut charge = group.try_charge(units).expect("far below the limit");
        let part = charge.split(units / 2);
        drop((charge, part));
    }
}
