//! One message from a node.

use std::collections::HashMap;

use crate::message::{Granted, Line, MAX_UNITS, Reply, State, Sync, above};

use super::rows::{Budget, Hold, Incarnation};
use super::{Book, What, share};

/// The message's part in a line.
struct Turn {
    sequence: u64,
    /// Leases last named before this message are adopted.
    lost: u64,
    /// The node may get more.
    grows: bool,
}

/// What a line came to.
struct Outcome {
    granted: Granted,
    /// How many units the book did not know of.
    adopted: u64,
    /// Others should sync.
    nudge: bool,
}

impl Book {
    /// Applies a message at `now`, in milliseconds, and answers it. A message that repeats or is late changes no lease.
    ///
    /// The message must be one that [`Sync::check`] accepts.
    pub fn apply(&mut self, now: u64, message: &Sync) -> Reply {
        self.expire(now);
        if message.bye {
            return self.leave(now, message);
        }
        if !self.has_name(now, message) {
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
            self.next(now, message, &mut incarnation, !draining)
        };
        if let Some(node) = self.nodes.get_mut(&message.node) {
            node.incarnations.insert(message.incarnation, incarnation);
        }
        reply
    }

    fn next(
        &mut self,
        now: u64,
        message: &Sync,
        incarnation: &mut Incarnation,
        grows: bool,
    ) -> Reply {
        let known = incarnation.sequence;
        self.renew(now, &message.node, message.incarnation, incarnation);
        incarnation.sequence = message.sequence;
        incarnation.left = false;
        if message.ended {
            self.clear(incarnation);
        } else if message.taken > known && now < message.until + self.terms.grace {
            incarnation.lost = message.sequence;
        }
        let turn = Turn { sequence: message.sequence, lost: incarnation.lost, grows };
        let mut leases: HashMap<&str, u64> = HashMap::with_capacity(message.lines.len());
        let mut lines = Vec::with_capacity(message.lines.len());
        for line in &message.lines {
            // No lease grows beyond the one above.
            let most = above(&line.path)
                .map_or(MAX_UNITS, |above| leases.get(above).copied().unwrap_or(0));
            let granted = self.line(now, &message.node, incarnation, line, most, &turn);
            leases.insert(&line.path, granted.lease);
            lines.push(granted);
        }
        self.note(now, message, &incarnation.holds);
        Reply::Synced { sequence: message.sequence, at: now, ttl: self.terms.ttl, lines }
    }

    fn line(
        &mut self,
        now: u64,
        node: &str,
        incarnation: &mut Incarnation,
        line: &Line,
        most: u64,
        turn: &Turn,
    ) -> Granted {
        let Some(budget) = self.budgets.get_mut(&line.path) else { return unknown() };
        let hold = incarnation.holds.entry(line.path.clone()).or_insert_with(|| {
            budget.holds += 1;
            Hold::default()
        });
        let Outcome { granted, adopted, nudge } = renegotiate(budget, hold, line, most, turn);
        let closing = budget.closing;
        let over = budget.over();
        if hold.is_blank(closing)
            && let Some(hold) = incarnation.holds.remove(&line.path)
        {
            self.release(&line.path, &hold);
        }
        if nudge {
            self.nudged.insert(line.path.clone());
        }
        if adopted > 0 {
            self.tell(now, node, What::Adopted { path: line.path.clone(), units: adopted, over });
        }
        granted
    }

    /// The answer to the last message once more, with its time: what it promised then.
    fn repeat(&self, message: &Sync, incarnation: &Incarnation, grows: bool) -> Reply {
        let none = Hold::default();
        let again = |line: &Line| match self.budgets.get(&line.path) {
            Some(budget) => {
                answer(budget, incarnation.holds.get(&line.path).unwrap_or(&none), grows)
            }
            None => unknown(),
        };
        let lines = message.lines.iter().map(again).collect();
        let Incarnation { at, ends, .. } = *incarnation;
        Reply::Synced { sequence: message.sequence, at, ttl: ends - at, lines }
    }

    /// The node leaves. One that is fenced may, and one the book does not know has nothing to leave.
    fn leave(&mut self, now: u64, message: &Sync) -> Reply {
        let node = self.nodes.get_mut(&message.node);
        if let Some(incarnation) =
            node.and_then(|node| node.incarnations.get_mut(&message.incarnation))
        {
            if message.sequence < incarnation.sequence {
                return Reply::Late { sequence: incarnation.sequence };
            }
            incarnation.sequence = message.sequence;
            incarnation.left = true;
            let holds = incarnation.holds.clone();
            self.note(now, message, &holds);
            self.release_all(&message.node, message.incarnation);
        }
        self.repeat(message, &Incarnation { at: now, ends: now, ..Incarnation::default() }, false)
    }
}

/// Takes over what the node says, and grants from what is left.
fn renegotiate(
    budget: &mut Budget,
    hold: &mut Hold,
    line: &Line,
    most: u64,
    turn: &Turn,
) -> Outcome {
    let before = hold.clone();
    budget.take_out(hold);
    budget.refused = (budget.refused + line.refused.saturating_sub(hold.refused)).min(MAX_UNITS);

    let adopts = line.lease > hold.lease && hold.sequence < turn.lost;
    let believed =
        if adopts { line.lease.min(MAX_UNITS - budget.held()) } else { line.lease.min(hold.lease) };
    hold.hear(line, turn.sequence);
    hold.set_lease(believed.min(line.want), budget);
    let adopted = hold.lease.saturating_sub(before.lease);

    let open = turn.grows && !budget.closing;
    let need = if open { line.want.min(most).saturating_sub(hold.lease) } else { 0 };
    if budget.held() + hold.lease + hold.excess <= budget.limit {
        hold.set_lease(hold.lease + share::grant(budget, hold, need), budget);
    }
    let unmet = if open { line.want.min(most).saturating_sub(hold.lease) } else { 0 };
    let lacking = if open { budget.minimum.saturating_sub(hold.lease) } else { 0 };
    hold.unmet = unmet.min(MAX_UNITS - budget.unmet);
    hold.lacking = lacking.min(MAX_UNITS - budget.lacking);

    let wanted_by_others = budget.unmet > 0;
    let idle_at_others = budget.idle > 0;
    budget.put_in(hold);
    Outcome {
        granted: answer(budget, hold, turn.grows),
        adopted,
        nudge: (hold.unmet > before.unmet && idle_at_others)
            || (hold.lease < before.lease && wanted_by_others)
            || (adopted > 0 && budget.over() > 0),
    }
}

fn answer(budget: &Budget, hold: &Hold, grows: bool) -> Granted {
    let over = budget.over();
    let state = match over {
        _ if budget.closing => State::Closing,
        0 => State::Open,
        by => State::Over { by },
    };
    let all = budget.closing || !grows;
    Granted {
        lease: hold.lease,
        asked: if all { hold.lease } else { share::asked(budget, hold) },
        state,
    }
}

fn unknown() -> Granted {
    Granted { lease: 0, asked: 0, state: State::Unknown }
}
