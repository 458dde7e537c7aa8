//! Times a charge into a fleet's budget and one in a ledger without a fleet, in rounds that take turns.

use std::error::Error;
use std::hint::black_box;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use ledgerline::{Group, Ledger, Limit, OwnedGroup};
use ledgerline_fleet::fleet::{Budget, Fleet};

use crate::stage::Stage;

/// The most that a charge may take, relative to one without a fleet. README promises 1.02, as it was measured; the
/// rest allows for noise. An uncontended lock makes it half as much again.
pub const MOST: f64 = 1.10;

/// The number of charges in a round: so few that a busy machine rarely takes the processor away within one.
const PAIRS: u32 = 10_000;
/// The units of each charge.
const UNITS: u64 = 64;

/// Both ways to charge, and a third that must be detected as slow.
pub struct Charges {
    alone: OwnedGroup,
    batch: Budget,
    lock: Mutex<()>,
    _stage: Stage,
}

/// Medians of rounds: nanoseconds per pair of charge and return without a fleet and with one, and the ratio within a
/// round.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    pub name: &'static str,
    pub without: f64,
    pub with: f64,
    pub ratio: f64,
}

impl Charges {
    /// Makes a ledger with a group two levels deep, and a fleet's budget as deep, leased in full. Both lie behind
    /// other groups.
    pub async fn behind(others: usize) -> Result<Self, Box<dyn Error>> {
        let ledger = Arc::new(Ledger::new()?);
        for other in 0..others {
            ledger.root().create(&format!("other-{other}"))?;
        }
        let alone = ledger.owned_root().create("alone")?.create("batch")?;
        alone.group().set_max(Limit::units(1 << 30))?;
        let stage = Stage::with(&[("/acme", 1 << 40), ("/acme/batch", 1 << 40)]).await?;
        let fleet = Fleet::join(stage.store.clone(), "node").reserve(1 << 30).ledger(&ledger);
        let batch = fleet.start()?.budget("/acme/batch").await?;
        Ok(Self { alone, batch, lock: Mutex::default(), _stage: stage })
    }

    /// Times guards of a group.
    pub fn guards(&self, rounds: usize) -> Figure {
        let (alone, batch) = (self.alone.group(), self.batch.group());
        take_turns("guard", rounds, || guard(alone), || guard(batch))
    }

    /// Times guards that a task can own.
    pub fn owned(&self, rounds: usize) -> Figure {
        let without = || timed(|| drop(black_box(self.alone.try_charge(black_box(UNITS)))));
        let with = || timed(|| drop(black_box(self.batch.try_charge(black_box(UNITS)))));
        take_turns("owned guard", rounds, without, with)
    }

    /// Times a charge that takes a lock, as none should.
    pub fn locked(&self, rounds: usize) -> Figure {
        let (alone, batch) = (self.alone.group(), self.batch.group());
        let with = || {
            timed(|| {
                let _held = self.lock.lock();
                drop(black_box(batch.try_charge(black_box(UNITS))));
            })
        };
        take_turns("with a lock", rounds, || guard(alone), with)
    }
}

#[inline(never)]
fn guard(group: Group<'_>) -> f64 {
    timed(|| drop(black_box(group.try_charge(black_box(UNITS)))))
}

/// Returns nanoseconds per operation.
fn timed(operation: impl Fn()) -> f64 {
    let start = Instant::now();
    for _ in 0..PAIRS {
        operation();
    }
    start.elapsed().as_nanos() as f64 / f64::from(PAIRS)
}

/// Runs rounds in turns, so that a machine's drift affects both. The order changes with each round. The first one
/// warms up.
fn take_turns(
    name: &'static str,
    rounds: usize,
    without: impl Fn() -> f64,
    with: impl Fn() -> f64,
) -> Figure {
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    for round in 0..=rounds {
        let (a, b) = if round % 2 == 0 {
            let a = without();
            (a, with())
        } else {
            let b = with();
            (without(), b)
        };
        if round > 0 {
            for (times, time) in times.iter_mut().zip([a, b, b / a]) {
                times.push(time);
            }
        }
    }
    let [without, with, ratio] = times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    });
    Figure { name, without, with, ratio }
}
