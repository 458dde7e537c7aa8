//! What a node expects to need of a budget, by its recent use.

use std::collections::VecDeque;

use crate::message::MAX_UNITS;

use super::Reading;

/// What was seen of one budget.
///
/// ```text
/// want = recent peak + growth until the next turn but one + reserve
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Demand {
    reserve: u64,
    /// When it was last looked at.
    seen: u64,
    pub used: u64,
    /// The most that was used, coming down an eighth a look.
    peak: u64,
    /// What use may grow by before the next reply, coming down an eighth a look.
    growth: u64,
    pub refused: u64,
    /// What the last message said is used.
    said: u64,
    /// Refusals that the last message did not know of.
    refused_since: bool,
    /// Units that charges wait for.
    need: u64,
    /// Each of these charges and since when it waits, the oldest first.
    waiting: VecDeque<(u64, u64)>,
    /// For how many looks nothing has been used.
    still: u32,
    /// Since when the lease is well above the want.
    idle_since: Option<u64>,
    pub want: u64,
    /// The last reply granted less than the want: until the next turn, or a nudge, asking again is of no use.
    unmet: bool,
}

impl Demand {
    /// After so many looks without use a budget keeps no reserve.
    const STILL: u32 = 24;

    pub fn new(now: u64, reserve: u64) -> Self {
        Self { reserve, seen: now, want: reserve, ..Self::default() }
    }

    /// Takes a look. `horizon` is how far ahead to see, in milliseconds.
    pub fn see(&mut self, now: u64, reading: Reading, horizon: u64) {
        let used = reading.used.min(MAX_UNITS);
        let elapsed = now.saturating_sub(self.seen);
        if elapsed > 0 {
            let grown = used.saturating_sub(self.used);
            let ahead = u128::from(grown) * u128::from(horizon) / u128::from(elapsed);
            // A burst between two looks does not go on at its rate.
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

    /// The lease that the charge needs which waits longest, and for how long it has; both 0 if none waits.
    pub fn next(&self, now: u64) -> (u64, u64) {
        match self.waiting.front() {
            Some((units, since)) => (self.used.saturating_add(*units), now.saturating_sub(*since)),
            None => (0, 0),
        }
    }

    /// The lease that charges need which wait; 0 if none does.
    pub fn urgent(&self) -> u64 {
        if self.need > 0 { self.used.saturating_add(self.need) } else { 0 }
    }

    /// The last reply granted less than the want.
    pub fn is_blocked(&self) -> bool {
        self.unmet
    }

    /// How much less is used than the last message said.
    pub fn freed(&self) -> u64 {
        self.said.saturating_sub(self.used)
    }

    /// Whether that is worth a message, where others wait for what is freed and so much is used now. Of that `due` is theirs.
    pub fn is_freed(&self, used: u64, lease: u64, due: u64) -> bool {
        let worth = self.reserve.min(lease / 8);
        let worth = if due > 0 { worth.min(due) } else { worth }.max(1);
        self.said >= used.saturating_add(worth) && lease > used
    }

    /// Whether the lease is nearly used up, or charges were refused at it.
    pub fn is_near(&self, lease: u64) -> bool {
        let left = lease.saturating_sub(self.used);
        !self.unmet && self.wants_more(left, lease)
    }

    fn wants_more(&self, left: u64, lease: u64) -> bool {
        self.refused_since || (self.growth > 0 && left < self.reserve.min(lease) / 2)
    }

    /// Less is used since reclaimers were asked. What was used is not wanted back at once.
    pub fn reclaimed(&mut self, used: u64) {
        let freed = self.used.saturating_sub(used);
        self.used -= freed;
        self.peak = self.peak.saturating_sub(freed).max(self.used);
        self.want = self.want.saturating_sub(freed);
    }

    /// Works out the want. `below` is what levels below want beyond what they use; nobody has a `closed` one open.
    pub fn reckon(&mut self, lease: u64, below: u64, closed: bool) -> u64 {
        let expected = if closed {
            self.used
        } else {
            let reserve = if self.still < Self::STILL { self.reserve } else { 0 };
            let mut most = self.peak.max(self.used.saturating_add(self.growth)) + reserve;
            if self.need > 0 {
                most = most.max(self.used.saturating_add(self.need).saturating_add(reserve));
            } else if self.refused_since {
                // How large the refused charges were is not known: so each time half as much more.
                most = most.max(lease.saturating_add((lease / 2).max(reserve)));
            }
            most
        };
        self.want = expected.max(self.used.saturating_add(below)).min(MAX_UNITS);
        self.want
    }

    /// A reply granted so much.
    pub fn granted(&mut self, lease: u64) {
        self.unmet = lease < self.want;
    }

    /// A message says all that was seen.
    pub fn said(&mut self) {
        self.refused_since = false;
        self.said = self.used;
    }

    /// To what the lease is lowered because it lies idle: not before it has been well above the want for `patience`.
    pub fn surplus(&mut self, now: u64, lease: u64, patience: u64) -> Option<u64> {
        let idle = lease.saturating_sub(self.want);
        if idle == 0 || (self.want > 0 && idle <= self.reserve.max(lease / 4)) {
            self.idle_since = None;
            return None;
        }
        let since = *self.idle_since.get_or_insert(now);
        (now.saturating_sub(since) >= patience).then_some(self.want)
    }

    /// What it keeps at the least when others ask for idle units. Where charges of theirs wait, nothing idle: no reserve, and no
    /// part of what a charge here waits for. So all that is idle comes together where it serves one.
    pub fn kept(&self, others_wait: bool) -> u64 {
        if others_wait {
            return self.used;
        }
        let reserve = if self.still < Self::STILL { self.reserve.min(self.used) } else { 0 };
        self.used.saturating_add(reserve).saturating_add(self.need)
    }

    /// Wants what it holds, and not what it has just given back.
    pub fn content(&mut self, lease: u64) {
        if self.need == 0 {
            self.want = self.want.min(lease.max(self.used));
        }
    }
}
