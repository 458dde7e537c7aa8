//! The calls that README shows, in bare loops, as a program outside writes them.

use crate::rounds::{Body, Figure, take_turns};
use ledgerline::{Charge, Group, Ledger, Limit};
use std::error::Error;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

/// What each operation charges.
const UNITS: u64 = 64;

/// What a guard may cost beside the units alone. (The documents promise 1.2, also with `?`, and 2.6 through a `Vec`,
/// as it was measured; a tenth is for a machine's moods.)
pub const MOST: [(&str, f64); 3] = [("guard", 1.3), ("guard_question", 1.3), ("guard_vec", 2.9)];

/// What a guard may cost for a thread that owns its column, beside one where charges go by atomics. (It took 0.16, a Xeon.)
/// What atomics take beside plain additions differs by processor, so two additions are timed and not held.
pub const MOST_OWNED: f64 = 0.5;

/// Times the units alone and the guards, on so many threads, which share a group three levels deep.
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
