//! Applies one message of a node to its book.

use std::collections::HashMap;

use crate::message::{Granted, Line, MAX_UNITS, Nudge, Reply, State, Sync, above};

use super::rows::{Budget, Hold, Incarnation};
use super::{Book, Terms, What, share};

/// The parts of a message that every line needs.
struct Turn<'m> {
    /// The store's clock.
    now: u64,
    /// The book's time.
    time: u64,
    ttl: u64,
    /// The book grants nothing: it does not know all leases yet.
    learns: bool,
    node: &'m str,
    sequence: u64,
    /// Sequence number of a message; leases last named before it are adopted.
    lost: u64,
    /// Whether the node may get more.
    grows: bool,
}

/// A line while its message is applied. Its hold is subtracted from the budget's sums.
struct Heard {
    before: Hold,
    hold: Hold,
    /// The lease before any grant.
    base: u64,
    /// Upper bound: the lease of the level above.
    most: u64,
    /// Number of units that the book did not know of.
    adopted: u64,
}

/// Sums over the lines below a level.
#[derive(Clone, Copy, Default)]
struct Below {
    /// How many more units they can use, if this level grows.
    more: u64,
    /// The largest lease of those that grew.
    lease: u64,
}

impl Book {
    /// Applies a message at `now`, in milliseconds, and returns the answer. A repeated or late message changes no lease.
    ///
    /// The message must pass [`Sync::check`].
    pub fn apply(&mut self, now: u64, message: &Sync) -> Reply {
        let time = self.goes_on(now);
        if message.bye {
            return self.leave(now, time, message);
        }
        if !self.has_name(now, time, message) {
            return Reply::Fenced;
        }
        let Some(node) = self.nodes.get_mut(&message.node) else { return Reply::Fenced };
        let draining = node.draining;
        let mut incarnation = node.incarnations.remove(&message.incarnation).unwrap_or_default();
        let reply = if message.sequence < incarnation.sequence {
            Reply::Late { sequence: incarnation.sequence }
        } else if message.sequence == incarnation.sequence {
            self.repeat(message, &incarnation, !draining)
        } else {
            self.next(now, time, message, &mut incarnation, !draining)
        };
        if let Some(node) = self.nodes.get_mut(&message.node) {
            node.incarnations.insert(message.incarnation, incarnation);
        }
        reply
    }

    fn next(
        &mut self,
        now: u64,
        time: u64,
        message: &Sync,
        incarnation: &mut Incarnation,
        grows: bool,
    ) -> Reply {
        let known = incarnation.sequence;
        self.renew(time, message, incarnation);
        incarnation.sequence = message.sequence;
        incarnation.left = false;
        if message.ended {
            self.clear(incarnation);
        } else if (message.taken > known || time < self.learning) && time < message.until {
            incarnation.lost = message.sequence;
            let Terms { ttl, grace } = self.terms;
            let is_young = self.born.is_some_and(|born| time < born + ttl + grace);
            if known == 0 && message.taken > 0 && is_young {
                // The nodes have leases from a book that was here before this one.
                self.learning = self.learning.max(time + message.left.max(ttl + grace));
            }
        }
        let learns = time < self.learning;
        let Sync { node, sequence, .. } = message;
        let (lost, ttl) = (incarnation.lost, self.terms.ttl);
        let turn = Turn { now, time, ttl, learns, node, sequence: *sequence, lost, grows };
        let mut leases: HashMap<&str, u64> = HashMap::with_capacity(message.lines.len());
        let mut heard = Vec::with_capacity(message.lines.len());
        for line in &message.lines {
            // No lease grows beyond the one above.
            let most = above(&line.path)
                .map_or(MAX_UNITS, |above| leases.get(above).copied().unwrap_or(0));
            let one = self.hear(incarnation, line, most, &turn);
            leases.insert(&line.path, one.as_ref().map_or(0, |one| one.hold.lease));
            heard.push(one);
        }
        // In reverse order: each level after those below it.
        let mut below: HashMap<&str, Below> = HashMap::new();
        let mut lines = Vec::with_capacity(message.lines.len());
        for (line, one) in message.lines.iter().zip(heard).rev() {
            let there = below.remove(line.path.as_str()).unwrap_or_default();
            let Some(one) = one else {
                lines.push(unknown());
                continue;
            };
            let (granted, mine) = self.settle(incarnation, line, one, there, &turn);
            if let Some(above) = above(&line.path) {
                let all = below.entry(above).or_default();
                all.more = all.more.saturating_add(mine.more);
                all.lease = all.lease.max(mine.lease);
            }
            lines.push(granted);
        }
        lines.reverse();
        self.note(now, message, &incarnation.holds, grows);
        let Terms { ttl, grace } = self.terms;
        Reply::Synced { sequence: message.sequence, at: time, ttl, grace, lines }
    }

    /// Takes over the node's report of one budget, and grants from the units that are left. Returns `None` if there is no such
    /// budget.
    fn hear(
        &mut self,
        incarnation: &mut Incarnation,
        line: &Line,
        most: u64,
        turn: &Turn<'_>,
    ) -> Option<Heard> {
        let budget = self.budgets.get_mut(&line.path)?;
        let before = incarnation.holds.remove(&line.path).unwrap_or_else(|| {
            budget.holds += 1;
            Hold::default()
        });
        let mut hold = before.clone();
        budget.take_out(&hold);
        budget.refused =
            (budget.refused + line.refused.saturating_sub(hold.refused)).min(MAX_UNITS);

        let adopts = line.lease > hold.lease && hold.sequence < turn.lost;
        let believed = if adopts {
            line.lease.min(MAX_UNITS - budget.held())
        } else {
            line.lease.min(hold.lease)
        };
        hold.hear(line, turn.sequence);
        hold.set_lease(believed.min(line.want), budget);
        let (base, adopted) = (hold.lease, hold.lease.saturating_sub(before.lease));

        let grants = turn.grows && !turn.learns && !budget.closing;
        if grants && budget.held() + base + hold.excess <= budget.limit {
            let more = |lease: u64| lease.min(most).saturating_sub(base);
            let asks = share::Asks {
                need: more(line.want),
                urgent: more(line.urgent),
                next: more(line.next),
            };
            let mut mine = Hold { waiting: asks.urgent.min(asks.need), ..hold.clone() };
            share::entitle(budget, &mut mine, line, turn.time, turn.ttl);
            hold.set_lease(base + share::grant(budget, &hold, &mine, asks), budget);
        }
        Some(Heard { before, hold, base, most, adopted })
    }

    /// Takes back units that the levels below cannot use, and adds the hold to the sums. Returns what the level above may count
    /// on.
    fn settle(
        &mut self,
        incarnation: &mut Incarnation,
        line: &Line,
        heard: Heard,
        below: Below,
        turn: &Turn<'_>,
    ) -> (Granted, Below) {
        let Heard { before, mut hold, base, most, adopted } = heard;
        let Some(budget) = self.budgets.get_mut(&line.path) else {
            return (unknown(), Below::default());
        };
        let useful = line.least.saturating_add(below.more).max(below.lease).min(line.want);
        let useful = useful.max(base);
        if hold.lease > useful {
            hold.set_lease(useful, budget);
        }
        let open = turn.grows && !budget.closing;
        let wish = if open { useful - hold.lease } else { 0 };
        let left = budget.limit.saturating_sub(budget.held() + hold.lease + hold.excess);
        // Units that the level above allows, and at least those for which this level has no room, whatever the level above does.
        // If both levels are full, the nodes that hold units at this level are asked; they return them at the level above as
        // well.
        let within = useful.min(most).saturating_sub(hold.lease).min(wish);
        let unmet = within.max(wish.saturating_sub(left));
        let lacking = if open { budget.minimum.saturating_sub(hold.lease) } else { 0 };
        hold.unmet = unmet.min(MAX_UNITS - budget.unmet);
        hold.waiting = line.urgent.saturating_sub(hold.lease).min(hold.unmet);
        hold.lacking = lacking.min(MAX_UNITS - budget.lacking);
        share::entitle(budget, &mut hold, line, turn.time, turn.ttl);
        let grown = hold.lease - base;
        // Units that it could use beyond that if the level above had more.
        let beyond = if within == 0 { wish.min(left) } else { 0 };
        let mine = Below { more: grown + beyond, lease: if grown > 0 { hold.lease } else { 0 } };

        let lacks = hold.unmet > before.unmet;
        let waits = hold.waiting > before.waiting;
        let frees = hold.lease < before.lease && budget.unmet > 0;
        let idle_at_others = budget.idle > 0;
        budget.put_in(&hold);
        let how = How { grows: turn.grows, learns: turn.learns, grown: grown > 0 };
        let granted = answer(budget, &hold, line, how);
        let (over, closing) = (budget.over(), budget.closing);
        if frees || (lacks && idle_at_others) || (adopted > 0 && over > 0) {
            self.nudged.insert(Nudge::Sync(line.path.clone()));
        } else if waits {
            self.nudged.insert(Nudge::Waits(line.path.clone()));
        }
        if hold.is_blank(closing) {
            self.release(&line.path, &hold);
        } else {
            incarnation.holds.insert(line.path.clone(), hold);
        }
        if adopted > 0 {
            let path = line.path.clone();
            self.tell(turn.now, turn.node, What::Adopted { path, units: adopted, over });
        }
        (granted, mine)
    }

    /// Repeats the answer to the last message, with the time that it promised then.
    fn repeat(&self, message: &Sync, incarnation: &Incarnation, grows: bool) -> Reply {
        let none = Hold::default();
        let again = |line: &Line| match self.budgets.get(&line.path) {
            Some(budget) => {
                let hold = incarnation.holds.get(&line.path).unwrap_or(&none);
                let learns = incarnation.at < self.learning;
                answer(budget, hold, line, How { grows, learns, grown: false })
            }
            None => unknown(),
        };
        let lines = message.lines.iter().map(again).collect();
        let Incarnation { at, ends, grace, .. } = *incarnation;
        Reply::Synced { sequence: message.sequence, at, ttl: ends - at, grace, lines }
    }

    /// Removes a node that leaves. A fenced node may leave; a node that the book does not know has nothing to return.
    fn leave(&mut self, now: u64, time: u64, message: &Sync) -> Reply {
        let node = self.nodes.get_mut(&message.node);
        let grows = node.as_ref().is_some_and(|node| !node.draining);
        if let Some(incarnation) =
            node.and_then(|node| node.incarnations.get_mut(&message.incarnation))
        {
            if message.sequence < incarnation.sequence {
                return Reply::Late { sequence: incarnation.sequence };
            }
            incarnation.sequence = message.sequence;
            incarnation.left = true;
            let holds = incarnation.holds.clone();
            self.note(now, message, &holds, grows);
            self.release_all(&message.node, message.incarnation);
        }
        self.repeat(message, &Incarnation { at: time, ends: time, ..Incarnation::default() }, false)
    }
}

/// The inputs of a line's answer beside its rows.
#[derive(Clone, Copy)]
struct How {
    /// Whether the node may get more.
    grows: bool,
    /// The book is learning: no node may get more.
    learns: bool,
    /// Whether this message made the lease grow.
    grown: bool,
}

fn answer(budget: &Budget, hold: &Hold, line: &Line, how: How) -> Granted {
    let How { grows, learns, grown } = how;
    let over = budget.over();
    let state = match over {
        _ if budget.closing => State::Closing,
        _ if !grows => State::Drained,
        0 if learns => State::Learning,
        0 => State::Open,
        by => State::Over { by },
    };
    let all = budget.closing || !grows;
    Granted {
        lease: hold.lease,
        asked: if all { hold.lease } else { share::asked(budget, hold) },
        wanted: share::wanted(budget, hold),
        due: share::due(budget, hold, line, grown),
        limit: budget.limit,
        leased: budget.leased,
        state,
    }
}

fn unknown() -> Granted {
    Granted { lease: 0, asked: 0, wanted: 0, due: 0, limit: 0, leased: 0, state: State::Unknown }
}
