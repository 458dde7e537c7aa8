//! The loops of the suite `charge` that hold their units by guards. They make the calls that README shows, and treat a
//! guard like programs do between charge and drop. The guard crosses the border of a crate in each of them.

use super::loops::{UNROLLED, four_times, refused};
use ledgerline::{Charge, Group};
use std::error::Error;
use std::hint::black_box;

/// Returns the case that a guarded one is compared with: it charges and uncharges the same units at the same depth
/// without a guard.
pub(super) fn beside(case: &str) -> Option<&'static str> {
    match case {
        "guard_depth1" => Some("pair_depth1"),
        "guard_depth8" => Some("pair_depth8"),
        case if case.starts_with("guard_") => Some("pair_depth3"),
        _ => None,
    }
}

#[inline(always)]
fn charged(group: Group<'_>, units: u64) -> Charge<'_> {
    match group.try_charge(units) {
        Ok(charge) => charge,
        Err(_) => refused(),
    }
}

/// Charges and drops.
#[inline(never)]
pub(super) fn guard(group: Group<'_>, units: u64, n: u64) {
    for _ in 0..n / UNROLLED {
        four_times!(drop(charged(group, units)));
    }
}

/// Charges like a step of a program that passes its errors up.
#[inline(always)]
fn step(group: Group<'_>, units: u64) -> Result<(), Box<dyn Error>> {
    let _held = group.try_charge(units)?;
    Ok(())
}

/// Converts errors with `?` into the error of a program.
#[inline(never)]
pub(super) fn question(group: Group<'_>, units: u64, n: u64) {
    for _ in 0..n / UNROLLED {
        four_times!(if step(group, units).is_err() {
            refused();
        });
    }
}

/// Pushes to a list that the compiler cannot see into, and pops.
#[inline(never)]
pub(super) fn vec(group: Group<'_>, units: u64, n: u64) {
    let mut held = Vec::with_capacity(16);
    for _ in 0..n / UNROLLED {
        four_times!({
            held.push(charged(group, units));
            black_box(&mut held);
            drop(held.pop());
        });
    }
}

/// Splits in two, and drops both.
#[inline(never)]
pub(super) fn split(group: Group<'_>, units: u64, n: u64) {
    for _ in 0..n / UNROLLED {
        four_times!({
            let mut charge = charged(group, units);
            let part = charge.split(units / 2);
            drop((charge, part));
        });
    }
}

/// Moves to another group below the same parent, and drops.
#[inline(never)]
pub(super) fn transfer(from: Group<'_>, to: Group<'_>, units: u64, n: u64) {
    for _ in 0..n / UNROLLED {
        four_times!(match charged(from, units).transfer(to) {
            Ok(moved) => drop(moved),
            Err(_) => refused(),
        });
    }
}
