//! Stores, which keep books. A store applies a message to a book in one atomic step, by its own clock.

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

/// The options of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The prefix of all keys. Fleets that share a store use different ones.
    pub prefix: String,
    /// The time limit of a call, including the connection; in etcd, of a request to one member.
    pub timeout: Duration,
}

impl Default for Options {
    /// Returns the prefix `ledgerline` and a time limit of one second.
    fn default() -> Self {
        Self { prefix: "ledgerline".to_owned(), timeout: Duration::from_secs(1) }
    }
}

/// The result of a store's call: a future that can be sent to another thread.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// Keeps books. One value serves any number of tasks.
///
/// Each call except [`organisations`](Store::organisations) is one round trip, and ends within the store's time limit. A call
/// that fails may have been applied: a node then sends its next message, which states its leases.
pub trait Store: Send + std::marker::Sync + 'static {
    /// Applies a message to the book of an organisation, and returns the book's answer.
    ///
    /// # Errors
    /// [`Kind::Malformed`] if [`Sync::check`] fails, and any error of the store.
    fn sync<'a>(&'a self, organisation: &'a str, message: &'a Sync) -> Answer<'a, Reply>;

    /// Applies an operator's change.
    ///
    /// # Errors
    /// [`Kind::Rejected`] if the book cannot be changed like this, and any error of the store.
    fn administer<'a>(&'a self, organisation: &'a str, change: &'a Change) -> Answer<'a, ()>;

    /// Returns the whole book, for operators. Takes time for every lease of the organisation.
    ///
    /// # Errors
    /// Any error of the store.
    fn view<'a>(&'a self, organisation: &'a str) -> Answer<'a, View>;

    /// Returns the organisations that have books, sorted. For operators: nodes know their organisation, and need no permission
    /// for this call.
    ///
    /// It takes several round trips, each within the time limit. Redis has no list of them, so this goes through the names of all
    /// keys of the server, or of each primary of a cluster: one command per thousand keys, with other clients served in between.
    /// With etcd it reads the names of keys below the prefix, and no books. An organisation that appears or disappears meanwhile
    /// may be missing.
    ///
    /// # Errors
    /// Any error of the store; [`Kind::Slow`] for a Redis with more than ten million keys.
    fn organisations(&self) -> Answer<'_, Vec<String>>;

    /// Returns some budgets of a book as of its last change, in the order of their paths: their sums, without the parts of nodes.
    /// `None` for a budget that does not exist. Takes time for these rows only, if the store can read single rows.
    ///
    /// # Errors
    /// Any error of the store.
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

    /// Prepares the store for books, which an operator does once. Redis gets its function library. Other stores need no
    /// preparation; etcd is asked whether it answers this user.
    ///
    /// # Errors
    /// Any error of the store; [`Kind::TooOld`] and [`Kind::Denied`] as in [`Redis::load`].
    fn prepare(&self) -> Answer<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    /// Returns warnings for an operator about settings with which the store may lose books, as far as this user may read them.
    /// Examples are a Redis that evicts keys, or does not persist them.
    ///
    /// # Errors
    /// Any error of the store.
    fn warnings(&self) -> Answer<'_, Vec<String>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Listens for budgets of which nodes lack units or might now get them. Nodes that do not listen sync in their turn.
    ///
    /// # Errors
    /// Any error of the store.
    fn nudges<'a>(&'a self, organisation: &'a str) -> Answer<'a, Nudges>;
}

/// The nudges of one organisation. Nudges may be lost, leases never.
#[derive(Debug)]
pub struct Nudges {
    told: mpsc::Receiver<Nudge>,
}

impl Nudges {
    /// Number of nudges that wait for a slow listener; further ones are lost.
    pub(crate) const WAITING: usize = 256;

    /// Creates both ends.
    pub(crate) fn channel() -> (mpsc::Sender<Nudge>, Self) {
        let (sender, told) = mpsc::channel(Self::WAITING);
        (sender, Self { told })
    }

    /// Returns the next nudge. `None` if the store sends no more: listen anew.
    pub async fn next(&mut self) -> Option<Nudge> {
        self.told.recv().await
    }
}
