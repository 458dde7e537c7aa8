//! A turn: limits to lower, then a message.

use crate::message::{self, LONGEST_PROMISE, Line, MAX_UNITS, Sync};

use super::{Asked, Held, Node, Reading};

/// Which budgets a message names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope<'p> {
    /// All of them.
    All,
    /// One budget, all budgets with waiting charges or without a reply so far, and every level above them.
    Path(&'p str),
    /// None: the node leaves and frees all of its leases. Its owner has made sure that nothing is in use.
    Bye,
}

/// A turn of a node: limits to lower, then a message. No reply is taken during a turn.
#[derive(Debug)]
#[must_use = "a turn is to be said"]
pub struct Turn {
    lowers: Vec<Lower>,
    paths: Vec<String>,
    bye: bool,
}

/// A limit that the caller lowers before the node reports it.
#[derive(Debug)]
pub struct Lower {
    path: String,
    to: u64,
    max: u64,
    reclaim: bool,
    done: Option<(u64, u64)>,
}

impl Lower {
    /// Returns the budget's path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the new `max`, if no more is in use.
    #[must_use]
    pub fn to(&self) -> u64 {
        self.to
    }

    /// Returns the `max` that the group should have now. It is below `to` if returned units go to others first; then leave it
    /// unchanged.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Returns whether to ask reclaimers for the units in use above the limit. Otherwise these are idle, or stay.
    #[must_use]
    pub fn reclaims(&self) -> bool {
        self.reclaim
    }

    /// Reports that the group's `max` is now `max`, the intended value or a higher one, and that `used` units are in use there.
    /// Without this call the limit counts as unchanged.
    pub fn done(&mut self, max: u64, used: u64) {
        self.done = Some((max.max(self.to), used));
    }
}

impl Turn {
    /// Returns the limits to lower, each level before those below it.
    pub fn lowers(&mut self) -> impl Iterator<Item = &mut Lower> {
        self.lowers.iter_mut()
    }
}

impl Node {
    /// Begins a turn. Replies to earlier messages are no longer taken.
    pub fn begin(
        &mut self,
        now: u64,
        scope: Scope<'_>,
        mut read: impl FnMut(&str) -> Reading,
    ) -> Turn {
        self.asked = None;
        self.last = now;
        let horizon = self.interval() + self.interval() / 2;
        for (path, held) in &mut self.budgets {
            held.demand.see(now, read(path), horizon);
        }
        self.reckon();
        let bye = scope == Scope::Bye;
        // After the leases ended, the message reports all budgets.
        let paths = match scope {
            Scope::Path(path) if !self.ended => self.waiting(path),
            Scope::All | Scope::Path(_) => self.budgets.keys().cloned().collect(),
            Scope::Bye => Vec::new(),
        };
        let lowers = if self.ended { Vec::new() } else { self.lowers(now, &paths, bye) };
        Turn { lowers, paths, bye }
    }

    /// Ends a turn: the message reports the lowered limits. Its reply is taken if it comes before the next turn.
    pub fn say(&mut self, now: u64, turn: Turn) -> Sync {
        let Turn { lowers, paths, bye } = turn;
        for lower in lowers {
            let (Some(held), Some((done, used))) = (self.budgets.get_mut(&lower.path), lower.done)
            else {
                continue;
            };
            held.demand.reclaimed(used);
            held.stuck = done >= held.lease;
            held.due = held.due.saturating_sub(held.lease.saturating_sub(done));
            held.lease = held.lease.min(done);
            held.max = held.max.min(done);
            held.back = 0;
        }
        self.sequence += 1;
        let ended = self.ended;
        let mut lines = Vec::with_capacity(paths.len());
        let least = self.least();
        for ((path, held), least) in self.budgets.iter_mut().zip(least) {
            if paths.binary_search(path).is_err() {
                continue;
            }
            // A want below the lease would give back units whose limit was not lowered.
            let want = held.demand.want.max(held.lease).min(MAX_UNITS);
            let (used, refused) = (held.demand.used, held.demand.refused);
            let (least, urgent) = (least.min(want), held.demand.urgent().min(want));
            let (next, waited) = held.demand.next(now);
            let (next, waited, lease) = (next.min(urgent), waited.min(MAX_UNITS), held.lease);
            let path = path.clone();
            lines.push(Line { path, lease, used, want, least, urgent, next, waited, refused });
            held.demand.said();
        }
        let (refusals, told) = self.refusals.say(now);
        self.asked = Some(Asked { sequence: self.sequence, sent: now, paths, told });
        self.next = now + self.interval();
        Sync {
            node: self.name.clone(),
            incarnation: self.incarnation,
            sequence: self.sequence,
            taken: self.taken,
            until: self.until_there,
            left: self.left(now),
            ended,
            bye,
            lines,
            refusals,
        }
    }

    /// Returns for how long the node relies on its leases.
    fn left(&self, now: u64) -> u64 {
        match self.until.filter(|_| !self.ended) {
            Some(until) => (until.saturating_sub(now) + self.grace).min(LONGEST_PROMISE),
            None => 0,
        }
    }

    /// Returns the paths that [`Scope::Path`] names.
    fn waiting(&self, path: &str) -> Vec<String> {
        // A need is noted on each level.
        let waits = |held: &Held| held.demand.urgent() > 0 || !held.heard;
        let named =
            |(level, held): &(&String, &Held)| message::is_within(level, path) || waits(held);
        self.budgets.iter().filter(named).map(|(level, _)| level.clone()).collect()
    }

    /// Returns the limits that this turn lowers.
    fn lowers(&mut self, now: u64, paths: &[String], bye: bool) -> Vec<Lower> {
        let goals = self.goals(now, paths, bye);
        let mut lowers: Vec<Lower> = Vec::new();
        for ((path, held), mut to) in self.budgets.iter().zip(goals) {
            if !bye && paths.binary_search(path).is_err() {
                continue;
            }
            // A lease above that of the level above is useless.
            if let Some(above) = message::above(path)
                && let Some(above) = lowers.iter().find(|lower| lower.path == above)
            {
                to = to.min(above.to);
            }
            if to < held.lease {
                let path = path.clone();
                let (max, reclaim) = (held.max, held.is_over() && !bye);
                lowers.push(Lower { path, to, max, reclaim, done: None });
            }
        }
        lowers
    }
}
