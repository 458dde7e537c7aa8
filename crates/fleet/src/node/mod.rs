//! A node's side of one book: its leases, its messages, and its reactions to replies. It has no clock and does no input or
//! output: the caller passes the time, reads usage, sets the limits of groups, and carries messages.
//!
//! ```text
//! at its turn:   begin(now, readings) -> Turn      which limits to lower; replies to older messages count no more
//!                  the caller lowers them          "lower first"
//!                say(now, turn) -> Sync            "tell later": a message is made of a turn alone
//! on a reply:    take(now, number, reply)          "hear first, raise later": limits are raised by this alone
//! on an error:   failed(now, number)               the next turn comes after a delay
//! at the end:    end(now)                          the leases have ended by this node's clock
//! ```
//!
//! Times are milliseconds of a monotonic clock that continues while the machine sleeps.

mod action;
mod demand;
mod levels;
mod refusals;
mod reply;
mod settings;
#[cfg(test)]
mod tests;
mod turn;

use std::collections::BTreeMap;

use crate::message::{self, MAX_LINES, Nudge, State};

pub use action::{Action, Event};
pub use settings::{AtEnd, Settings};
pub use turn::{Lower, Scope, Turn};

use demand::Demand;
use refusals::Refusals;

/// A node's side of one book.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    name: String,
    incarnation: u64,
    settings: Settings,
    /// Sequence number of the newest message.
    sequence: u64,
    /// Highest sequence number whose reply was taken.
    taken: u64,
    /// The newest message, while its reply may still be taken.
    asked: Option<Asked>,
    /// The duration of leases, as the book last said; 0 before the first reply.
    ttl: u64,
    /// When the leases end; `None` if there are none.
    until: Option<u64>,
    /// The grace that was promised with them.
    grace: u64,
    /// End of the book's promise to keep the leases, in the book's time, which the node only repeats.
    until_there: u64,
    /// Whether the leases ended and no reply has granted new ones since.
    ended: bool,
    fenced: bool,
    /// Time of the next turn.
    next: u64,
    /// Time of the last turn.
    last: u64,
    /// Number of messages in a row without an answer.
    errors: u32,
    /// State of the random numbers that spread turns.
    jitter: u64,
    /// Sorted by path, so each level comes before those below it.
    budgets: BTreeMap<String, Held>,
    refusals: Refusals,
}

/// A message whose reply may be taken.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Asked {
    sequence: u64,
    sent: u64,
    paths: Vec<String>,
    /// Highest number of a refusal that it may have reported.
    told: u64,
}

/// The part of the node in one budget.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Held {
    /// The lease that the node believes it holds.
    lease: u64,
    /// The limit of its group. It exceeds `lease` only if the node goes on after the end of its leases.
    max: u64,
    /// Number of users of this node that opened it. Levels above are held for those below.
    users: u32,
    /// Neither the budget nor one below it is open; it is given back.
    unused: bool,
    /// Units that others would like back, as of the last reply.
    back: u64,
    /// Units that charges of others wait for, as of the last reply.
    wanted: u64,
    /// Units that go back as they are returned, before charges of this node get them. The group's `max` is below the lease by
    /// this number.
    due: u64,
    /// Others wait for freed units, so usage is read often.
    awaited: bool,
    /// Units in use were asked for, and the last turn could give none back. The next attempt is at the next turn.
    stuck: bool,
    /// Whether a reply has reported the state of the budget.
    heard: bool,
    state: State,
    /// The budget's limit and the leases of other nodes, as of the last reply.
    limit: u64,
    others: u64,
    demand: Demand,
}

/// The caller's reading of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Units charged to the group and those below it.
    pub used: u64,
    /// Number of charges that the group's own limit refused so far.
    pub refused: u64,
}

/// One budget of a node, as returned by [`Node::budgets`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding<'n> {
    /// The budget's path.
    pub path: &'n str,
    /// The lease that the node believes it holds.
    pub lease: u64,
    /// The `max` that its group should have.
    pub max: u64,
    /// The state of the budget, as the book last said.
    pub state: State,
    /// The budget's limit, as the book last said.
    pub limit: u64,
    /// The leases of other nodes at that time.
    pub others: u64,
}

impl Node {
    /// Creates a node that holds nothing. `incarnation` is a random number other than 0.
    #[must_use]
    pub fn new(name: &str, incarnation: u64, settings: Settings) -> Self {
        Self {
            name: name.to_owned(),
            incarnation,
            settings,
            sequence: 0,
            taken: 0,
            asked: None,
            ttl: 0,
            until: None,
            grace: 0,
            until_there: 0,
            ended: false,
            fenced: false,
            next: 0,
            last: 0,
            errors: 0,
            jitter: incarnation | 1,
            budgets: BTreeMap::new(),
            refusals: Refusals::default(),
        }
    }

    /// Begins to use a budget, and so every level above it. Its group's `max` must be 0 until a reply grants more. The next turn
    /// is at `now`.
    pub fn open(&mut self, now: u64, path: &str) {
        let reserve = self.settings.reserve;
        for level in message::levels(path) {
            let held = self.budgets.entry(level.to_owned());
            held.or_insert_with(|| Held::new(now, reserve)).users += u32::from(level == path);
        }
        self.hurry(now);
    }

    /// Returns whether a message has room for this budget. It names each budget that the node uses, and the levels above.
    #[must_use]
    pub fn has_room(&self, path: &str) -> bool {
        let new = message::levels(path).filter(|level| !self.budgets.contains_key(*level)).count();
        self.budgets.len() + new <= MAX_LINES
    }

    /// Removes one user. A budget without users, and without units in use there and below, is given back in a turn.
    pub fn close(&mut self, now: u64, path: &str) {
        if let Some(held) = self.budgets.get_mut(path) {
            held.users = held.users.saturating_sub(1);
            self.hurry(now);
        }
    }

    /// Notes that a charge of `units` waits for a lease. Until it is [`served`](Self::served), each message asks for as much
    /// more. The next message is due at `now`.
    pub fn need(&mut self, now: u64, path: &str, units: u64) {
        self.each_level(path, |demand| demand.need(now, units));
        self.hurry(now);
    }

    /// Notes that the charge waits no longer. If it was not granted its units, the book is informed before the next regular turn,
    /// because other nodes keep nothing idle while the charge counts as waiting.
    pub fn served(&mut self, now: u64, path: &str, units: u64) {
        self.each_level(path, |demand| demand.served(units));
        let held = self.budgets.get(path);
        if held.is_some_and(|held| held.demand.urgent() == 0 && held.demand.is_blocked()) {
            self.due_after(self.interval() / 8, now);
        }
    }

    /// Notes charges of a group, by its path, that a budget of this node refused. The next message reports them. The largest
    /// asked for `units`. Budgets that the node does not use refuse nothing.
    pub fn refused(&mut self, now: u64, budget: &str, group: &str, units: u64, count: u64) {
        if self.budgets.contains_key(budget) {
            self.refusals.note(now, budget, group, units, count);
        }
    }

    /// Returns how many refused charges are not yet known to be noted by the book.
    #[must_use]
    pub fn refusals_waiting(&self) -> u64 {
        self.refusals.waiting()
    }

    fn each_level(&mut self, path: &str, change: impl Fn(&mut Demand)) {
        for level in message::levels(path) {
            if let Some(held) = self.budgets.get_mut(level) {
                change(&mut held.demand);
            }
        }
    }

    /// Handles a nudge for a budget's nodes. Only nodes that lack units there, or hold idle ones, need to sync.
    pub fn nudged(&mut self, now: u64, nudge: &Nudge) {
        let Some(held) = self.budgets.get_mut(nudge.path()) else { return };
        held.awaited = true;
        // If charges of this node wait as well, returned units do not lie idle: the reply says how many of them are for others.
        let syncs = match nudge {
            Nudge::Sync(_) => held.demand.want != held.demand.used,
            Nudge::Waits(_) => held.lease > 0 && held.demand.urgent() > 0,
        };
        if syncs || held.demand.freed() > 0 {
            self.due_after(self.spacing(), now);
        }
    }

    /// Returns whether others wait for units that this node frees. If so, call [`freed`](Self::freed) about twenty times a
    /// second.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        self.budgets.values().any(Held::is_awaited)
    }

    /// Checks whether units were freed for which others wait. If so, makes the next turn due.
    pub fn freed(&mut self, now: u64, mut read: impl FnMut(&str) -> Reading) {
        let freed = |(path, held): (&String, &Held)| {
            held.is_awaited() && held.demand.is_freed(read(path).used, held.lease, held.due)
        };
        if self.budgets.iter().any(freed) {
            self.due_after(self.spacing(), now);
        }
    }

    /// Reads the current usage. Call it about ten times per lease: the node extrapolates the growth between looks, and a budget
    /// that is nearly used up makes the next turn due.
    pub fn look(&mut self, now: u64, mut read: impl FnMut(&str) -> Reading) {
        let horizon = self.interval() + self.interval() / 2;
        let mut near = false;
        for (path, held) in &mut self.budgets {
            held.demand.see(now, read(path), horizon);
            near |= held.demand.is_near(held.lease);
        }
        if near {
            self.due_after(self.spacing(), now);
        }
    }

    /// Returns the time of the next turn; `None` if the node is fenced or has nothing to say.
    #[must_use]
    pub fn due(&self) -> Option<u64> {
        (!self.fenced && !self.budgets.is_empty()).then_some(self.next)
    }

    /// Returns when the leases end, unless a reply comes before.
    #[must_use]
    pub fn until(&self) -> Option<u64> {
        self.until
    }

    /// Returns whether a newer process has the node's name.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        self.fenced
    }

    /// Returns whether the leases ended and the node has no new ones yet.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Returns how long leases hold; 0 before the first reply.
    #[must_use]
    pub fn ttl(&self) -> u64 {
        self.ttl
    }

    /// Returns all budgets of the node, each level before those below it.
    pub fn budgets(&self) -> impl Iterator<Item = Holding<'_>> {
        self.budgets.iter().map(Holding::new)
    }

    /// Returns one budget of the node.
    #[must_use]
    pub fn holding(&self, path: &str) -> Option<Holding<'_>> {
        self.budgets.get_key_value(path).map(Holding::new)
    }

    /// Ends the leases if this node's clock says so. Call it whenever the time may have come, and before anything else after a
    /// pause. [`AtEnd`] determines the actions.
    pub fn end(&mut self, now: u64) -> Vec<Action> {
        if self.until.is_none_or(|until| now < until) {
            return Vec::new();
        }
        self.until = None;
        self.ended = true;
        if self.errors == 0 {
            self.hurry(now);
        }
        let mut actions = vec![Action::Tell(Event::Ended)];
        for (path, held) in &mut self.budgets {
            held.lease = 0;
            held.back = 0;
            held.wanted = 0;
            held.due = 0;
            if self.settings.at_end == AtEnd::Shrink && held.max > 0 {
                held.max = 0;
                actions.push(Action::Lower { path: path.clone(), max: 0 });
            }
        }
        actions
    }

    fn hurry(&mut self, now: u64) {
        self.next = self.next.min(now);
    }

    /// Makes the next turn due `pause` after the last one, but not before `now`.
    fn due_after(&mut self, pause: u64, now: u64) {
        self.hurry(now.max(self.last + pause));
    }

    /// Returns the time between two turns without a cause: a third of the lease, so that two messages may be lost.
    fn interval(&self) -> u64 {
        if self.ttl == 0 { Settings::FIRST_INTERVAL } else { (self.ttl / 3).max(1) }
    }

    /// Returns the time between two turns that have a cause.
    fn spacing(&self) -> u64 {
        (self.interval() / 16).min(Settings::SPACING)
    }

    /// Returns a random number below `n`, or 0.
    fn random(&mut self, n: u64) -> u64 {
        self.jitter ^= self.jitter << 13;
        self.jitter ^= self.jitter >> 7;
        self.jitter ^= self.jitter << 17;
        if n == 0 { 0 } else { self.jitter % n }
    }
}

impl<'n> Holding<'n> {
    fn new((path, held): (&'n String, &Held)) -> Self {
        let Held { lease, max, state, limit, others, .. } = *held;
        Self { path, lease, max, state, limit, others }
    }
}

impl Held {
    fn is_awaited(&self) -> bool {
        self.awaited && self.lease > 0
    }

    fn new(now: u64, reserve: u64) -> Self {
        Self { demand: Demand::new(now, reserve), ..Self::default() }
    }
}
