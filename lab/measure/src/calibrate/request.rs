//! How long a request for a line is on its way to the CPU that has it. A load may be sent that long before a store
//! and see the store's value all the same.
//!
//! ```text
//! one CPU owns a line; both wait for the same moment by their clocks
//! from then on:  the owner works for a while, and stores;  the other works for a while, and loads
//! sweep the difference of the two; above the request's way the load comes too early
//! the average difference at which it does not: the sum over the sweep of how often the new value is seen
//! ```
//!
//! Both take each part in turn, so that a difference between their clocks cancels out.

use super::team::Seat;
use super::work::{multiply, time_stamp, zero_after};
use super::world::{Field, Memory, Real, World};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Nanoseconds of a multiplication, or about: how far to sweep does not need more.
const MULTIPLICATION: f64 = 0.9;
/// Differences that are tried, and how often each.
const STEPS: usize = 25;
const TRIALS: usize = 50;
/// Of the steps, those at which the load has more work before it than the store.
const BEFORE: usize = 6;
/// By how much two CPUs miss a moment together, in nanoseconds, or about: the sweep is wider by that.
const MISS: f64 = 50.0;
/// From the agreement to the moment agreed on, in ticks of the clock: a microsecond or more.
const LEAD: u64 = 5000;
/// What a sweep has to begin and end with to be one: nearly all loads see the store, nearly none does.
const SURE: f64 = 0.8;

/// What the two agree on, on lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Agreement {
    /// Counts the steps of all trials.
    turn: AtomicU64,
    /// The moment.
    moment: AtomicU64,
}

/// Ticks of a clock that both CPUs have.
fn clock() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let since = || START.get_or_init(Instant::now).elapsed().as_nanos() as u64;
    time_stamp().unwrap_or_else(since)
}

/// By how many multiplications, on average, this seat's load may come before the other's store and still see it. Not
/// a number where the sweep did not begin with all loads and end with none. Where a transfer takes longer, the sweep is
/// wider.
pub(super) fn request(
    seat: &Seat<'_>,
    memory: &Memory,
    agreement: &Agreement,
    transfer: f64,
) -> f64 {
    let step = ((transfer + MISS) / 12.0 / MULTIPLICATION).max(1.0) as usize;
    let mut real = Real::new(memory, seat.index);
    let mut found = f64::NAN;
    for reader in 0..2 {
        seat.meet();
        if seat.index == 0 {
            agreement.turn.store(0, Ordering::Relaxed);
        }
        seat.meet();
        if seat.index == reader {
            found = threshold(&read(&mut real, agreement, step), step);
        } else {
            write(&mut real, agreement, step);
        }
    }
    seat.meet();
    found
}

/// The work before the store and before the load.
fn delays(at: usize, step: usize) -> [usize; 2] {
    [at.saturating_sub(BEFORE) * step, BEFORE.saturating_sub(at) * step]
}

/// The trials' lines, in turn.
fn line(trial: usize) -> Field {
    Field::first_of(trial % 64)
}

// Orderings: `turn` hands over everything, by Release from Acquire of the other's; the line that is raced for
// is read and written as the patterns do.
fn write(real: &mut Real<'_, 0, true>, agreement: &Agreement, step: usize) {
    for trial in 0..STEPS * TRIALS {
        let [before_store, _] = delays(trial / TRIALS, step);
        // The line is this CPU's alone, and its number is known: one more is stored below.
        real.add(line(trial));
        real.load(line(trial));
        let turn = 3 * trial as u64;
        await_turn(agreement, turn);
        let moment = clock() + LEAD;
        agreement.moment.store(moment, Ordering::Relaxed);
        agreement.turn.store(turn + 1, Ordering::Release);
        real.wait_for(multiply(await_moment(moment), before_store));
        real.store(line(trial));
        await_turn(agreement, turn + 2);
        agreement.turn.store(turn + 3, Ordering::Release);
    }
}

/// How many loads of each step saw the store, and how many there were.
fn read(real: &mut Real<'_, 0, true>, agreement: &Agreement, step: usize) -> [[usize; 2]; STEPS] {
    let mut seen = [[0; 2]; STEPS];
    for trial in 0..STEPS * TRIALS {
        let at = trial / TRIALS;
        let [_, before_load] = delays(at, step);
        let turn = 3 * trial as u64;
        await_turn(agreement, turn + 1);
        let moment = agreement.moment.load(Ordering::Relaxed);
        let now = clock();
        // Too late for it, or by a clock that knows nothing of the other's.
        let missed = now > moment || moment - now > 2 * LEAD;
        let moment = if missed { now } else { moment };
        real.wait_for(multiply(await_moment(moment), before_load));
        real.load(line(trial));
        let first = real.token();
        agreement.turn.store(turn + 2, Ordering::Release);
        await_turn(agreement, turn + 3);
        real.load(line(trial));
        if !missed {
            seen[at][0] += usize::from(first == real.token());
            seen[at][1] += 1;
        }
    }
    seen
}

fn await_turn(agreement: &Agreement, turn: u64) {
    while agreement.turn.load(Ordering::Acquire) < turn {
        std::hint::spin_loop();
    }
}

/// Zero, known when the moment has come: a processor that guesses so before does nothing with it.
#[inline(always)]
fn await_moment(moment: u64) -> usize {
    loop {
        let now = clock();
        if now >= moment {
            return zero_after(now);
        }
    }
}

/// The difference at which the load sees the store, on average over what makes it differ.
fn threshold(seen: &[[usize; 2]; STEPS], step: usize) -> f64 {
    let shares = seen.map(|[seen, all]| seen as f64 / all as f64);
    let [first, .., last] = shares;
    if !(first > SURE && last < 1.0 - SURE) {
        return f64::NAN;
    }
    let whole: f64 = shares.windows(2).map(|two| f64::midpoint(two[0], two[1])).sum();
    (whole - BEFORE as f64) * step as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_is_over_where_half_of_the_loads_see_the_store() {
        let sweep = |share: &dyn Fn(f64) -> f64| {
            std::array::from_fn(|at| {
                let seen = 1000.0 * share(at as f64 - BEFORE as f64).clamp(0.0, 1.0);
                [seen.round() as usize, 1000]
            })
        };
        // All at once, or over some steps about the same middle.
        assert!((threshold(&sweep(&|at| if at < 7.5 { 1.0 } else { 0.0 }), 3) - 22.5).abs() < 0.1);
        assert!((threshold(&sweep(&|at| 0.5 - (at - 7.5) / 6.0), 3) - 22.5).abs() < 0.1);
        assert!((threshold(&sweep(&|at| 0.5 - at / 6.0), 3)).abs() < 0.1);
        assert!(threshold(&sweep(&|_| 1.0), 3).is_nan() && threshold(&sweep(&|_| 0.0), 3).is_nan());
    }

    #[test]
    fn a_step_delays_the_load_or_the_store_and_never_both() {
        assert_eq!(delays(0, 5), [0, 30]);
        assert_eq!(delays(BEFORE, 5), [0, 0]);
        assert_eq!(delays(STEPS - 1, 5), [90, 0]);
    }
}
