//! The wants, minima and returns of a level, derived from the levels below it.
//!
//! A level that this node has not opened is held for those below it: it wants what they want, keeps what they hold, and gives
//! back with them. An opened level has its own demand as well.

use std::collections::HashMap;

use crate::message::{self, State};

use super::{Held, Node};

/// Sums over the levels below a level.
#[derive(Clone, Copy, Default)]
struct Below {
    lease: u64,
    used: u64,
}

impl Below {
    /// Returns the leases below plus the units charged to the level itself, where the level's usage is `used`. The readings are
    /// of slightly different moments; with a lower lease than the sum below, this level would refuse charges of the levels below.
    fn and_own(self, used: u64) -> u64 {
        self.lease.saturating_add(used.saturating_sub(self.used))
    }
}

impl Node {
    /// Computes all wants from the leaves up: a level wants the additional units that those below it expect to use.
    pub(super) fn reckon(&mut self) {
        let mut more: HashMap<String, u64> = HashMap::new();
        for (path, held) in self.budgets.iter_mut().rev() {
            let below = more.remove(path);
            held.unused = held.users == 0 && below.is_none();
            let want = match held.state {
                // A closing budget grants nothing any more.
                State::Closing => held.demand.reckon(held.lease, 0, true),
                _ => held.demand.reckon(held.lease, below.unwrap_or(0), held.users == 0),
            };
            if let Some(above) = message::above(path).filter(|_| !held.unused) {
                let rest = more.entry(above.to_owned()).or_default();
                *rest = rest.saturating_add(want.saturating_sub(held.demand.used));
            }
        }
    }

    /// Returns the lease to which each budget is lowered, in the order of their paths: the current lease if it stays.
    pub(super) fn goals(&mut self, now: u64, paths: &[String], bye: bool) -> Vec<u64> {
        let patience = self.ttl;
        let mut sums: HashMap<&str, Below> = HashMap::new();
        let mut goals = Vec::with_capacity(self.budgets.len());
        for (path, held) in self.budgets.iter_mut().rev() {
            let below = sums.remove(path.as_str());
            let to = if bye {
                0
            } else if paths.binary_search(path).is_ok() {
                held.goal(now, below, patience)
            } else {
                held.lease
            };
            if let Some(above) = message::above(path) {
                let (used, want) = (held.demand.used, held.demand.want);
                // A charge that a full budget below refuses needs nothing here.
                let hoped = if held.demand.is_blocked() { to } else { to.max(want) };
                let sum = sums.entry(above).or_default();
                sum.lease = sum.lease.saturating_add(hoped.max(used));
                sum.used = sum.used.saturating_add(used);
            }
            goals.push(to);
        }
        goals.reverse();
        goals
    }

    /// Returns the lease that each budget wants even if none below it grows, in the order of their paths.
    pub(super) fn least(&self) -> Vec<u64> {
        let mut sums: HashMap<&str, Below> = HashMap::new();
        let mut least = Vec::with_capacity(self.budgets.len());
        for (path, held) in self.budgets.iter().rev() {
            let below = sums.remove(path.as_str()).unwrap_or_default();
            let used = held.demand.used;
            least.push(if held.users > 0 { held.demand.want } else { below.and_own(used) });
            if let Some(above) = message::above(path) {
                let sum = sums.entry(above).or_default();
                sum.lease = sum.lease.saturating_add(held.lease.max(used));
                sum.used = sum.used.saturating_add(used);
            }
        }
        least.reverse();
        least
    }
}

impl Held {
    /// Returns whether more is leased than the budget allows. Units in use must be given back then, too.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.state, State::Over { .. } | State::Closing)
    }

    /// Returns the least that the budget keeps when others ask for idle units.
    pub(super) fn kept(&self) -> u64 {
        self.demand.kept(self.wanted > 0)
    }

    /// Returns the lease to which a turn lowers this one.
    fn goal(&mut self, now: u64, below: Option<Below>, patience: u64) -> u64 {
        let lease = self.lease;
        let mut to = lease;
        let freed = self.demand.freed().min(self.wanted);
        if self.back > 0 && self.is_over() {
            to = lease.saturating_sub(self.back);
            self.demand.content(to);
        } else if self.back > 0 || freed > 0 {
            to = lease.saturating_sub(self.back.max(freed)).max(self.kept()).min(lease);
            self.demand.content(to);
        }
        if self.due > 0 {
            to = to.min(lease.saturating_sub(self.due).max(self.demand.used));
            self.demand.content(to);
        }
        match below {
            _ if self.unused || self.state == State::Closing => to.min(self.demand.want),
            Some(below) if self.users == 0 => to.min(below.and_own(self.demand.used)),
            _ => match self.demand.surplus(now, lease, patience) {
                Some(want) => to.min(want),
                None => to,
            },
        }
    }
}
