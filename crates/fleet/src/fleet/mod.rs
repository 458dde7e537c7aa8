//! A node of a fleet in this process: groups whose `max` is the node's lease, and a task that maintains them.
//!
//! ```text
//! Budget::charge     try_charge in the group; refused there: one message for what waits, and try_charge once more
//! party              one for each organisation: the node code, its groups, one message at a time
//!   task             at each turn, on refusals and nudges: a message; looks at usage between turns
//! ends               a thread of its own: lowers limits when leases end, also where the runtime hangs
//! ```
//!
//! There are two locks, taken in this order: a party's `state`, under which groups' limits are set and reclaimers run; and its
//! `wishes`, under which no foreign code runs. Actions that a reclaimer may take, such as dropping a budget, lock `wishes` alone.

mod budget;
mod clock;
mod ends;
mod error;
mod party;
mod standing;
mod task;

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use ledgerline::Ledger;
use tokio::sync::broadcast;

use crate::lock;
use crate::message::{self, MAX_UNITS};
use crate::node::{AtEnd, Event, Node, Settings};
use crate::store::Store;

pub use budget::Budget;
pub use error::{FleetError, NoRoom, Obstacle};
pub use standing::Standing;

use party::Party;

/// Number of events that a slow listener may be behind.
const EVENTS: usize = 256;

/// This process as a node of a fleet. Clones are the same node. When the last clone and the last budget are dropped, the node
/// leaves in the background. If units are still charged then, its leases end by themselves.
#[derive(Clone)]
pub struct Fleet {
    shared: Arc<Shared>,
}

struct Shared {
    store: Arc<dyn Store>,
    ledger: Arc<Ledger>,
    name: String,
    incarnation: u64,
    settings: Settings,
    parties: Mutex<BTreeMap<String, Arc<Party>>>,
    events: broadcast::Sender<Event>,
    ends: ends::Ends,
}

/// The settings of a node that is about to join: [`Fleet::join`].
#[must_use = "nothing joins before `start`"]
pub struct Join {
    store: Arc<dyn Store>,
    ledger: Option<Arc<Ledger>>,
    name: String,
    settings: Settings,
}

impl Fleet {
    /// Begins to join a fleet under a name. Only one process at a time should use a name; the later one takes it.
    pub fn join(store: Arc<dyn Store>, name: &str) -> Join {
        Join { store, ledger: None, name: name.to_owned(), settings: Settings::default() }
    }

    /// Begins to use a budget: `/acme/batch`, or `acme/batch` for short. Creates its group and those above it in the ledger if
    /// they do not exist yet; their `max` is set by the fleet from now on. Takes one round trip to the store; two for the first
    /// budget of an organisation.
    ///
    /// # Errors
    /// The store does not answer or has no such budget, the name is another process's, the ledger is full; or the node uses
    /// [`MAX_LINES`](crate::message::MAX_LINES) budgets of the organisation.
    pub async fn budget(&self, path: &str) -> Result<Budget, FleetError> {
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        let organisation = path[1..].split('/').next().unwrap_or_default().to_owned();
        message::check_path(&organisation, &path).map_err(FleetError::Path)?;
        let party = self.party(&organisation);
        let group = party.open(&path)?;
        let budget = Budget { fleet: self.clone(), party, path, group };
        budget.first().await?;
        Ok(budget)
    }

    /// Returns the ledger with the node's groups.
    #[must_use]
    pub fn ledger(&self) -> &Arc<Ledger> {
        &self.shared.ledger
    }

    /// Subscribes to events of this node: its leases end, a budget is over, another process has its name.
    #[must_use]
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.shared.events.subscribe()
    }

    /// Leaves the fleet. Charges are refused from now on, and all leases become free as soon as nothing is charged any more.
    /// Waits for that for up to `patience`, in all organisations in parallel; the store's answers take additional time. Units
    /// that stay charged longer count until the leases end by themselves.
    ///
    /// # Errors
    /// [`FleetError::Charged`] if units are still charged; or the store does not answer. The node has left all organisations
    /// without such an error.
    pub async fn leave(self, patience: Duration) -> Result<(), FleetError> {
        let parties: Vec<Arc<Party>> = lock(&self.shared.parties).values().cloned().collect();
        for party in &parties {
            party.stop();
        }
        let leaves = parties.iter().map(|party| party.leave(patience));
        join_all(leaves).await.into_iter().collect()
    }

    fn party(&self, organisation: &str) -> Arc<Party> {
        let mut parties = lock(&self.shared.parties);
        if let Some(party) = parties.get(organisation) {
            return party.clone();
        }
        let Shared { store, ledger, name, incarnation, settings, events, .. } = &*self.shared;
        let node = Node::new(name, *incarnation, *settings);
        let party = Party::new(organisation, node, store.clone(), ledger.clone(), events.clone());
        let party = Arc::new(party);
        self.shared.ends.watch(&party);
        tokio::spawn(task::run(party.clone()));
        parties.insert(organisation.to_owned(), party.clone());
        party
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let parties = self.parties.get_mut().unwrap_or_else(PoisonError::into_inner);
        for party in parties.values() {
            party.stop();
        }
    }
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { name, incarnation, .. } = &*self.shared;
        f.debug_struct("Fleet")
            .field("name", name)
            .field("incarnation", incarnation)
            .finish_non_exhaustive()
    }
}

impl Join {
    /// Sets the ledger for the node's groups. By default the node creates one.
    pub fn ledger(mut self, ledger: &Arc<Ledger>) -> Self {
        self.ledger = Some(ledger.clone());
        self
    }

    /// Sets the behaviour when the leases end before the node reaches the store again. Default: [`AtEnd::Shrink`].
    pub fn at_end(mut self, at_end: AtEnd) -> Self {
        self.settings.at_end = at_end;
        self
    }

    /// Sets the number of units to keep idle in each budget that is in use, so that charges need not wait for the store. Default:
    /// 1 MiB.
    pub fn reserve(mut self, units: u64) -> Self {
        self.settings.reserve = units.min(MAX_UNITS);
        self
    }

    /// Joins the fleet. Nothing is sent before the first budget. The node's tasks are spawned on the runtime from which budgets
    /// are asked for.
    ///
    /// # Errors
    /// The system has no memory for a ledger, or no thread.
    pub fn start(self) -> io::Result<Fleet> {
        let ledger = match self.ledger {
            Some(ledger) => ledger,
            None => Arc::new(Ledger::new()?),
        };
        ledger.note_refusals();
        let shared = Shared {
            store: self.store,
            ledger,
            name: self.name,
            // Below 2^53, and not 0.
            incarnation: RandomState::new().hash_one(clock::now()) >> 11 | 1,
            settings: self.settings,
            parties: Mutex::default(),
            events: broadcast::channel(EVENTS).0,
            ends: ends::Ends::start()?,
        };
        Ok(Fleet { shared: Arc::new(shared) })
    }
}

impl fmt::Debug for Join {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Join").field("name", &self.name).finish_non_exhaustive()
    }
}
