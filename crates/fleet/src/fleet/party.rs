//! The node's part in one organisation: the node code, the groups, and one message at a time.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ledgerline::{Ledger, Limit, OwnedGroup, SetMaxError};
use tokio::runtime::Handle;
use tokio::sync::{Notify, broadcast, watch};

use crate::lock;
use crate::message::{Nudge, State, Sync};
use crate::node::{Action, Event, Lower, Node, Reading, Scope};
use crate::store::{Store, StoreError};

use super::clock;
use super::error::{FleetError, Room};
use super::standing::Standing;

/// Interval, in milliseconds, of looks for freed units that others wait for.
const FREED: u64 = 50;

pub(super) struct Party {
    pub organisation: String,
    pub store: Arc<dyn Store>,
    /// The runtime of its tasks.
    pub runtime: Handle,
    ledger: Arc<Ledger>,
    events: broadcast::Sender<Event>,
    state: Mutex<Parts>,
    wishes: Mutex<Vec<Wish>>,
    /// Held while a message is under way.
    turn: tokio::sync::Mutex<()>,
    /// Number of messages that have begun.
    begun: AtomicU64,
    /// Number and result of the last message that ended.
    ended: Mutex<(u64, Result<(), FleetError>)>,
    /// Wakes the task.
    pub wake: Notify,
    /// Incremented with each reply.
    pub replies: watch::Sender<u64>,
    /// The error of the last message, if it got no reply.
    failure: Mutex<Option<StoreError>>,
    /// Whether the request for nudges is settled: the store sends them to this party from then on, or cannot.
    pub listens: watch::Sender<bool>,
    stopped: AtomicBool,
}

struct Parts {
    node: Node,
    /// Time of the last look at usage.
    looked: u64,
    groups: HashMap<String, OwnedGroup>,
}

enum Wish {
    Close(String),
    Need(String, u64),
    Served(String, u64),
}

impl Party {
    pub fn new(
        organisation: &str,
        node: Node,
        store: Arc<dyn Store>,
        ledger: Arc<Ledger>,
        events: broadcast::Sender<Event>,
    ) -> Self {
        Self {
            organisation: organisation.to_owned(),
            store,
            runtime: Handle::current(),
            ledger,
            events,
            state: Mutex::new(Parts { node, looked: 0, groups: HashMap::new() }),
            wishes: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
            begun: AtomicU64::new(0),
            ended: Mutex::new((0, Ok(()))),
            wake: Notify::new(),
            replies: watch::Sender::new(0),
            failure: Mutex::default(),
            listens: watch::Sender::new(false),
            stopped: AtomicBool::new(false),
        }
    }

    /// Begins to use a budget: creates its groups, with a `max` of 0 if they are new to the fleet.
    pub fn open(&self, path: &str) -> Result<OwnedGroup, FleetError> {
        let mut parts = self.parts();
        if !parts.node.has_room(path) {
            return Err(FleetError::TooMany(path.to_owned()));
        }
        let mut group = self.ledger.owned_root();
        let mut level = String::new();
        for name in path[1..].split('/') {
            level = format!("{level}/{name}");
            if let Some(known) = parts.groups.get(&level).filter(|known| known.group().exists()) {
                group = known.clone();
                continue;
            }
            let child = group.group().get_or_create(name).map_err(FleetError::Group)?;
            group = child.to_owned_in(&self.ledger).expect("it is of this ledger");
            let max = parts.node.holding(&level).map_or(0, |holding| holding.max);
            // The group exists: it was found or created just now, and a group that is removed meanwhile takes no charges.
            let _above = group.group().set_max_now(Limit::units(max));
            parts.groups.insert(level.clone(), group.clone());
        }
        parts.node.open(clock::now(), path);
        Ok(group)
    }

    pub fn close(&self, path: &str) {
        lock(&self.wishes).push(Wish::Close(path.to_owned()));
        self.wake.notify_one();
    }

    pub fn need(&self, path: &str, units: u64) {
        lock(&self.wishes).push(Wish::Need(path.to_owned(), units));
    }

    pub fn served(&self, path: &str, units: u64) {
        lock(&self.wishes).push(Wish::Served(path.to_owned(), units));
    }

    fn parts(&self) -> std::sync::MutexGuard<'_, Parts> {
        let mut parts = lock(&self.state);
        let now = clock::now();
        let wishes = std::mem::take(&mut *lock(&self.wishes));
        for wish in wishes {
            match wish {
                Wish::Close(path) => parts.node.close(now, &path),
                Wish::Need(path, units) => parts.node.need(now, &path, units),
                Wish::Served(path, units) => parts.node.served(now, &path, units),
            }
        }
        parts
    }

    /// Ends the leases if their time has come.
    pub fn end(&self) {
        let mut parts = self.parts();
        let actions = parts.node.end(clock::now());
        self.carry_out(&mut parts, actions);
    }

    /// Looks at usage. If nothing happened (`merely`) and it is not yet time, checks only for freed units that others wait for.
    /// Returns the milliseconds until there is something to do; 0 if a turn is due.
    pub fn look(&self, merely: bool) -> u64 {
        let mut guard = self.parts();
        let parts = &mut *guard;
        let now = clock::now();
        let actions = parts.node.end(now);
        self.carry_out(parts, actions);
        let Parts { node, looked, groups } = parts;
        self.hear_refusals(now, node, groups);
        let every = node.ttl().max(1_000) / 12;
        let mut next = (*looked + every).saturating_sub(now);
        if next == 0 || !merely {
            node.look(now, |path| read(groups, path));
            *looked = now;
            next = every;
        } else {
            node.freed(now, |path| read(groups, path));
        }
        if node.is_awaited() {
            next = next.min(FREED);
        }
        node.due().map_or(next, |due| due.saturating_sub(now).min(next))
    }

    pub fn nudged(&self, nudge: &Nudge) {
        self.parts().node.nudged(clock::now(), nudge);
    }

    /// Sends one message for all budgets or for one path, and waits for its reply. If another message is under way, waits for
    /// that first; `unless` then returns whether this one has become unnecessary. A message covers the needs of all callers that
    /// wait when it begins, so each caller waits for at most two, however many there are: its own may be another caller's.
    pub async fn sync(
        &self,
        path: Option<&str>,
        unless: impl FnOnce() -> bool,
    ) -> Result<(), FleetError> {
        // Acquire, partner of the increment below: the message with this number began after the need was noted.
        let before = self.begun.load(Ordering::Acquire);
        let _turn = self.turn.lock().await;
        if unless() {
            return Ok(());
        }
        if path.is_some()
            && let (number, result) = &*lock(&self.ended)
            && *number > before
        {
            return result.clone();
        }
        let number = self.begun.fetch_add(1, Ordering::AcqRel) + 1;
        let result = match self.message(path.map_or(Scope::All, Scope::Path)) {
            Ok(message) => self.send(message).await,
            Err(error) => Err(error),
        };
        *lock(&self.ended) = (number, result.clone());
        result
    }

    /// Begins a turn: lowers limits first, then makes the message.
    fn message(&self, scope: Scope<'_>) -> Result<Sync, FleetError> {
        let mut guard = self.parts();
        let Parts { node, groups, .. } = &mut *guard;
        if node.is_fenced() {
            return Err(FleetError::Fenced);
        }
        let now = clock::now();
        self.hear_refusals(now, node, groups);
        let mut turn = node.begin(now, scope, |path| read(groups, path));
        for lower in turn.lowers() {
            if let Some(group) = groups.get(lower.path()) {
                carry_out_lower(group, lower);
            }
        }
        // Measured from before the lowering: reclaimers may have taken a while.
        Ok(node.say(now, turn))
    }

    /// Passes the refusals by this node's budgets to the node. The node ignores refusals by other groups.
    fn hear_refusals(&self, now: u64, node: &mut Node, groups: &HashMap<String, OwnedGroup>) {
        let Some(top) = groups.get(&format!("/{}", self.organisation)) else { return };
        for noted in top.group().take_refusals() {
            node.refused(now, &noted.refused_by, &noted.charged, noted.units, noted.count);
        }
    }

    async fn send(&self, message: Sync) -> Result<(), FleetError> {
        let sequence = message.sequence;
        let reply = self.store.sync(&self.organisation, &message).await;
        *lock(&self.failure) = reply.as_ref().err().cloned();
        let mut parts = self.parts();
        let now = clock::now();
        let result = match reply {
            Ok(reply) => {
                let mut actions = parts.node.end(now);
                actions.extend(parts.node.take(now, sequence, reply));
                self.carry_out(&mut parts, actions);
                let Parts { node, groups, .. } = &mut *parts;
                groups.retain(|path, _| node.holding(path).is_some());
                if node.is_fenced() { Err(FleetError::Fenced) } else { Ok(()) }
            }
            Err(error) => {
                parts.node.failed(now, sequence);
                Err(error.into())
            }
        };
        drop(parts);
        self.replies.send_modify(|count| *count += 1);
        // The time of the next turn may have changed.
        self.wake.notify_one();
        result
    }

    fn carry_out(&self, parts: &mut Parts, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Raise { path, max }
                | Action::Lower { path, max }
                | Action::Hold { path, max } => {
                    if let Some(group) = parts.groups.get(&path) {
                        // A group that was removed takes no charges.
                        let _above = group.group().set_max_now(Limit::units(max));
                    }
                }
                Action::Tell(event) => {
                    // Fails if there is no listener.
                    let _listeners = self.events.send(event);
                }
            }
        }
    }

    /// Returns the node's lease of a budget.
    pub fn lease(&self, path: &str) -> u64 {
        self.parts().node.holding(path).map_or(0, |holding| holding.max)
    }

    pub fn state_of(&self, path: &str) -> Option<State> {
        self.parts().node.holding(path).map(|holding| holding.state)
    }

    /// Returns the budget's limit and the leases of other nodes, as the store last said.
    pub fn room(&self, path: &str) -> Option<Room> {
        let parts = self.parts();
        let holding = parts.node.holding(path)?;
        Some(Room { limit: holding.limit, others: holding.others, lease: holding.lease })
    }

    pub fn standing(&self, path: &str) -> Standing {
        let parts = self.parts();
        if parts.node.is_fenced() {
            return Standing::Fenced;
        }
        if parts.node.has_ended() {
            return Standing::Ended;
        }
        match parts.node.holding(path).map_or(State::Unknown, |holding| holding.state) {
            State::Open => Standing::Open,
            State::Over { by } => Standing::Over { by },
            State::Closing => Standing::Closing,
            State::Drained => Standing::Drained,
            State::Learning => Standing::Learning,
            State::Unknown => Standing::Unknown,
        }
    }

    /// Returns the error of the last message, if it got no reply.
    pub fn failure(&self) -> Option<StoreError> {
        lock(&self.failure).clone()
    }

    /// Waits until the party listens, so that nudges caused by the caller's next action are not missed.
    pub async fn listening(&self) {
        // Fails only if the sender is gone, but this party owns it.
        let mut listens = self.listens.subscribe();
        let _listens = listens.wait_for(|listens| *listens).await;
    }

    /// Returns the group of the organisation itself.
    pub fn top(&self) -> Option<OwnedGroup> {
        self.parts().groups.get(&format!("/{}", self.organisation)).cloned()
    }

    /// Ends the task, which then leaves if nothing is charged.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Refuses further charges, waits until nothing is charged, and leaves.
    pub async fn leave(&self, patience: Duration) -> Result<(), FleetError> {
        let end = tokio::time::Instant::now() + patience;
        while let Some(used) = self.in_use() {
            if tokio::time::Instant::now() >= end {
                return Err(FleetError::Charged(used));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let _turn = self.turn.lock().await;
        if self.parts().node.ttl() == 0 {
            return Ok(());
        }
        let message = self.message(Scope::Bye)?;
        self.send(message).await
    }

    /// Returns the units still charged, if any. Further charges are refused.
    fn in_use(&self) -> Option<u64> {
        let parts = self.parts();
        let top = parts.groups.get(&format!("/{}", self.organisation))?;
        let above = top.group().set_max_now(Limit::ZERO).unwrap_or(0);
        (above > 0).then_some(above)
    }
}

fn read(groups: &HashMap<String, OwnedGroup>, path: &str) -> Reading {
    groups.get(path).map_or(Reading::default(), |group| {
        let group = group.group();
        Reading { used: group.precise(), refused: group.max_events() }
    })
}

/// Lowers a limit as far as usage allows.
fn carry_out_lower(group: &OwnedGroup, lower: &mut Lower) {
    let group = group.group();
    let in_use = group.precise();
    if lower.max() <= lower.to().max(in_use) && !lower.reclaims() {
        // The present limit allows no further charge, and returned units are for other nodes.
        return lower.done(lower.to().max(in_use), in_use);
    }
    let mut to = if lower.reclaims() { lower.to() } else { lower.to().max(group.precise()) };
    for _ in 0..2 {
        match group.set_max(Limit::units(to)) {
            Ok(()) => return lower.done(to, group.precise()),
            // The group was removed with all its units, or another process sets its limit.
            Err(SetMaxError::Gone) => return lower.done(lower.to(), 0),
            Err(SetMaxError::Busy { usage, .. }) => to = usage.max(lower.to()),
            Err(_) => return,
        }
    }
}
