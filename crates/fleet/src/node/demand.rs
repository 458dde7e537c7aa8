//! Prediction of a node's need of a budget from its recent use.

use std::collections::VecDeque;

use crate::message::MAX_UNITS;

use super::Reading;

/// Observations of one budget.
///
/// ```text
/// want = recent peak + growth until the next turn but one + reserve
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Demand {
    reserve: u64,
    /// Time of the last look.
    seen: u64,
    pub used: u64,
    /// Recent peak of usage, which decays by an eighth a look.
    peak: u64,
    /// Expected growth of usage before the next reply, which decays by an eighth a look.
    growth: u64,
    pub refused: u64,
    /// Usage that the last message reported.
    said: u64,
    /// Whether charges were refused after the last message.
    refused_since: bool,
    /// Units that charges wait for.
    need: u64,
    /// The units of each of these charges and the time since which it waits, oldest first.
    waiting: VecDeque<(u64, u64)>,
    /// Number of looks in a row without usage.
    still: u32,
    /// Time since which the lease is well above the want.
    idle_since: Option<u64>,
    pub want: u64,
    /// Whether the last reply granted less than the want. Asking again is useless until the next turn or a nudge.
    unmet: bool,
}

impl Demand {
    /// Number of looks without usage after which a budget keeps no reserve.
    const STILL: u32 = 24;

    pub fn new(now: u64, reserve: u64) -> Self {
        Self { reserve, seen: now, want: reserve, ..Self::default() }
    }

    /// Takes a reading. `horizon` is how far to look ahead, in milliseconds.
    pub fn see(&mut self, now: u64, reading: Reading, horizon: u64) {
        let used = reading.used.min(MAX_UNITS);
        let elapsed = now.saturating_sub(self.seen);
        if elapsed > 0 {
            let grown = used.saturating_sub(self.used);
            let ahead = u128::from(grown) * u128::from(horizon) / u128::from(elapsed);
            // A burst between two looks does not continue at its rate.
            let most = used.saturating_add(self.reserve);
            let ahead = u64::try_from(ahead).unwrap_or(u64::MAX).min(most);
            self.growth = ahead.max(self.growth - self.growth.div_ceil(8));
            self.peak = used.max(self.peak - self.peak.div_ceil(8));
            self.seen = now;
        }
        self.peak = self.peak.max(used);
        let refused = reading.refused.min(MAX_UNITS);
        let quiet = used == 0 && refused == self.refused && self.need == 0;
        self.still = if quiet { self.still.saturating_add(1) } else { 0 };
        self.refused_since |= refused > self.refused;
        self.refused = self.refused.max(refused);
        self.used = used;
    }

    pub fn need(&mut self, now: u64, units: u64) {
        self.waiting.push_back((units, now));
        self.need = self.waiting.iter().fold(0, |all, (units, _)| all.saturating_add(*units));
        self.still = 0;
    }

    pub fn served(&mut self, units: u64) {
        let Some(place) = self.waiting.iter().position(|(one, _)| *one == units) else { return };
        self.waiting.remove(place);
        self.need = self.waiting.iter().fold(0, |all, (units, _)| all.saturating_add(*units));
    }

    /// Returns the lease that the oldest waiting charge needs, and for how long that charge has waited; both 0 if none waits.
    pub fn next(&self, now: u64) -> (u64, u64) {
        match self.waiting.front() {
            Some((units, since)) => (self.used.saturating_add(*units), now.saturating_sub(*since)),
            None => (0, 0),
        }
    }

    /// Returns the lease that all waiting charges need; 0 if none waits.
    pub fn urgent(&self) -> u64 {
        if self.need > 0 { self.used.saturating_add(self.need) } else { 0 }
    }

    /// Returns whether the last reply granted less than the want.
    pub fn is_blocked(&self) -> bool {
        self.unmet
    }

    /// Returns by how much usage has fallen below what the last message reported.
    pub fn freed(&self) -> u64 {
        self.said.saturating_sub(self.used)
    }

    /// Returns whether usage of `used` has fallen far enough below the last message to send another, while others wait for freed
    /// units. Of these, `due` go to others.
    pub fn is_freed(&self, used: u64, lease: u64, due: u64) -> bool {
        let worth = self.reserve.min(lease / 8);
        let worth = if due > 0 { worth.min(due) } else { worth }.max(1);
        self.said >= used.saturating_add(worth) && lease > used
    }

    /// Returns whether the lease is nearly used up, or refused charges.
    pub fn is_near(&self, lease: u64) -> bool {
        let left = lease.saturating_sub(self.used);
        !self.unmet && self.wants_more(left, lease)
    }

    fn wants_more(&self, left: u64, lease: u64) -> bool {
        self.refused_since || (self.growth > 0 && left < self.reserve.min(lease) / 2)
    }

    /// Notes that reclaimers reduced usage to `used`. The freed units are not wanted back at once.
    pub fn reclaimed(&mut self, used: u64) {
        let freed = self.used.saturating_sub(used);
        self.used -= freed;
        self.peak = self.peak.saturating_sub(freed).max(self.used);
        self.want = self.want.saturating_sub(freed);
    }

    /// Computes the want. `below` is how much the levels below want beyond their usage. `closed`: this node has not opened the
    /// budget itself.
    pub fn reckon(&mut self, lease: u64, below: u64, closed: bool) -> u64 {
        let expected = if closed {
            self.used
        } else {
            let reserve = if self.still < Self::STILL { self.reserve } else { 0 };
            let mut most = self.peak.max(self.used.saturating_add(self.growth)) + reserve;
            if self.need > 0 {
                most = most.max(self.used.saturating_add(self.need).saturating_add(reserve));
            } else if self.refused_since {
                // The size of the refused charges is unknown, so the lease grows by half each time.
                most = most.max(lease.saturating_add((lease / 2).max(reserve)));
            }
            most
        };
        self.want = expected.max(self.used.saturating_add(below)).min(MAX_UNITS);
        self.want
    }

    /// Notes the lease that a reply granted.
    pub fn granted(&mut self, lease: u64) {
        self.unmet = lease < self.want;
    }

    /// Notes that a message reported the current observations.
    pub fn said(&mut self) {
        self.refused_since = false;
        self.said = self.used;
    }

    /// Returns the lease to shrink to if it lies idle: once it has been well above the want for `patience`.
    pub fn surplus(&mut self, now: u64, lease: u64, patience: u64) -> Option<u64> {
        let idle = lease.saturating_sub(self.want);
        if idle == 0 || (self.want > 0 && idle <= self.reserve.max(lease / 4)) {
            self.idle_since = None;
            return None;
        }
        let since = *self.idle_since.get_or_insert(now);
        (now.saturating_sub(since) >= patience).then_some(self.want)
    }

    /// Returns the least that the node keeps when others ask for idle units. While charges of others wait, it keeps nothing idle:
    /// no reserve, and no part of what a charge here waits for. All idle units then gather where they can serve a charge.
    pub fn kept(&self, others_wait: bool) -> u64 {
        if others_wait {
            return self.used;
        }
        let reserve = if self.still < Self::STILL { self.reserve.min(self.used) } else { 0 };
        self.used.saturating_add(reserve).saturating_add(self.need)
    }

    /// Limits the want to the lease, so that units just given back are not asked for again.
    pub fn content(&mut self, lease: u64) {
        if self.need == 0 {
            self.want = self.want.min(lease.max(self.used));
        }
    }
}
