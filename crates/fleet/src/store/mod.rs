//! Where books lie. A store applies a message to a book in one atomic step, by its own clock.

mod access;
mod address;
mod error;
pub mod etcd;
mod memory;
pub mod redis;
#[cfg(not(feature = "tls"))]
#[path = "no_tls.rs"]
mod tls;
#[cfg(feature = "tls")]
mod tls;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::book::{BudgetView, Change, View};
use crate::message::{Nudge, Reply, Sync};

pub use self::etcd::Etcd;
pub use self::redis::Redis;
pub use access::{Access, Tls};
pub use address::open;
pub use error::{Kind, StoreError};
pub use memory::Memory;

/// How a store is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// What all keys begin with. Fleets that share a store differ in it.
    pub prefix: String,
    /// How long a call may take, connecting included; in etcd, a request to one member.
    pub timeout: Duration,
}

impl Default for Options {
    /// `ledgerline`, and a second.
    fn default() -> Self {
        Self { prefix: "ledgerline".to_owned(), timeout: Duration::from_secs(1) }
    }
}

/// What a store's calls return: a future that can be sent to another thread.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// Keeps books. One value serves any number of tasks.
///
/// Each call, but for [`organisations`](Store::organisations), is one round trip, and ends within the store's time limit. A call that fails may have been applied: a node
/// then sends its next message, which says what it holds.
pub trait Store: Send + std::marker::Sync + 'static {
    /// Applies a message to the book of an organisation, and returns the book's answer.
    ///
    /// # Errors
    /// [`Kind::Malformed`] if [`Sync::check`] fails, and whatever keeps the store from answering.
    fn sync<'a>(&'a self, organisation: &'a str, message: &'a Sync) -> Answer<'a, Reply>;

    /// Applies an operator's change.
    ///
    /// # Errors
    /// [`Kind::Rejected`] if the book cannot be changed like this, and whatever keeps the store from answering.
    fn administer<'a>(&'a self, organisation: &'a str, change: &'a Change) -> Answer<'a, ()>;

    /// The whole book, for operators. Costs time for every lease of the organisation.
    ///
    /// # Errors
    /// Whatever keeps the store from answering.
    fn view<'a>(&'a self, organisation: &'a str) -> Answer<'a, View>;

    /// The organisations that have books, sorted. For operators: nodes know theirs, and need no right to this.
    ///
    /// It is several round trips, each within the time limit. Redis, which has no list of them, goes through the names of all
    /// keys of the server, or of each primary of a cluster: a command for each thousand, with others served in between. etcd
    /// reads the names of keys below its prefix, and no books. An organisation that comes or goes meanwhile may be missing.
    ///
    /// # Errors
    /// Whatever keeps the store from answering; [`Kind::Slow`] of a Redis with more than ten million keys.
    fn organisations(&self) -> Answer<'_, Vec<String>>;

    /// Some budgets of a book as they were when it last changed, in the order of their paths: their sums, without what each
    /// node has. `None` for one that is not there. Costs what these rows cost, where a store can read rows alone.
    ///
    /// # Errors
    /// Whatever keeps the store from answering.
    fn totals<'a>(
        &'a self,
        organisation: &'a str,
        paths: &'a [String],
    ) -> Answer<'a, Vec<Option<BudgetView>>> {
        Box::pin(async move {
            let mut view = self.view(organisation).await?;
            view.budgets.iter_mut().for_each(|budget| budget.holds.clear());
            let of =
                |path: &String| view.budgets.iter().find(|budget| budget.path == *path).cloned();
            Ok(paths.iter().map(of).collect())
        })
    }

    /// Makes the store ready to have books, which an operator does once: Redis gets its function library. Elsewhere nothing
    /// has to be done; etcd is asked whether it answers this user.
    ///
    /// # Errors
    /// Whatever keeps the store from answering; [`Kind::TooOld`] and [`Kind::Denied`] as in [`Redis::load`].
    fn prepare(&self) -> Answer<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    /// How the store may lose books by its own settings, as far as this user may see them: sentences for an operator. A Redis
    /// that evicts keys, or forgets all at a restart, is warned of.
    ///
    /// # Errors
    /// Whatever keeps the store from answering.
    fn warnings(&self) -> Answer<'_, Vec<String>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Listens for budgets of which nodes lack units or might now get them. Nodes that do not listen sync in their turn.
    ///
    /// # Errors
    /// Whatever keeps the store from answering.
    fn nudges<'a>(&'a self, organisation: &'a str) -> Answer<'a, Nudges>;
}

/// Nudges of one organisation. Nudges may be lost, never leases.
#[derive(Debug)]
pub struct Nudges {
    told: mpsc::Receiver<Nudge>,
}

impl Nudges {
    /// How many nudges wait for a listener that is slow; those beyond are lost.
    pub(crate) const WAITING: usize = 256;

    /// Both ends.
    pub(crate) fn channel() -> (mpsc::Sender<Nudge>, Self) {
        let (sender, told) = mpsc::channel(Self::WAITING);
        (sender, Self { told })
    }

    /// The next one. `None` if the store tells no more: listen anew.
    pub async fn next(&mut self) -> Option<Nudge> {
        self.told.recv().await
    }
}
