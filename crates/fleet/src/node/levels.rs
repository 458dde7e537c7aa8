//! What a level wants, keeps and gives back by what those below it do.
//!
//! A level that nobody has opened is held for those below it: it wants what they want, keeps what they hold, and gives back
//! with them. One that is opened has a demand of its own as well.

use std::collections::HashMap;

use crate::message::{self, State};

use super::{Held, Node};

/// What the levels below one come to.
#[derive(Clone, Copy, Default)]
struct Below {
    lease: u64,
    used: u64,
}

impl Below {
    /// The same and what is charged to the level itself, where it uses `used`. (Readings are of slightly different moments:
    /// with less than is leased below, charges below would be refused here.)
    fn and_own(self, used: u64) -> u64 {
        self.lease.saturating_add(used.saturating_sub(self.used))
    }
}

impl Node {
    /// Works out all wants, from the leaves up: a level wants what those below it expect to use more.
    pub(super) fn reckon(&mut self) {
        let mut more: HashMap<String, u64> = HashMap::new();
        for (path, held) in self.budgets.iter_mut().rev() {
            let below = more.remove(path);
            held.unused = held.users == 0 && below.is_none();
            let want = match held.state {
                // It grants nothing any more.
                State::Closing => held.demand.reckon(held.lease, 0, true),
                _ => held.demand.reckon(held.lease, below.unwrap_or(0), held.users == 0),
            };
            if let Some(above) = message::above(path).filter(|_| !held.unused) {
                let rest = more.entry(above.to_owned()).or_default();
                *rest = rest.saturating_add(want.saturating_sub(held.demand.used));
            }
        }
    }

    /// To what each budget's lease is to be lowered, in the order of their paths: its lease, where it stays.
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
                // What a full budget refuses below needs nothing above.
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

    /// What each budget would like although none below it grows, in the order of their paths.
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
    /// More is leased than the budget allows: units in use are to be given back, too.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.state, State::Over { .. } | State::Closing)
    }

    /// What it keeps at the least when others ask for idle units.
    pub(super) fn kept(&self) -> u64 {
        self.demand.kept(self.wanted > 0)
    }

    /// To what a turn lowers the lease.
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
