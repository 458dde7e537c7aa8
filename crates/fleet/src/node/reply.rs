//! The effects of a reply.

use crate::message::{Granted, LONGEST_PROMISE, MAX_UNITS, Reply, has_below};

use super::{Action, Asked, Event, Node, Settings};

impl Node {
    /// Takes the reply to the message of that number. A reply that came too late changes nothing. Granted leases hold from here
    /// on: the caller carries out the actions before anything else that concerns this node.
    pub fn take(&mut self, now: u64, sequence: u64, reply: Reply) -> Vec<Action> {
        let Some(asked) = self.asked.take_if(|asked| asked.sequence == sequence) else {
            return Vec::new();
        };
        match reply {
            Reply::Synced { sequence: answered, at, ttl, grace, lines } => {
                if answered != sequence || lines.len() != asked.paths.len() || ttl == 0 {
                    self.delay(now);
                    return Vec::new();
                }
                if now >= asked.sent.saturating_add(ttl) {
                    // The leases that it granted have ended by now.
                    self.delay(now);
                    return self.end(now);
                }
                self.grace = grace.min(LONGEST_PROMISE / 2);
                self.until_there = at.saturating_add(ttl).saturating_add(grace).min(MAX_UNITS);
                self.granted(now, &asked, ttl, lines)
            }
            Reply::Late { sequence } => {
                self.sequence = self.sequence.max(sequence);
                self.delay(now);
                vec![Action::Tell(Event::Doubled)]
            }
            Reply::Fenced => {
                self.fenced = true;
                vec![Action::Tell(Event::Fenced)]
            }
        }
    }

    /// Handles a message that got no answer, or one that makes no sense.
    pub fn failed(&mut self, now: u64, sequence: u64) {
        if self.asked.take_if(|asked| asked.sequence == sequence).is_some() {
            self.delay(now);
        }
    }

    /// Schedules the next turn after a delay that doubles with each error. Half of the delay is random.
    fn delay(&mut self, now: u64) {
        let longest = self.interval();
        let delay = (Settings::FIRST_DELAY << self.errors.min(16)).min(longest);
        self.errors = self.errors.saturating_add(1);
        self.next = now + delay / 2 + self.random(delay.div_ceil(2) + 1);
    }

    fn granted(&mut self, now: u64, asked: &Asked, ttl: u64, lines: Vec<Granted>) -> Vec<Action> {
        let mut actions = Vec::new();
        self.taken = asked.sequence;
        self.refusals.noted(asked.told);
        self.errors = 0;
        self.ttl = ttl;
        self.until = Some(asked.sent + ttl);
        let resumed = std::mem::take(&mut self.ended);
        if resumed {
            actions.push(Action::Tell(Event::Resumed));
        }
        let mut gives = false;
        for (path, granted) in asked.paths.iter().zip(lines) {
            let Some(held) = self.budgets.get_mut(path) else { continue };
            let Granted { lease, asked, wanted, due, limit, leased, state } = granted;
            (held.limit, held.others) = (limit, leased.saturating_sub(lease));
            let max = lease.saturating_sub(due);
            held.lease = lease;
            held.due = due;
            held.demand.granted(lease);
            held.back = asked;
            (held.wanted, held.awaited) = (wanted, wanted > 0 || due > 0);
            let same = std::mem::discriminant(&held.state) == std::mem::discriminant(&state);
            held.state = state;
            held.heard = true;
            let over = held.is_over();
            held.stuck &= over;
            gives |= asked > 0 && (lease > held.kept() || (over && !held.stuck));
            gives |= due > 0 && lease > held.demand.used;
            let path = path.clone();
            if max > held.max {
                actions.push(Action::Raise { path: path.clone(), max });
            } else if max < held.max && lease >= held.max {
                actions.push(Action::Hold { path: path.clone(), max });
            } else if max < held.max {
                actions.push(Action::Lower { path: path.clone(), max });
            }
            held.max = max;
            if !same {
                actions.push(Action::Tell(Event::Budget { path, state }));
            }
        }
        if resumed {
            // Budgets that went on without a lease and that this reply does not name.
            for (path, held) in &mut self.budgets {
                if held.max > held.lease {
                    held.max = held.lease;
                    actions.push(Action::Lower { path: path.clone(), max: held.lease });
                }
            }
        }
        self.forget();
        let interval = self.interval();
        let turn = asked.sent + interval - self.random(interval / 8);
        self.next = if gives || (resumed && asked.paths.len() < self.budgets.len()) {
            now + self.spacing()
        } else {
            turn.max(now)
        };
        actions
    }

    /// Forgets budgets that are not used and of which the node holds nothing.
    fn forget(&mut self) {
        let paths: Vec<String> = self.budgets.keys().rev().cloned().collect();
        for path in paths {
            let held = &self.budgets[&path];
            let idle = held.unused && held.lease == 0 && held.max == 0;
            let idle = idle && held.demand.used == 0 && held.demand.want == 0;
            if idle && !has_below(&self.budgets, &path) {
                self.budgets.remove(&path);
            }
        }
    }
}
