//! The ends of leases: by time, by leaving, or because another process takes the name.

use crate::message::{Nudge, Sync};

use super::rows::{Budget, FORMER, Hold, Incarnation};
use super::{Book, What};

impl Book {
    /// Advances the book's time to the store's clock `now` and expires what has ended by then. Returns the book's time.
    pub(super) fn goes_on(&mut self, now: u64) -> u64 {
        self.time = self.time.at(now, self.terms);
        let time = self.time.now();
        self.born.get_or_insert(time);
        self.expire(now, time);
        time
    }

    /// Takes all units from each incarnation whose lease and grace have ended. Returns whether there was one.
    pub(super) fn expire(&mut self, now: u64, time: u64) -> bool {
        let mut any = false;
        while let Some((_, node, number)) =
            self.ends.first().filter(|(freed, ..)| *freed <= time).cloned()
        {
            any = true;
            if self.remove(&node, number) {
                self.tell(now, &node, What::Ended { incarnation: number });
            }
        }
        any
    }

    /// Renews the leases of an incarnation from `time` on.
    ///
    /// Units are never freed while the node still relies on its leases, even if the terms became shorter or the store lost its
    /// promise. The message states for how long the node relies on them; the node may never receive the reply. Nor are they freed
    /// earlier than the book has promised before: a late message from that time would look like one whose writes were lost if the
    /// row were gone.
    pub(super) fn renew(&mut self, time: u64, message: &Sync, incarnation: &mut Incarnation) {
        let row = |freed| (freed, message.node.clone(), message.incarnation);
        self.ends.remove(&row(incarnation.freed));
        incarnation.at = time;
        incarnation.ends = time + self.terms.ttl;
        incarnation.grace = self.terms.grace;
        let promised = incarnation.ends + incarnation.grace;
        incarnation.freed = incarnation.freed.max(promised).max(time + message.left);
        self.ends.insert(row(incarnation.freed));
    }

    /// Takes all units from an incarnation and forgets it. Returns false if it had left before.
    fn remove(&mut self, name: &str, number: u64) -> bool {
        self.release_all(name, number);
        let node = self.nodes.get_mut(name);
        let Some(incarnation) = node.and_then(|node| node.incarnations.remove(&number)) else {
            return false;
        };
        self.ends.remove(&(incarnation.freed, name.to_owned(), number));
        self.forget_if_gone(name);
        !incarnation.left
    }

    /// Takes all units from an incarnation.
    pub(super) fn release_all(&mut self, name: &str, number: u64) {
        let node = self.nodes.get_mut(name);
        let Some(incarnation) = node.and_then(|node| node.incarnations.get_mut(&number)) else {
            return;
        };
        for (path, hold) in std::mem::take(&mut incarnation.holds) {
            self.release(&path, &hold);
        }
    }

    /// Subtracts a hold from its budget's sums, and nudges the nodes that lack units there.
    fn give_back(&mut self, path: &str, hold: &Hold) -> Option<&mut Budget> {
        let budget = self.budgets.get_mut(path)?;
        budget.take_out(hold);
        if hold.lease > 0 && budget.unmet > 0 {
            self.nudged.insert(Nudge::Sync(path.to_owned()));
        }
        Some(budget)
    }

    /// Removes a hold from its budget, and the budget from the book if this was the last lease of a deleted budget.
    pub(super) fn release(&mut self, path: &str, hold: &Hold) {
        let Some(budget) = self.give_back(path, hold) else { return };
        budget.holds -= 1;
        if budget.closing && budget.holds == 0 {
            self.budgets.remove(path);
        }
    }

    /// Clears the leases of an incarnation that have ended by its own clock.
    pub(super) fn clear(&mut self, incarnation: &mut Incarnation) {
        incarnation.lost = 0;
        for (path, hold) in std::mem::take(&mut incarnation.holds) {
            let Some(budget) = self.budgets.get(&path) else { continue };
            let cleared = hold.cleared();
            if cleared.is_blank(budget.closing) {
                self.release(&path, &hold);
            } else {
                self.give_back(&path, &hold);
                incarnation.holds.insert(path, cleared);
            }
        }
    }

    /// Forgets a node's name when no incarnation has it. A drained node is kept.
    pub(super) fn forget_if_gone(&mut self, name: &str) {
        if self.nodes.get(name).is_some_and(|node| node.incarnations.is_empty() && !node.draining) {
            self.nodes.remove(name);
        }
    }

    /// Returns whether the message's incarnation has the node's name, or takes it now. An incarnation whose leases ended and
    /// which the book no longer knows cannot take the name from another one: its message may be late, and its process gone.
    pub(super) fn has_name(&mut self, now: u64, time: u64, message: &Sync) -> bool {
        let node = self.nodes.entry(message.node.clone()).or_default();
        let older = node.current;
        if older == message.incarnation {
            return true;
        }
        let is_late = older != 0 && message.taken > 0 && message.until <= time;
        let is_known = node.incarnations.contains_key(&message.incarnation);
        if node.former.contains(&message.incarnation) || (is_late && !is_known) {
            return false;
        }
        node.current = message.incarnation;
        if older == 0 {
            return true;
        }
        if node.former.len() == FORMER {
            node.former.remove(0);
        }
        node.former.push(older);
        let Some(fenced) = node.incarnations.get_mut(&older).filter(|fenced| !fenced.left) else {
            return true;
        };
        for (path, hold) in &mut fenced.holds {
            let Some(budget) = self.budgets.get_mut(path) else { continue };
            budget.take_out(hold);
            hold.wants_no_more();
            budget.put_in(hold);
        }
        self.tell(now, &message.node, What::Fenced { incarnation: older });
        true
    }
}
