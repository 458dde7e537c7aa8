//! `high`: a charge above it succeeds, and then pays with time.
//!
//! ```text
//! ratio   = (usage - high) / high                     of the group of the path that is furthest above its high,
//!                                                     without what may lie idle
//! penalty = 64 s * ratio^2 * units / batch            at most the ledger's `throttle_time`
//! ```
//!
//! The curve is that of the kernel's memory controller (`calculate_high_delay`: the square of the overage, scaled by
//! 2^6 seconds, in proportion to the charge's share of a batch; at most two seconds). A small excess costs next to
//! nothing. A large one costs so much that reclaim, the owner or the operator gets ahead. The limit per charge keeps
//! a group that stays above its high from hanging. The time paid is counted (`throttled`, `throttled_usec` in
//! [`Group::stat`](crate::Group::stat)).
//!
//! The kernel accumulates a task's debt until the task returns to user space. Here nothing is accumulated: a penalty
//! shorter than a millisecond is not worth a sleep, so a random fraction of such charges pays a whole millisecond. On
//! average, a thousand small charges pay as much as one large one.

use crate::control::alarm::Alarm;
use crate::control::{LONGEST, reclaim};
use crate::counter::COUNTER_MAX;
use crate::counter::changes::{GOLDEN, mixed};
use crate::group::Group;
use crate::sync::{AtomicU64, Ordering};
use crate::table::path::RowPath;
use crate::table::sums::{self, Sum};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// The penalty of a batch at twice the high: the kernel's curve.
const STEEPNESS: u128 = 64_000_000_000;
/// A shorter penalty is paid as this one, by few charges.
const SHORTEST: Duration = Duration::from_millis(1);
/// The longest penalty, unless the builder sets another.
pub(crate) const THROTTLE_TIME: Duration = Duration::from_secs(2);

/// Computes the formula of the module's documentation.
fn penalty(usage: u64, high: u64, units: u64, batch: u64) -> Duration {
    let over = u128::from(usage.saturating_sub(high));
    // The ratio in units of 2^-20, at most a million. So its square has at most 80 bits, and 64 s in nanoseconds have
    // 36.
    let ratio = ((over << 20) / u128::from(high.max(1))).min(1 << 40);
    let batchful = (ratio * ratio * STEEPNESS) >> 40;
    let nanoseconds = batchful.saturating_mul(units.into()) / u128::from(batch.max(1));
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
}

/// Rounds a short penalty to none or to the shortest one, at random and with the same mean. `random` is uniform over
/// 64 bits.
fn rounded(penalty: Duration, random: u64) -> Duration {
    if penalty >= SHORTEST {
        return penalty;
    }
    let chosen = (u128::from(random) * SHORTEST.as_nanos()) >> 64 < penalty.as_nanos();
    if chosen { SHORTEST } else { Duration::ZERO }
}

/// Returns a random number (SplitMix64), good enough for this.
fn random() -> u64 {
    static STATE: AtomicU64 = AtomicU64::new(0);
    mixed(STATE.fetch_add(GOLDEN, Ordering::Relaxed).wrapping_add(GOLDEN))
}

/// The time that a charge above high owes. A caller sleeps it off ([`sleep`](Self::sleep)), awaits it, or uses it as
/// a hint if it may do neither ([`penalty`](Self::penalty)). Below high nothing is owed.
///
/// ```
/// # use ledgerline::{Ledger, Limit};
/// let ledger = Ledger::new()?;
/// let tenant = ledger.root().create("acme")?;
/// tenant.set_high(Limit::units(1 << 20));
/// let below = tenant.try_charge(1 << 20)?;
/// assert!(below.backoff().penalty().is_zero());
/// let above = tenant.try_charge(1 << 20)?; // not refused
/// let backoff = above.backoff();
/// assert_eq!(backoff.penalty().as_secs(), 2); // 64 s * 1^2 * 4 batches, but 2 s are the most
/// assert_eq!(backoff.group().unwrap().path(), "/acme");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "a backoff slows nothing down unless it is slept off or awaited"]
pub struct Backoff<'l> {
    charged: Group<'l>,
    above: Option<Group<'l>>,
    penalty: Duration,
    until: Option<Instant>,
    alarm: Alarm,
}

impl<'l> Group<'l> {
    /// Like [`Charge::backoff`](crate::Charge::backoff), for units that were charged without a guard.
    pub fn backoff(self, units: u64) -> Backoff<'l> {
        let mut worst = self.above_high();
        if let Some((above, _, high)) = worst
            && reclaim::above(above, high, &reclaim::Clock::start(self.ledger()))
        {
            worst = self.above_high();
        }
        let ledger = self.ledger();
        let owed = worst.map_or(Duration::ZERO, |(_, usage, high)| {
            rounded(penalty(usage, high, units, ledger.table().batch), random())
        });
        Backoff {
            charged: self,
            above: worst.map(|(above, ..)| above),
            penalty: owed.min(ledger.control().times.throttle),
            until: None,
            alarm: Alarm::default(),
        }
    }

    /// Returns the group of the path that is furthest above its high, in proportion, with its usage and its high.
    fn above_high(self) -> Option<(Group<'l>, u64, u64)> {
        self.read(|_| self.above_high_now()).flatten()
    }

    /// Like [`above_high`](Self::above_high), but does not check that the group still has the row.
    fn above_high_now(self) -> Option<(Group<'l>, u64, u64)> {
        let ledger = self.ledger();
        let path = RowPath::new(ledger.table(), self.id().index())?;
        let levels = path.rows().iter().zip(path.counters());
        let above = levels.filter_map(|(&row, counter)| {
            let high = counter.limits.high.load(Ordering::Relaxed);
            // All CPUs write the usage's line, so it is not read if there is no high.
            if high >= COUNTER_MAX {
                return None;
            }
            // Idle stock belongs to no charge.
            let usage = counter.usage().saturating_sub(counter.idle_at_most());
            (usage > high).then_some((row, usage, high))
        });
        let times = |(_, usage, high): &(u32, u64, u64), other_high: u64| {
            u128::from(usage - high) * u128::from(other_high.max(1))
        };
        // Of equals, the last one, which is the lowest.
        let worst = above.rev().max_by(|one, other| times(one, other.2).cmp(&times(other, one.2)));
        let (row, usage, high) = worst?;
        Some((ledger.group(ledger.table().id(row)), usage, high))
    }
}

/// Slows down an allocation that goes beyond the allowance over a limit. At twice the limit it takes 25 ms for as
/// many units as the limit, in proportion to both, and at most 10 ms. So work that never checks for a refusal grows
/// ever more slowly, and work that ends soon pays little.
pub(crate) fn slow_down(group: Group<'_>, units: u64, beyond: u64, limit: u64) {
    const FULL: u128 = 25_000_000;
    const LONGEST: Duration = Duration::from_millis(10);
    let limit = u128::from(limit.max(1 << 20));
    let square = u128::from(beyond) * u128::from(units) / limit;
    let nanoseconds = square.saturating_mul(FULL) / limit;
    let owed = Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX));
    let owed = rounded(owed.min(LONGEST), random());
    if !owed.is_zero() {
        note(group, owed);
        std::thread::sleep(owed);
    }
}

/// Counts that a charge of a group paid with time.
fn note(group: Group<'_>, time: Duration) {
    let (table, id) = (group.ledger().table(), group.id());
    let time = i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
    sums::note(table, id, Sum::Throttled, 1);
    sums::note(table, id, Sum::ThrottledTime, time);
}

impl<'l> Backoff<'l> {
    /// Returns the time to wait. Zero below high, and for most small charges a little above it.
    pub fn penalty(&self) -> Duration {
        self.penalty
    }

    /// Returns the group that is above its high.
    pub fn group(&self) -> Option<Group<'l>> {
        self.above
    }

    /// Waits in this thread, and counts the wait.
    pub fn sleep(self) {
        if !self.penalty.is_zero() {
            self.count();
            std::thread::sleep(self.penalty);
        }
    }

    fn count(&self) {
        note(self.charged, self.penalty);
    }
}

impl Future for Backoff<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.penalty.is_zero() {
            return Poll::Ready(());
        }
        let until = self.until.unwrap_or_else(|| {
            self.count();
            Instant::now() + self.penalty.min(LONGEST)
        });
        self.until = Some(until);
        if Instant::now() >= until {
            return Poll::Ready(());
        }
        self.alarm.set(context.waker(), Some(until));
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computes the curve in floating point.
    fn obvious(usage: u64, high: u64, units: u64, batch: u64) -> f64 {
        let ratio = (usage.saturating_sub(high) as f64 / high.max(1) as f64).min(1_048_576.0);
        64.0 * ratio * ratio * units as f64 / batch.max(1) as f64
    }

    #[test]
    fn the_penalty_is_the_curve_from_nothing_to_the_ends_of_64_bits() {
        // Published: at 64 pages a batch, a tenth above high costs 0.64 s.
        let tenth = penalty(110 << 20, 100 << 20, 64, 64);
        assert!((tenth.as_secs_f64() - 0.64).abs() < 0.001, "{tenth:?}");
        let sizes = [0, 1, 2, 63, 64, 1000, 1 << 20, (1 << 32) + 7, 1 << 45, 1 << 61, 1 << 62];
        for usage in sizes {
            for high in sizes {
                for units in sizes {
                    for batch in [1, 64, 262_144, 1 << 28] {
                        let ours = penalty(usage, high, units, batch).as_secs_f64();
                        let truth = obvious(usage, high, units, batch);
                        if truth > 1e10 {
                            assert!(ours > 1e9, "{usage} {high} {units} {batch}: {ours} {truth}");
                        } else {
                            let off = (ours - truth).abs();
                            assert!(
                                off <= truth * 0.01 + 0.002,
                                "{usage} {high} {units} {batch}: {ours} {truth}"
                            );
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn short_penalties_are_paid_seldom_and_in_full_on_average() {
        for micros in [1, 10, 250, 999] {
            let short = Duration::from_micros(micros);
            let tries = 100_000;
            let paid: Duration = (0..tries).map(|_| rounded(short, random())).sum();
            let average = paid.as_nanos() as f64 / f64::from(tries);
            // Five standard deviations of a biased coin.
            let chance = micros as f64 / 1000.0;
            let slack = 5.0 * 1e6 * (chance * (1.0 - chance) / f64::from(tries)).sqrt();
            let owed = short.as_nanos() as f64;
            assert!((average - owed).abs() < slack, "{average} of {owed} within {slack}");
        }
        assert_eq!(rounded(SHORTEST, u64::MAX), SHORTEST);
        assert_eq!(rounded(Duration::ZERO, 0), Duration::ZERO);
    }

    #[test]
    fn the_group_furthest_above_its_high_pays_and_of_equals_the_lowest() {
        let ledger = crate::Ledger::builder().capacity(4).anonymous().unwrap();
        let tenant = ledger.root().create("tenant").unwrap();
        let query = tenant.create("query").unwrap();
        query.charge_units(2000).unwrap();
        ledger.root().drain();
        let pays = |of_tenant, of_query| {
            tenant.set_high(crate::Limit::units(of_tenant));
            query.set_high(crate::Limit::units(of_query));
            query.backoff(1).group()
        };
        assert_eq!(pays(1000, 1000), Some(query));
        assert_eq!(pays(999, 1000), Some(tenant));
        assert_eq!(pays(1000, 999), Some(query));
        assert_eq!(pays(3000, 3000), None);
    }
}
