//! The rows of a book, and the sums over the leases of one budget.
//!
//! Each hold remembers what it adds to each sum. A change takes the hold's old parts out and puts its new parts in, so a sync
//! costs the same with a thousand nodes as with one. No sum exceeds [`MAX_UNITS`]: a part that would is cut, and the hold
//! remembers what was counted of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::message::{Line, MAX_UNITS};

/// A budget: its limits, and what its holds come to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Budget {
    pub limit: u64,
    pub minimum: u64,
    pub closing: bool,
    /// How many holds there are.
    pub holds: u64,
    pub leased: u64,
    pub excess: u64,
    pub unmet: u64,
    pub waiting: u64,
    pub idle: u64,
    pub lacking: u64,
    /// Refused charges, of all nodes that ever were.
    pub refused: u64,
    /// How many holds want or have something.
    pub sharers: u64,
    /// For how many of them charges wait, and what these lease.
    pub hungry: u64,
    pub hungry_leased: u64,
    /// What is set aside for charges that wait.
    pub entitled: u64,
    pub head: Head,
}

/// Of those for whom something is set aside, the one that waits longest, as far as the book has heard of them. Each says so anew
/// with its next message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Head {
    /// Since when its oldest charge waits, by the book's time and a millisecond; 0 if there is none.
    pub since: u64,
    /// What is set aside for it.
    pub lacks: u64,
    /// Its charge is larger than any node's part: all give up what they return until it is served.
    pub large: bool,
}

/// What one incarnation has of one budget.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Hold {
    pub lease: u64,
    pub used: u64,
    pub want: u64,
    pub refused: u64,
    /// The last message that named the budget.
    pub sequence: u64,
    /// What is counted of the units used beyond the lease.
    pub excess: u64,
    /// What is counted of the units wanted and not granted.
    pub unmet: u64,
    /// What of these charges wait for.
    pub waiting: u64,
    /// What is counted of the units that lack to the minimum.
    pub lacking: u64,
    /// What is set aside for its charges that wait.
    pub entitled: u64,
    /// [`Head::since`] and [`Head::large`], if it is the head.
    pub since: u64,
    pub large: bool,
}

/// A node's name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Node {
    /// The incarnation that has the name, or had it last; 0 if none had.
    pub current: u64,
    /// Earlier ones, the last [`FORMER`] of them: should one come back, it is not taken for a newer one.
    pub former: Vec<u64>,
    pub draining: bool,
    pub incarnations: BTreeMap<u64, Incarnation>,
}

/// How many earlier incarnations a node's name remembers.
pub(super) const FORMER: usize = 8;

/// One start of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Incarnation {
    /// The highest sequence number applied.
    pub sequence: u64,
    /// The message in which the book last found that it had lost writes. Holds that were last named before it are adopted.
    pub lost: u64,
    /// When that message was applied.
    pub at: u64,
    /// Its leases end.
    pub ends: u64,
    /// Its units go to others.
    pub freed: u64,
    /// The grace that was promised with that message's reply.
    pub grace: u64,
    /// It left. Its row stays until `freed`, so that messages that come later than the last one are known as late.
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

    /// What is leased, or used without a lease.
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

    /// It wants or has something.
    fn shares(&self) -> bool {
        self.lease > 0 || self.want > 0 || self.used > 0
    }

    fn hungry_lease(&self) -> u64 {
        if self.waiting > 0 { self.lease } else { 0 }
    }

    pub fn is_head(&self, budget: &Budget) -> bool {
        self.entitled > 0 && self.since == budget.head.since
    }

    /// Nobody syncs for it any more: it waits for nothing, and nothing is set aside for it.
    pub fn wants_no_more(&mut self) {
        (self.unmet, self.waiting, self.lacking, self.entitled) = (0, 0, 0, 0);
    }

    /// Takes over what the node says, without its lease.
    pub fn hear(&mut self, line: &Line, sequence: u64) {
        self.used = line.used;
        self.want = line.want;
        self.refused = self.refused.max(line.refused);
        self.sequence = sequence;
    }

    /// Sets the lease, and counts what is used beyond it. `others` is the budget without this hold.
    pub fn set_lease(&mut self, lease: u64, others: &Budget) {
        self.lease = lease;
        self.excess = self.used.saturating_sub(lease).min(MAX_UNITS - others.held() - lease);
    }

    /// The same that holds and wants nothing.
    pub fn cleared(&self) -> Self {
        Self { refused: self.refused, sequence: self.sequence, ..Self::default() }
    }

    /// Says nothing that is worth a row. A row with refusals stays as long as its incarnation, so that none counts twice.
    pub fn is_blank(&self, closing: bool) -> bool {
        self.lease == 0 && (closing || (self.used == 0 && self.want == 0 && self.refused == 0))
    }
}
