//! The rows of a book, and the sums over the leases of one budget.
//!
//! Each hold remembers what it adds to each sum. A change subtracts the hold's old parts and adds its new ones, so the cost of a
//! sync does not depend on the number of nodes. No sum exceeds [`MAX_UNITS`]: a part that would exceed it is cut, and the hold
//! remembers the counted part.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::message::{Line, MAX_UNITS};

/// A budget: its limits, and the sums over its holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Budget {
    pub limit: u64,
    pub minimum: u64,
    pub closing: bool,
    /// Number of holds.
    pub holds: u64,
    pub leased: u64,
    pub excess: u64,
    pub unmet: u64,
    pub waiting: u64,
    pub idle: u64,
    pub lacking: u64,
    /// Number of refused charges, of all nodes that ever were.
    pub refused: u64,
    /// Number of holds that use or want something.
    pub sharers: u64,
    /// Number of sharers with waiting charges, and the sum of their leases.
    pub hungry: u64,
    pub hungry_leased: u64,
    /// Units set aside for waiting charges.
    pub entitled: u64,
    pub head: Head,
}

/// The hold whose charge waits longest, among those for which units are set aside, as far as the book knows. Each node
/// reports its charges again with its next message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Head {
    /// The book's time since which its oldest charge waits, plus one millisecond; 0 if there is none.
    pub since: u64,
    /// Units set aside for it.
    pub lacks: u64,
    /// Its charge is larger than any node's part: all other nodes give up what they return until it is served.
    pub large: bool,
}

/// The part of one incarnation in one budget.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Hold {
    pub lease: u64,
    pub used: u64,
    pub want: u64,
    pub refused: u64,
    /// Sequence number of the last message that named the budget.
    pub sequence: u64,
    /// Counted part of the units used beyond the lease.
    pub excess: u64,
    /// Counted part of the units wanted and not granted.
    pub unmet: u64,
    /// The part of `unmet` that charges wait for.
    pub waiting: u64,
    /// Counted part of the units that lack to the minimum.
    pub lacking: u64,
    /// Units set aside for its waiting charges.
    pub entitled: u64,
    /// [`Head::since`] and [`Head::large`], if it is the head.
    pub since: u64,
    pub large: bool,
}

/// A node's name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Node {
    /// The incarnation that has the name, or had it last; 0 if there was none.
    pub current: u64,
    /// The last [`FORMER`] earlier incarnations, so that one that comes back is not taken for a newer one.
    pub former: Vec<u64>,
    pub draining: bool,
    pub incarnations: BTreeMap<u64, Incarnation>,
}

/// Number of earlier incarnations that a node's name remembers.
pub(super) const FORMER: usize = 8;

/// One start of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Incarnation {
    /// The highest sequence number applied.
    pub sequence: u64,
    /// The message in which the book last found that it had lost writes. Holds last named before it are adopted.
    pub lost: u64,
    /// When the last message was applied, in the book's time.
    pub at: u64,
    /// When its leases end.
    pub ends: u64,
    /// When its units go to others.
    pub freed: u64,
    /// The grace promised with the reply to the last message.
    pub grace: u64,
    /// The incarnation left. Its row stays until `freed`, so that messages that arrive after the last one are known as late.
    pub left: bool,
    pub holds: BTreeMap<String, Hold>,
}

impl Budget {
    pub fn take_out(&mut self, hold: &Hold) {
        self.leased -= hold.lease;
        self.excess -= hold.excess;
        self.unmet -= hold.unmet;
        self.waiting -= hold.waiting;
        self.idle -= hold.idle();
        self.lacking -= hold.lacking;
        self.sharers -= u64::from(hold.shares());
        self.hungry -= u64::from(hold.waiting > 0);
        self.hungry_leased -= hold.hungry_lease();
        self.entitled -= hold.entitled;
        if hold.is_head(self) {
            self.head = Head::default();
        }
    }

    pub fn put_in(&mut self, hold: &Hold) {
        self.leased += hold.lease;
        self.excess += hold.excess;
        self.unmet += hold.unmet;
        self.waiting += hold.waiting;
        self.idle += hold.idle();
        self.lacking += hold.lacking;
        self.sharers += u64::from(hold.shares());
        self.hungry += u64::from(hold.waiting > 0);
        self.hungry_leased += hold.hungry_lease();
        self.entitled += hold.entitled;
        let Head { since, lacks, .. } = self.head;
        let is_before = hold.since < since || (hold.since == since && hold.entitled > lacks);
        if hold.entitled > 0 && (since == 0 || is_before) {
            self.head = Head { since: hold.since, lacks: hold.entitled, large: hold.large };
        }
    }

    /// Returns the units that are leased, or used without a lease.
    pub fn held(&self) -> u64 {
        self.leased + self.excess
    }

    pub fn over(&self) -> u64 {
        self.held().saturating_sub(self.limit)
    }
}

impl Hold {
    pub fn idle(&self) -> u64 {
        self.lease.saturating_sub(self.used)
    }

    /// Returns whether the hold uses or wants something.
    fn shares(&self) -> bool {
        self.lease > 0 || self.want > 0 || self.used > 0
    }

    fn hungry_lease(&self) -> u64 {
        if self.waiting > 0 { self.lease } else { 0 }
    }

    pub fn is_head(&self, budget: &Budget) -> bool {
        self.entitled > 0 && self.since == budget.head.since
    }

    /// Clears all wants: no process syncs for this hold any more, so it waits for nothing, and nothing is set aside for it.
    pub fn wants_no_more(&mut self) {
        (self.unmet, self.waiting, self.lacking, self.entitled) = (0, 0, 0, 0);
    }

    /// Takes over the node's figures, except its lease.
    pub fn hear(&mut self, line: &Line, sequence: u64) {
        self.used = line.used;
        self.want = line.want;
        self.refused = self.refused.max(line.refused);
        self.sequence = sequence;
    }

    /// Sets the lease, and counts the units used beyond it. `others` is the budget without this hold.
    pub fn set_lease(&mut self, lease: u64, others: &Budget) {
        self.lease = lease;
        self.excess = self.used.saturating_sub(lease).min(MAX_UNITS - others.held() - lease);
    }

    /// Returns this hold without leases and wants.
    pub fn cleared(&self) -> Self {
        Self { refused: self.refused, sequence: self.sequence, ..Self::default() }
    }

    /// Returns whether the hold needs no row. A row with refusals stays as long as its incarnation, so that each refusal counts
    /// once.
    pub fn is_blank(&self, closing: bool) -> bool {
        self.lease == 0 && (closing || (self.used == 0 && self.want == 0 && self.refused == 0))
    }
}
