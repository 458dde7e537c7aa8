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
/// DataFusion has one memory pool for each [`RuntimeEnv`](datafusion_execution::runtime_env::RuntimeEnv). So
/// [`for_query`](Self::for_query) gives a query its own pool and an environment with it, which shares everything else.
/// All calls may come from any thread.
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
    /// feature `fleet` the top may be a budget, too, whose lease grows with the queries' needs; see the crate's page.
    pub fn builder(top: impl Into<Top>) -> LedgerPoolBuilder {
        LedgerPoolBuilder { top: top.into(), settings: Settings::default() }
    }

    /// Creates a group below this one, with this pool's settings: a tenant. It is destroyed when the last handle and
    /// its last query are gone. The tenant's limits are set by its [`group`](Self::group).
    ///
    /// # Errors
    /// As for [`OwnedGroup::create`].
    pub fn tenant(&self, name: &str) -> Result<LedgerPool, CreateError> {
        Ok(LedgerPool { node: Arc::new(self.node.below(name)?) })
    }

    /// Creates a query's group, and the memory pool that its operators reserve from. Costs one group and, for each
    /// consumer that an operator registers, one more.
    ///
    /// # Errors
    /// As for [`OwnedGroup::create`].
    pub fn for_query(&self, name: &str) -> Result<Query, CreateError> {
        Ok(Query::new(self.node.below(name)?))
    }

    /// Returns the pool's group: its limits may be set at any time, its usage and peak read.
    pub fn group(&self) -> Group<'_> {
        self.owned_group().group()
    }

    /// Like [`group`](Self::group), but a handle that shares the ledger: for caches that charge the tenant, and their
    /// reclaimers.
    pub fn owned_group(&self) -> &OwnedGroup {
        self.node.group()
    }
}

impl LedgerPoolBuilder {
    /// Keeps a part of each tenant's and query's limit for consumers that cannot spill; the default is an eighth.
    /// Consumers that can spill never take it, except for half of it if they have nothing to spill yet, or hold no more
    /// than their share.
    pub fn keep_for_unspillable(mut self, fraction: f64) -> Self {
        self.settings.kept = Share::of(fraction);
        self
    }

    /// Keeps a part of each limit for consumers that are spilling, and for small ones while the largest has not spilled
    /// yet; the default is a sixteenth.
    pub fn room_to_finish(mut self, fraction: f64) -> Self {
        self.settings.finish = Share::of(fraction);
        self
    }

    /// Sets how many consumers an error names; the default is five.
    pub fn top_consumers(mut self, count: usize) -> Self {
        self.settings.top = count;
        self
    }

    /// Watches the process's resident memory beside the account.
    pub fn watch_rss(mut self, watch: RssWatch) -> Self {
        self.settings.rss = Some(watch);
        self
    }

    /// Makes `try_grow` wait up to `patience` for the store's answer if the budget's lease does not suffice. Consumers
    /// that can spill wait one round trip; others wait until other nodes return idle units. By default it does not
    /// wait: the store is asked in the background, and the caller that met the lease's end is refused.
    ///
    /// Waiting blocks the thread, by `tokio::task::block_in_place`, and is skipped in a runtime of one thread. **Do not
    /// use it if queries are polled in a `LocalSet` of a runtime of several threads:** tokio panics there. It has no
    /// effect in a pool without a budget.
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
