//! Reclaim asks reclaimers for units before a charge is refused. This module decides which are asked, for how much
//! and in which order.
//!
//! ```text
//! reclaim(full, missing)                              full: the lowest group that has no room
//!   hold off new caps below full, drain it            what is returned reaches the counters
//!   rounds, until nothing is missing, no group has anything, or the time is up:
//!     read usage and effective protection of all reclaimers' groups below full
//!     take those above their protection, or if there are none those above min alone; never below min
//!     of these, take those of the lowest priority
//!     ask each for its share of what is missing, in proportion to what it holds above its protection
//!     do not ask again one that gave nothing
//!   progress: the caller tries again
//! ```
//!
//! **Why in rounds.** The part of a protected parent that a child may keep depends on the usage of its siblings. As
//! one sibling is reclaimed, its claim falls, and the others' shares grow. The kernel goes through siblings again and
//! again and takes a small part of (usage - effective protection) of each, so its result is that of many small steps.
//! One large step, in proportion to the protection at its start, has another result. Take children that claim 75, 25,
//! 0 and 500 MiB below a parent with 50, and use 50, 50, 50 and 0. When 98 are asked for, one such step leaves 33.7,
//! 17.3, 1 and 0, and infinitely many small ones 29.1, 21.9, 1 and 0 (the kernel's own test wants 29 and 21 within a
//! tenth).
//!
//! So if effective protection moves, a round asks for at most a quarter of the excess above it. That leaves 29.5,
//! 21.5, 1 and 0, off by 2 % at the worst, after 14 rounds (a half: 30.0 and 21.0 after six; an eighth: 29.3 and 21.7
//! after thirty). Below a sixty-fourth of the first round's excess, a round asks for the rest at once, so that the
//! rounds end. Many small requests take small steps by themselves. If no group's protection depends on others (there
//! is none, or it is set right below the full group), one round asks for everything, since the proportions stay.
//!
//! **Shares by lot.** A share of a few units is not worth a call. So a request is cut into pieces of a sixty-fourth
//! of the candidates' average excess. They are dealt out over the candidates at equal distances, from a random start.
//! Each candidate gets its share to within a piece, and on average exactly. A small request is one piece, and goes to
//! one candidate. Many small requests come out in proportion, even if caches give back only whole pages.

use crate::control::audit::By;
use crate::control::reclaimers::{Entry, Outcome};
use crate::control::{attempt, events, protection, reclaiming};
use crate::counter::changes::GOLDEN;
use crate::counter::walk::Levels;
use crate::group::Group;
use crate::ledger::Ledger;
use crate::stock::AtLimit;
use crate::stock::drain::HeldOff;
use crate::stock::precise;
use crate::stock::refusal::{self, Reason, Refusal};
use crate::sync::{Ordering, wait_until};
use crate::table::id::GroupId;
use crate::table::path;
use crate::table::sums::Sum;
use crate::whose;
use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

/// If protection moves, a round asks for this part of the excess above it.
const STEP: u64 = 4;
/// If the excess is at most this part of the first round's, a round asks for all of it.
const LAST_STEP: u64 = 64;
/// Number of pieces in one candidate's excess, on average.
const PIECES: u64 = 64;

/// A reclaimer that may be asked during one reclaim.
struct Asked {
    entry: Arc<Entry>,
    /// Whether the event was counted that its low did not protect it.
    told: bool,
    /// Number of consecutive runs whose claimed units did not show in the usage.
    unseen: u32,
}

/// A reclaimer that is asked in one round.
struct Candidate {
    /// Its index among the reclaimers that may be asked.
    asked: usize,
    /// Whether its excess is protected by `low` alone.
    protected: bool,
    priority: i32,
    /// The units that its group keeps.
    keeps: u64,
    /// The units that its group has above that.
    excess: u64,
    /// Whether the kept units depend on the usage of other groups.
    moves: bool,
    share: u64,
}

/// The time limit of reclaimers for one request. It applies only after a reclaimer was asked: a preempted thread
/// still asks once.
pub(crate) struct Clock {
    until: Instant,
    asked: Cell<bool>,
}

impl Clock {
    pub(crate) fn start(ledger: &Ledger) -> Clock {
        let until = Instant::now() + ledger.control().times.reclaim;
        Clock { until, asked: Cell::new(false) }
    }

    fn is_up(&self) -> bool {
        Instant::now() >= self.until
    }
}

/// A request to reclaimers, with its time limit.
struct Order<'m> {
    /// The group whose charge waits, or the group that is reclaimed.
    for_whom: GroupId,
    /// Returns the units still missing.
    missing: &'m dyn Fn() -> u64,
    clock: &'m Clock,
    /// Whether a charge is about to be refused. Then reclaim also waits for reclaimers that other threads
    /// run, and asks those that gave nothing the last time.
    urgent: bool,
    /// Whether nothing was missing at one of the looks. Then the charge is worth another try, even if another thread
    /// has taken the room meanwhile.
    saw_room: Cell<bool>,
}

impl Order<'_> {
    /// Returns how much is missing, while there is time.
    fn open(&self) -> Option<u64> {
        let missing = (self.missing)();
        self.saw_room.set(self.saw_room.get() || missing == 0);
        let is_over = self.clock.asked.get() && self.clock.is_up();
        (missing > 0 && !is_over).then_some(missing)
    }

    /// Returns whether there is no time to begin another run: the time is up, and a reclaimer was asked or none is
    /// needed.
    fn is_over(&self) -> bool {
        self.clock.is_up() && (self.clock.asked.get() || (self.missing)() == 0)
    }
}

/// Retries a refused charge if the reclaimers below the full group can make room, as long as that makes progress. The
/// refusal is not counted.
#[cold]
#[inline(never)]
pub(crate) fn and_charge(
    group: Group<'_>,
    units: u64,
    mut refusal: Refusal,
    by: By,
) -> Result<Levels, Refusal> {
    let ledger = group.ledger();
    if !ledger.control().reclaimers.can_help()
        || !refusal::can_ever_fit(ledger.table(), group.id(), units)
    {
        return Err(refusal);
    }
    let clock = Clock::start(ledger);
    while refusal.reason == Reason::Limit && reclaim(ledger, &refusal, &clock) {
        match attempt::once(group, units, AtLimit::Refuse, by) {
            Ok(met) => return Ok(met),
            Err(again) => refusal = again,
        }
    }
    Err(refusal)
}

/// Tries to make room for a refused charge. Returns whether another try is worth it.
fn reclaim(ledger: &Ledger, refusal: &Refusal, clock: &Clock) -> bool {
    let full = ledger.group(refusal.group);
    let counter = &full.row().counter;
    let missing =
        || counter.usage().saturating_add(refusal.requested).saturating_sub(counter.max());
    reclaim_below(full, refusal.charged, &missing, clock, true)
}

/// Tries to bring a group down to `level`. Returns whether there was any progress.
pub(crate) fn above(group: Group<'_>, level: u64, clock: &Clock) -> bool {
    let counter = &group.row().counter;
    let missing = || counter.usage().saturating_sub(level);
    group.ledger().control().reclaimers.can_help()
        && reclaim_below(group, group.id(), &missing, clock, true)
}

impl Group<'_> {
    /// Asks the reclaimers of this group and of those below it for `units`, regardless of limits, like the kernel's
    /// `memory.reclaim`. For a program that knows better than any limit when memory is short.
    /// [`add_reclaimer`](Self::add_reclaimer) describes which are asked for how much. It ends after
    /// [`LedgerBuilder::reclaim_time`](crate::LedgerBuilder::reclaim_time).
    ///
    /// Returns by how many units the group's charges fell meanwhile. That is less than the reclaimers freed if other
    /// threads charge at the same time, and more if other threads return units. Zero inside a reclaimer of this
    /// ledger, since reclaims do not nest, and for a group that was destroyed. Not async-signal-safe.
    ///
    /// ```
    /// # use ledgerline::{Charge, Ledger};
    /// # use std::sync::{Arc, Mutex};
    /// let ledger: &'static Ledger = Box::leak(Box::new(Ledger::new()?));
    /// let cache = ledger.root().create("cache")?;
    /// let pages: Arc<Mutex<Vec<Charge<'static>>>> = Arc::default();
    /// for _ in 0..8 {
    ///     let page = cache.try_charge(10)?; // before the lock, which the reclaimer takes
    ///     pages.lock().unwrap().push(page);
    /// }
    /// let evict = pages.clone();
    /// let _reclaimer = cache.add_reclaimer(0, move |need| {
    ///     let mut pages = evict.lock().unwrap();
    ///     let keep = pages.len() - (need.div_ceil(10) as usize).min(pages.len());
    ///     pages.drain(keep..).map(|page| page.units()).sum()
    /// });
    /// assert_eq!(ledger.root().reclaim(25), 30);
    /// assert_eq!(ledger.root().reclaim(1000), 50); // all that there is
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reclaim(self, units: u64) -> u64 {
        self::units(self, units, true)
    }
}

/// Asks for `units` regardless of limits, and returns how much the group's charges fell. With `urgent`, asks as for a
/// charge that is about to be refused. Otherwise reclaimers that freed nothing the last time are left alone for a
/// while.
pub(crate) fn units(group: Group<'_>, units: u64, urgent: bool) -> u64 {
    let ledger = group.ledger();
    if !ledger.control().reclaimers.can_help() || !group.exists() {
        return 0;
    }
    let charged = || precise::charged(ledger.table(), group.id());
    let before = charged();
    let level = before.saturating_sub(units);
    let missing = || charged().saturating_sub(level);
    reclaim_below(group, group.id(), &missing, &Clock::start(ledger), urgent);
    before.saturating_sub(charged())
}

/// Reclaims after a charge that ended above the high of some levels of its path: asks the reclaimers there, the
/// lowest level first.
///
/// A group may stay above its high for long, so each call must be cheap. So idle stock does not count: otherwise the
/// surplus of each walk would be drained again at once, and each charge would be a walk. And a reclaimer that freed
/// nothing is left alone for a while.
#[cold]
#[inline(never)]
pub(crate) fn high(group: Group<'_>, met: Levels) {
    let ledger = group.ledger();
    if !ledger.control().reclaimers.can_help() || reclaiming::is_inside(ledger) {
        return;
    }
    let ids = whose::nobody(|| path::ids_to_root(ledger.table(), group.id()));
    for (_, &level) in ids.iter().enumerate().filter(|(level, _)| met >> level & 1 != 0) {
        let above = ledger.group(level);
        let counter = &above.row().counter;
        let high = counter.limits.high.load(Ordering::Relaxed);
        let charged = counter.usage().saturating_sub(counter.idle_at_most());
        let awake = |entry: Arc<Entry>| !entry.is_tired();
        let below = || whose::nobody(|| ledger.control().reclaimers.below(level));
        if charged > high && below().into_iter().any(awake) {
            let missing = || counter.usage().saturating_sub(high);
            reclaim_below(above, group.id(), &missing, &Clock::start(ledger), false);
        }
    }
}

/// Asks the reclaimers below a full group, for a charge of `for_whom`. Returns whether there was any progress.
fn reclaim_below(
    full: Group<'_>,
    for_whom: GroupId,
    missing: &dyn Fn() -> u64,
    clock: &Clock,
    urgent: bool,
) -> bool {
    let order = Order { for_whom, missing, clock, urgent, saw_room: Cell::new(false) };
    if order.is_over() || reclaiming::is_inside(full.ledger()) {
        return false;
    }
    // Allocations of reclaimers are not accounted, and no limit refuses them: they make the missing room.
    whose::nobody(|| ask_all(full, &order))
}

fn ask_all(full: Group<'_>, order: &Order<'_>) -> bool {
    let ledger = full.ledger();
    let mut entries = ledger.control().reclaimers.below(full.id());
    entries.retain(|entry| {
        let group = ledger.group(entry.group);
        group.exists() && group.row().counter.usage() > 0 && (order.urgent || !entry.is_tired())
    });
    if entries.is_empty() {
        return false;
    }
    let asked = entries.into_iter().map(|entry| Asked { entry, told: false, unseen: 0 }).collect();
    let _held_off = HeldOff::begin(ledger.table(), full.id().index());
    reclaiming::inside(ledger, || ask_in_rounds(full, asked, order)).unwrap_or(false)
}

fn ask_in_rounds(full: Group<'_>, mut asked: Vec<Asked>, order: &Order<'_>) -> bool {
    let ledger = full.ledger();
    let mut progress = false;
    let mut busy: Vec<Arc<Entry>> = Vec::new();
    // The excess above moving protection that the first round found.
    let mut first = 0;
    while let Some(missing) = order.open() {
        let mut done = Vec::new();
        let mut ran = false;
        for candidate in round(full, &asked, missing, &mut first) {
            let Some(missing) = order.open() else { break };
            let asked = &mut asked[candidate.asked];
            let entry = &asked.entry;
            // Other threads may have reclaimed there meanwhile, and a lower group counts into this one.
            let left =
                precise::charged(ledger.table(), entry.group).saturating_sub(candidate.keeps);
            let need = candidate.share.min(missing).min(left);
            if need == 0 {
                continue;
            }
            ran = true;
            order.clock.asked.set(true);
            match entry.run(ledger, need, order.for_whom) {
                Some(Outcome::Unseen) if entry.is_believed(asked.unseen + 1) => asked.unseen += 1,
                Some(Outcome::Unseen | Outcome::Nothing) => {
                    entry.rest(ledger.control().times.reclaim);
                    done.push(candidate.asked);
                }
                Some(Outcome::Freed) => {
                    progress = true;
                    asked.unseen = 0;
                    if candidate.protected && !asked.told {
                        events::count(ledger, entry.group, Sum::Low);
                        asked.told = true;
                    }
                }
                None => {
                    // A run that a fork left behind never ends.
                    if !entry.is_lost() {
                        busy.push(entry.clone());
                    }
                    done.push(candidate.asked);
                }
            }
        }
        if !ran {
            break;
        }
        // Removes from the end, so that the other indices stay valid.
        done.sort_unstable();
        done.into_iter().rev().for_each(|place| drop(asked.swap_remove(place)));
    }
    // A reclaimer may have raised the limit instead of freeing units.
    let _ = order.open();
    if progress || !order.urgent || order.saw_room.get() {
        return progress || order.saw_room.get();
    }
    // A run of another thread may free enough.
    let mut late = false;
    wait_until(None, || {
        late = order.clock.is_up();
        late || !busy.iter().any(|entry| entry.is_running())
    });
    !late && busy.iter().any(|entry| !entry.has_panicked())
}

/// Chooses which reclaimers are asked in the next round, and for how much.
fn round(full: Group<'_>, asked: &[Asked], missing: u64, first: &mut u64) -> Vec<Candidate> {
    let ledger = full.ledger();
    let groups: Vec<GroupId> = asked.iter().map(|asked| asked.entry.group).collect();
    let protections = protection::below(full, &groups);
    let candidates = asked.iter().zip(protections).enumerate();
    let mut round: Vec<Candidate> = candidates
        .filter_map(|(place, (asked, (protection, moves)))| {
            let usage = precise::charged(ledger.table(), asked.entry.group);
            let unprotected = protection.low.max(protection.min);
            let protected = usage <= unprotected;
            let keeps = if protected { protection.min } else { unprotected };
            let priority = asked.entry.priority;
            let excess = usage.saturating_sub(keeps);
            let candidate =
                Candidate { asked: place, protected, priority, keeps, excess, moves, share: 0 };
            (excess > 0).then_some(candidate)
        })
        .collect();
    let Some(soonest) = round.iter().map(|it| (it.protected, it.priority)).min() else {
        return round;
    };
    round.retain(|it| (it.protected, it.priority) == soonest);
    round.sort_by_key(|it| std::cmp::Reverse(it.excess));
    let excess: Vec<u64> = round.iter().map(|it| it.excess).collect();
    let sum = excess.iter().fold(0u64, |sum, &excess| sum.saturating_add(excess));
    let mut ask = missing.min(sum);
    if round.iter().any(|it| it.moves) {
        *first = sum.max(*first);
        let step = if sum <= *first / LAST_STEP { sum } else { sum / STEP };
        ask = ask.min(step.max(1));
    }
    let lot = ledger.control().reclaimers.lots.fetch_add(1, Ordering::Relaxed);
    for (candidate, share) in round.iter_mut().zip(shares(&excess, ask, lot)) {
        candidate.share = share;
    }
    round
}

/// Deals out `ask` units in proportion to `excess`: in pieces at equal distances, the first at a place that the
/// number of the lot decides. `ask` is at most the sum of `excess`, and the shares sum to it.
fn shares(excess: &[u64], ask: u64, lot: u64) -> Vec<u64> {
    let sum: u128 = excess.iter().copied().map(u128::from).sum();
    if sum == 0 || ask == 0 {
        return vec![0; excess.len()];
    }
    let piece = (sum / (u128::from(PIECES) * excess.len() as u128)).max(1);
    let ask = u128::from(ask);
    let pieces = ask.div_ceil(piece);
    // Multiples of the golden ratio are evenly distributed for any count. Takes the upper half of the product's
    // fraction, in 2^-32 of the distance of two pieces.
    let start = u128::from(lot.wrapping_mul(GOLDEN) >> 32);
    // Only proportions count, so the upper 64 bits suffice.
    let shift = (u128::BITS - sum.leading_zeros()).saturating_sub(64);
    let (mut before, mut dealt) = (0, 0);
    excess
        .iter()
        .map(|&excess| {
            before += u128::from(excess);
            // The number of pieces before the end of this one's part: at most 2^25, so nothing overflows.
            let end = (((before >> shift) * pieces) << 32) / (sum >> shift);
            let theirs = if end > start { ((end - start - 1) >> 32) + 1 } else { 0 };
            let all = ask * theirs / pieces;
            let share = all - dealt;
            dealt = all;
            share as u64
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(crate::cases::few(file!(), 256))]

        #[test]
        fn shares_sum_to_what_is_asked_and_are_in_proportion_to_within_a_piece(
            excess in prop::collection::vec(
                prop_oneof![0u64..100, 0u64..1 << 40, (1u64 << 62) - 9..1 << 62],
                1..40,
            ),
            part in 0u64..=1000,
            lot in any::<u64>(),
        ) {
            let sum: u128 = excess.iter().map(|&it| u128::from(it)).sum();
            let ask = u64::try_from(sum * u128::from(part) / 1000).unwrap_or(1 << 62);
            let shares = shares(&excess, ask, lot);
            let dealt: u128 = shares.iter().map(|&it| u128::from(it)).sum();
            prop_assert_eq!(dealt, u128::from(ask));
            let piece = sum as f64 / (PIECES as f64 * excess.len() as f64);
            for (&excess, &share) in excess.iter().zip(&shares) {
                let exact = excess as f64 * ask as f64 / (sum as f64).max(1.0);
                // For small numbers a piece is one unit; for large ones a float is not exact.
                let slack = piece.max(1.0) * 1.001 + 1.0 + exact * 1e-9;
                prop_assert!((share as f64 - exact).abs() <= slack, "{share} {exact}, {piece}");
            }
        }

        #[test]
        fn lots_in_a_row_deal_out_in_proportion_what_is_too_little_to_share(
            excess in prop::collection::vec(1u64..1_000_000, 1..10),
            first in any::<u64>(),
        ) {
            let sum: u64 = excess.iter().sum();
            let mut dealt = vec![0; excess.len()];
            for lot in 0..1000 {
                for (dealt, share) in dealt.iter_mut().zip(shares(&excess, 1, first.wrapping_add(lot))) {
                    *dealt += share;
                }
            }
            for (&excess, &dealt) in excess.iter().zip(&dealt) {
                let exact = 1000.0 * excess as f64 / sum as f64;
                prop_assert!((dealt as f64 - exact).abs() <= 5.0, "{dealt} of {exact}");
            }
        }
    }
}
