//! Fits the model's settings to the times of fights for a line.
//!
//! The time of a request on its way, the stay of a line and its variation cannot be measured separately: a program
//! only sees when its accesses are done. So the model plays the same fights, and the search finds the settings that
//! come nearest:
//!
//! ```text
//! off = the mean over fights of |ln(predicted / measured)|
//!     + the mean over fights with loads of |predicted - measured| of what the loads add to atomics alone, as a share of them
//! try settings all over what is possible; then ever nearer to the best so far
//! the best is the figure; those that are off by up to a quarter more say how sure it is
//! ```
//!
//! The same machine and times give the same settings. Validation compares other programs.

use super::fights::{self, Fight, How};
use super::predict::simulate;
use super::spread::Spread;
use ledgerline_bench::measure::stats::median;
use ledgerline_coherence::experiments::{each, evenly};
use ledgerline_coherence::machine::Settings;

/// Approximate number of simulated operations of a CPU in a fight.
const OPERATIONS: f64 = 300.0;
/// The number of settings tried over the whole range, then next to the best, and the widths around the best as shares
/// of the range.
const FIRST: usize = 128;
const NEXT: usize = 32;
const NEAR: [f64; 6] = [0.3, 0.2, 0.12, 0.08, 0.05, 0.03];
/// Settings whose error is at most this times that of the best, and a little, may be the machine's. The error of the
/// model itself is larger.
const AS_WELL: f64 = 1.25;
/// The share of undisturbed fights that a fit requires.
const LEAST: f64 = 0.7;

/// The fitted figures, each as a share of a transfer, or by itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Shares<T> {
    /// A transfer of a changed line, relative to one by itself.
    pub(super) modified: T,
    /// The part of a transfer that the request takes.
    pub(super) request: T,
    /// The hold time, and its relative variation.
    pub(super) keep: T,
    pub(super) spread: T,
    /// The time before it goes in which a line serves no atomic.
    pub(super) closing: T,
    /// The time after the arrival of its line in which an atomic is not final.
    pub(super) behind: T,
}

const KINDS: usize = 6;
/// The range of each.
const POSSIBLE: [(f64, f64); KINDS] =
    [(0.8, 1.2), (0.2, 0.95), (0.0, 1.1), (0.0, 1.0), (0.0, 0.35), (0.0, 1.5)];
impl<T: Copy> Shares<T> {
    fn of([modified, request, keep, spread, closing, behind]: [T; KINDS]) -> Shares<T> {
        Shares { modified, request, keep, spread, closing, behind }
    }
}

/// The fitted figures, and their error.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fitted {
    pub(super) shares: Shares<Spread>,
    /// The relative errors of predictions of the fights: the median, and the largest.
    pub(super) median_off: f64,
    pub(super) worst_off: f64,
}

/// The known properties of the machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known<'a> {
    /// All other settings, of two CPUs.
    pub(super) settings: &'a Settings,
    /// A transfer of a changed line by itself, in picoseconds.
    pub(super) modified: f64,
    /// Cycles that a multiplication takes.
    pub(super) multiplication: f64,
}

/// Fits settings. `took` has the nanoseconds of an operation of each fight, in the order of [`fights::all`]. `None`
/// if too many of them were disturbed.
pub(super) fn fit(known: &Known<'_>, took: &[f64]) -> Option<Fitted> {
    let all: Vec<(Fight, f64)> = fights::all().zip(took.iter().copied()).collect();
    let measured: Vec<(Fight, f64)> = all.iter().copied().filter(|(_, ns)| *ns > 0.0).collect();
    if (measured.len() as f64) < LEAST * all.len() as f64 {
        return None;
    }
    let mut tried: Vec<([f64; KINDS], f64)> = Vec::new();
    let mut best = ([f64::NAN; KINDS], f64::INFINITY);
    let mut number = 0;
    for (count, width) in std::iter::once((FIRST, None)).chain(NEAR.map(|near| (NEXT, Some(near))))
    {
        let candidates: Vec<[f64; KINDS]> = (0..count)
            .map(|_| {
                number += 1;
                candidate(number, width.map(|width| (best.0, width)))
            })
            .collect();
        let off = each(&candidates, |_, shares| {
            Ok::<f64, ()>(off(&measured, &known.predicted(shares, &measured)))
        });
        tried.extend(candidates.into_iter().zip(off.ok()?));
        best = tried.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or(best);
    }
    let as_well: Vec<&[f64; KINDS]> = tried
        .iter()
        .filter(|(_, off)| *off <= AS_WELL * best.1 + 0.002)
        .map(|(of, _)| of)
        .collect();
    let spread = |kind: usize| {
        let values = as_well.iter().map(|of| of[kind]);
        let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        Spread { value: best.0[kind], low, high }
    };
    let predicted = known.predicted(&best.0, &measured);
    let mut offs: Vec<f64> = measured
        .iter()
        .zip(predicted)
        .map(|((_, ns), predicted)| (predicted / ns - 1.0).abs())
        .collect();
    offs.sort_unstable_by(f64::total_cmp);
    Some(Fitted {
        shares: Shares::of(std::array::from_fn(spread)),
        median_off: median(&offs),
        worst_off: *offs.last()?,
    })
}

/// Returns the settings of a number: anywhere, or around some settings, at most a width away.
fn candidate(number: usize, about: Option<([f64; KINDS], f64)>) -> [f64; KINDS] {
    std::array::from_fn(|kind| {
        let (low, high) = POSSIBLE[kind];
        let even = evenly(number, kind);
        match about {
            None => low + (high - low) * even,
            Some((best, width)) => {
                (best[kind] + (high - low) * width * (2.0 * even - 1.0)).clamp(low, high)
            }
        }
    })
}

/// Returns the error of predictions.
fn off(measured: &[(Fight, f64)], predicted: &[f64]) -> f64 {
    let of = |fight: Fight| measured.iter().position(|(other, _)| *other == fight);
    let (mut times, mut added, mut with_loads) = (0.0, 0.0, 0);
    for (at, (&(fight, ns), &predicted_ns)) in measured.iter().zip(predicted).enumerate() {
        debug_assert!(predicted_ns > 0.0, "operations take time");
        times += (predicted_ns / ns).ln().abs();
        if let (How::Beside { .. }, Some(without)) = (fight.how, of(fight.without_loads())) {
            let adds = |times: &dyn Fn(usize) -> f64| times(at) - times(without);
            let differ = adds(&|at| predicted[at]) - adds(&|at| measured[at].1);
            added += differ.abs() / measured[without].1;
            with_loads += 1;
        }
    }
    times / measured.len() as f64 + added / f64::from(with_loads.max(1))
}

impl Known<'_> {
    /// Returns the model's predictions of fights, in nanoseconds an operation.
    fn predicted(&self, shares: &[f64; KINDS], fights: &[(Fight, f64)]) -> Vec<f64> {
        let settings = self.with(&Shares::of(*shares));
        fights.iter().map(|&(fight, _)| self.simulated(fight, &settings)).collect()
    }

    /// Returns the settings with these shares.
    fn with(&self, shares: &Shares<f64>) -> Settings {
        let ps = |share: f64| (share * self.modified).round() as u64;
        Settings {
            transfer: [[self.settings.transfer[0][0], ps(shares.modified)]; 5],
            request: shares.request,
            handover: 1.0 - shares.request,
            keep: ps(shares.keep),
            keep_spread: shares.spread,
            closing: ps(shares.closing),
            behind: ps(shares.behind),
            ..self.settings.clone()
        }
    }

    /// Returns the time of an operation of a fight in the simulation, in nanoseconds.
    pub(super) fn simulated(&self, fight: Fight, settings: &Settings) -> f64 {
        let work = self.multiplication * fight.work as f64 / settings.clock_ghz;
        let length = OPERATIONS * (work + 2e-3 * self.modified);
        let outcome = simulate("fight", 2, 1, settings, length, |told| {
            told.multiplication = self.multiplication;
            fight.operation(told, 0);
        });
        // Programs of plain accesses on existing CPUs are always accepted.
        outcome.map_or(f64::NAN, |outcome| outcome.nanoseconds())
    }
}

#[cfg(test)]
mod tests;
