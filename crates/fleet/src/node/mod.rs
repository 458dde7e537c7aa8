//! A node's side of one book: what it holds, what it says, and what it does when it hears. It has no clock and does no input or
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
//! Times are milliseconds of a clock that never jumps and goes on while the machine sleeps.

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
    /// The number of the newest message.
    sequence: u64,
    /// The highest number whose reply was taken.
    taken: u64,
    /// The newest message, while its reply may be taken.
    asked: Option<Asked>,
    /// How long leases hold, as the book last said; 0 before that.
    ttl: u64,
    /// When the leases end; `None` while there are none.
    until: Option<u64>,
    /// The grace that was promised with them.
    grace: u64,
    /// Until when the book has promised to keep them, by the book's time, which the node merely repeats.
    until_there: u64,
    /// The leases ended, and no reply has granted others since.
    ended: bool,
    fenced: bool,
    /// When the next turn is.
    next: u64,
    /// When the last turn was.
    last: u64,
    /// How many messages in a row got no answer.
    errors: u32,
    /// The state of the random numbers that spread turns.
    jitter: u64,
    /// By path, so each level comes before those below it.
    budgets: BTreeMap<String, Held>,
    refusals: Refusals,
}

/// A message that may be answered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Asked {
    sequence: u64,
    sent: u64,
    paths: Vec<String>,
    /// The highest number of a refusal that it may have told.
    told: u64,
}

/// What the node has of one budget.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Held {
    /// The lease that the node believes it holds.
    lease: u64,
    /// The limit of its group. It is above `lease` only where the node goes on after the end.
    max: u64,
    /// How many users of this node opened it. Levels above are held for those below.
    users: u32,
    /// Nobody has opened it, or one below it: it is given back.
    unused: bool,
    /// How much others would like back, since the last reply.
    back: u64,
    /// How much charges of others wait for, since the last reply.
    wanted: u64,
    /// How much goes back as it is returned, before charges of this node get it: its group's `max` is below the lease by so much.
    due: u64,
    /// Others wait for what is freed: it is looked for often.
    awaited: bool,
    /// Units in use were asked for, and the last turn could give none back: the next attempt is at the next turn.
    stuck: bool,
    /// Some reply said how the budget stands.
    heard: bool,
    state: State,
    /// The budget's limit, and what other nodes had leased of it, as the last reply said.
    limit: u64,
    others: u64,
    demand: Demand,
}

/// What the caller reads of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// What is charged to the group and those below it.
    pub used: u64,
    /// How many charges its own limit refused so far.
    pub refused: u64,
}

/// One budget of a node, as [`Node::budgets`] tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding<'n> {
    /// Its path.
    pub path: &'n str,
    /// The lease that the node believes it holds.
    pub lease: u64,
    /// What its group's `max` is to be.
    pub max: u64,
    /// How the book said that the budget is.
    pub state: State,
    /// The budget's limit, as the book last said.
    pub limit: u64,
    /// What other nodes had leased of it then.
    pub others: u64,
}

impl Node {
    /// A node that holds nothing. `incarnation` is a random number, and not 0.
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

    /// Begins to use a budget, and so every level above it. Its group's `max` is to be 0 until a reply says more.
    /// The next turn is at `now`.
    pub fn open(&mut self, now: u64, path: &str) {
        let reserve = self.settings.reserve;
        for level in message::levels(path) {
            let held = self.budgets.entry(level.to_owned());
            held.or_insert_with(|| Held::new(now, reserve)).users += u32::from(level == path);
        }
        self.hurry(now);
    }

    /// Whether a message has room for this budget, too: it names each that the node uses, and the levels above.
    #[must_use]
    pub fn has_room(&self, path: &str) -> bool {
        let new = message::levels(path).filter(|level| !self.budgets.contains_key(*level)).count();
        self.budgets.len() + new <= MAX_LINES
    }

    /// One user less. Without users, and without units in use there and below, a budget is given back in a turn.
    pub fn close(&mut self, now: u64, path: &str) {
        if let Some(held) = self.budgets.get_mut(path) {
            held.users = held.users.saturating_sub(1);
            self.hurry(now);
        }
    }

    /// A charge of `units` waits for a lease: until it is [`served`](Self::served), each message asks for as much more. The
    /// next one is due at `now`.
    pub fn need(&mut self, now: u64, path: &str, units: u64) {
        self.each_level(path, |demand| demand.need(now, units));
        self.hurry(now);
    }

    /// The charge waits no longer. If it was not granted what it waited for, the book hears of that before the next turn would
    /// be: others have nothing idle for as long as it is taken to wait.
    pub fn served(&mut self, now: u64, path: &str, units: u64) {
        self.each_level(path, |demand| demand.served(units));
        let held = self.budgets.get(path);
        if held.is_some_and(|held| held.demand.urgent() == 0 && held.demand.is_blocked()) {
            self.due_after(self.interval() / 8, now);
        }
    }

    /// Charges of a group, by its path, were refused by a budget of this node: the next message tells it. The largest asked
    /// for `units`. Budgets that the node does not use refuse nothing.
    pub fn refused(&mut self, now: u64, budget: &str, group: &str, units: u64, count: u64) {
        if self.budgets.contains_key(budget) {
            self.refusals.note(now, budget, group, units, count);
        }
    }

    /// How many refused charges it has yet to tell, or has told without having heard that it was noted.
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

    /// The store nudges a budget's nodes. Only who lacks units there, or holds idle ones, needs to sync.
    pub fn nudged(&mut self, now: u64, nudge: &Nudge) {
        let Some(held) = self.budgets.get_mut(nudge.path()) else { return };
        held.awaited = true;
        // Where charges of this node wait, too, what is returned does not lie idle: the reply says how much of it is others'.
        let syncs = match nudge {
            Nudge::Sync(_) => held.demand.want != held.demand.used,
            Nudge::Waits(_) => held.lease > 0 && held.demand.urgent() > 0,
        };
        if syncs || held.demand.freed() > 0 {
            self.due_after(self.spacing(), now);
        }
    }

    /// Whether others wait for what this node frees: then ask [`freed`](Self::freed) often, some twenty times a second.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        self.budgets.values().any(Held::is_awaited)
    }

    /// Looks whether units were freed for which others wait. The next turn is due then.
    pub fn freed(&mut self, now: u64, mut read: impl FnMut(&str) -> Reading) {
        let freed = |(path, held): (&String, &Held)| {
            held.is_awaited() && held.demand.is_freed(read(path).used, held.lease, held.due)
        };
        if self.budgets.iter().any(freed) {
            self.due_after(self.spacing(), now);
        }
    }

    /// Looks at what is used now. Ask for a look some ten times a lease: the growth between looks is what the node
    /// expects, and a budget that is nearly used up makes the next turn due.
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

    /// When the next turn is; `None` for a node that is fenced or has nothing to say.
    #[must_use]
    pub fn due(&self) -> Option<u64> {
        (!self.fenced && !self.budgets.is_empty()).then_some(self.next)
    }

    /// When the leases end, unless a reply comes before.
    #[must_use]
    pub fn until(&self) -> Option<u64> {
        self.until
    }

    /// Whether a newer process has the node's name.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        self.fenced
    }

    /// Whether its leases ended, and it has no others yet.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// How long leases hold; 0 before the first reply.
    #[must_use]
    pub fn ttl(&self) -> u64 {
        self.ttl
    }

    /// What it holds, each level before those below it.
    pub fn budgets(&self) -> impl Iterator<Item = Holding<'_>> {
        self.budgets.iter().map(Holding::new)
    }

    /// One budget of it.
    #[must_use]
    pub fn holding(&self, path: &str) -> Option<Holding<'_>> {
        self.budgets.get_key_value(path).map(Holding::new)
    }

    /// The leases have ended by this node's clock, if they have. Call it whenever the time may have come, and before
    /// anything else after a pause. [`AtEnd`] says what follows.
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

    /// The next turn is due so long after the last one, and not before now.
    fn due_after(&mut self, pause: u64, now: u64) {
        self.hurry(now.max(self.last + pause));
    }

    /// The time between two turns without a cause: a third of the lease, so that two messages may be lost.
    fn interval(&self) -> u64 {
        if self.ttl == 0 { Settings::FIRST_INTERVAL } else { (self.ttl / 3).max(1) }
    }

    /// The time between two turns that have one.
    fn spacing(&self) -> u64 {
        (self.interval() / 16).min(Settings::SPACING)
    }

    /// A random number below `n`, or 0.
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
