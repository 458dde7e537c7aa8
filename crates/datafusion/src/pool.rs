//! A pool: a group of the ledger, the groups of tenants below it, and the queries of each.

use crate::node::Node;
use crate::query::Query;
use crate::report::QueryReport;
use crate::rss::RssWatch;
use crate::settings::Settings;
use crate::share::Share;
use crate::top::Top;
use ledgerline::{CreateError, Group, OwnedGroup};
use std::sync::Arc;

/// A group that queries reserve memory in: the whole engine's, or a tenant's. Clones are handles of the same pool.
///
/// DataFusion has one memory pool for each [`RuntimeEnv`](datafusion_execution::runtime_env::RuntimeEnv). So a
/// query gets a pool of its own by [`for_query`](Self::for_query), and an environment with it, which shares all
/// else. All calls may come from any thread.
#[derive(Clone, Debug)]
pub struct LedgerPool {
    node: Arc<Node>,
}

/// Settings of a pool and all pools and queries below it. [`LedgerPool::builder`] makes it.
#[derive(Debug)]
#[must_use = "a builder does nothing until build is called"]
pub struct LedgerPoolBuilder {
    top: Top,
    settings: Settings,
}

impl LedgerPool {
    /// Begins a pool in a group, whose limits and whose ancestors' limits hold. The group stays the caller's. With the
    /// feature `fleet` it begins in a budget, too, whose lease it has grow as queries need it; see the crate's page.
    pub fn builder(top: impl Into<Top>) -> LedgerPoolBuilder {
        LedgerPoolBuilder { top: top.into(), settings: Settings::default() }
    }

    /// Creates a group below this one, with this pool's settings: a tenant. It is destroyed when the last handle
    /// and its last query are gone. What a tenant may use is set by its [`group`](Self::group).
    ///
    /// # Errors
    /// As [`OwnedGroup::create`].
    pub fn tenant(&self, name: &str) -> Result<LedgerPool, CreateError> {
        Ok(LedgerPool { node: Arc::new(self.node.below(name)?) })
    }

    /// Creates a query's group, and the memory pool that its operators reserve from. Costs as much as a group and,
    /// for each consumer that an operator registers, one more.
    ///
    /// # Errors
    /// As [`OwnedGroup::create`].
    pub fn for_query(&self, name: &str) -> Result<Query, CreateError> {
        Ok(Query::new(self.node.below(name)?))
    }

    /// The pool's group: its limits may be set at any time, its usage and peak read.
    pub fn group(&self) -> Group<'_> {
        self.owned_group().group()
    }

    /// As [`group`](Self::group), as a handle that shares the ledger: for caches that charge the tenant, and
    /// their reclaimers.
    pub fn owned_group(&self) -> &OwnedGroup {
        self.node.group()
    }
}

impl LedgerPoolBuilder {
    /// Keeps a part of each limit (tenants', queries') for consumers that cannot spill: an eighth if nothing is
    /// said. Consumers that can spill never take it, but for half of it where one has nothing to spill yet, or holds
    /// no more than its share.
    pub fn keep_for_unspillable(mut self, fraction: f64) -> Self {
        self.settings.kept = Share::of(fraction);
        self
    }

    /// Keeps a part of each limit for consumers that are spilling, and for small ones while the largest has not
    /// spilled yet: a sixteenth if nothing is said.
    pub fn room_to_finish(mut self, fraction: f64) -> Self {
        self.settings.finish = Share::of(fraction);
        self
    }

    /// Sets how many consumers an error names; five if nothing is said.
    pub fn top_consumers(mut self, count: usize) -> Self {
        self.settings.top = count;
        self
    }

    /// Watches the process's resident memory beside the account.
    pub fn watch_rss(mut self, watch: RssWatch) -> Self {
        self.settings.rss = Some(watch);
        self
    }

    /// Has `try_grow` wait up to `patience` for the store's answer where the budget's lease does not suffice: one round trip who
    /// has something to spill, and who has not until other nodes gave back what lies idle there. It does not wait if
    /// nothing is said: the store is asked in the background, and whoever met the lease's end is refused.
    ///
    /// It blocks the thread, by `tokio::task::block_in_place`, and not at all in a runtime of one thread. **Do not ask for
    /// it where queries are polled in a `LocalSet` of a runtime of several threads:** tokio panics there. In a pool
    /// without a budget it does nothing.
    #[cfg(feature = "fleet")]
    pub fn wait_for_lease(mut self, patience: std::time::Duration) -> Self {
        if let Some(lease) = &mut self.top.lease {
            lease.patience = patience;
        }
        self
    }

    /// Calls `hook` with the report of each query that ends, in the thread that ends it.
    pub fn on_query_end(mut self, hook: impl Fn(&QueryReport) + Send + Sync + 'static) -> Self {
        self.settings.on_end = Some(Box::new(hook));
        self
    }

    /// Makes the pool.
    pub fn build(self) -> LedgerPool {
        LedgerPool { node: Arc::new(Node::top(self.top, self.settings)) }
    }
}
