//! A query: a group, and the memory pool that its operators reserve from.

use crate::consumer::Consumer;
use crate::lease::Lease;
use crate::level::Level;
use crate::node::Node;
use crate::refusal::{Refused, Why};
use crate::report::{QueryReport, size};
use crossbeam_utils::sync::{ShardedLock, ShardedLockReadGuard};
use datafusion_common::{DataFusionError, HashMap, Result};
use datafusion_execution::TaskContext;
use datafusion_execution::memory_pool::{
    MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
};
use datafusion_execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use ledgerline::Group;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError};

/// A query of a [`LedgerPool`](crate::LedgerPool): a group, with the groups of its consumers below it.
///
/// Its group ends by [`end`](Self::end), or when this handle, its clones and all of the query's reservations are
/// gone. All calls may come from any thread.
#[derive(Clone, Debug)]
pub struct Query {
    pool: Arc<QueryPool>,
}

impl Query {
    pub(crate) fn new(node: Node) -> Query {
        let pool = QueryPool {
            path: node.level().group().path(),
            node,
            consumers: ShardedLock::default(),
            ended: AtomicBool::new(false),
            asked_to_spill: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            overrun: AtomicU64::new(0),
        };
        Query { pool: Arc::new(pool) }
    }

    /// Returns the pool that the query's operators reserve from.
    pub fn pool(&self) -> Arc<dyn MemoryPool> {
        self.pool.clone()
    }

    /// Returns a runtime environment that shares everything of `env` (disk manager, caches, object stores) except the
    /// pool, which is this query's.
    ///
    /// # Errors
    /// Any error of DataFusion's when it builds an environment.
    pub fn runtime(&self, env: &RuntimeEnv) -> Result<Arc<RuntimeEnv>> {
        RuntimeEnvBuilder::from_runtime_env(env).with_memory_pool(self.pool()).build_arc()
    }

    /// Returns a task context like `context` with this query's pool: for `collect` and `execute_stream` of a physical
    /// plan.
    ///
    /// # Errors
    /// As for [`runtime`](Self::runtime).
    pub fn task_context(&self, context: &TaskContext) -> Result<Arc<TaskContext>> {
        let runtime = self.runtime(&context.runtime_env())?;
        let context = TaskContext::new(
            context.task_id(),
            context.session_id(),
            context.session_config().clone(),
            context.scalar_functions().clone(),
            context.higher_order_functions().clone(),
            context.aggregate_functions().clone(),
            context.window_functions().clone(),
            runtime,
        );
        Ok(Arc::new(context))
    }

    /// Returns the query's group: its limits may be set, its usage and peak read.
    pub fn group(&self) -> Group<'_> {
        self.pool.node.level().group()
    }

    /// Returns the consumers that hold something, the largest first, with their bytes.
    pub fn holders(&self) -> Vec<(String, u64)> {
        self.pool.named_holders()
    }

    /// Ends the query now: its groups are destroyed, and further requests are refused. The remaining holdings of
    /// reservations are reported, and count in the tenant until they are returned. `None` if the query was ended
    /// before.
    pub fn end(&self) -> Option<QueryReport> {
        self.pool.end()
    }
}

/// The memory pool of one query, which DataFusion gets as `Arc<dyn MemoryPool>`.
pub(crate) struct QueryPool {
    /// Kept for messages after its group is gone.
    path: String,
    /// The query's own node, which keeps the tenant's group.
    node: Node,
    /// Each try_grow reads it. Each thread has its own part of this lock, which other readers do not write.
    consumers: ShardedLock<HashMap<usize, Arc<Consumer>>>,
    /// Relaxed, like the counts: the swap chooses the thread that ends the query, and the ledger refuses late charges.
    ended: AtomicBool,
    asked_to_spill: AtomicU64,
    refused: AtomicU64,
    overrun: AtomicU64,
}

impl QueryPool {
    /// The holder of the guard must not charge: reclaimers and wakers are foreign code, which may register a consumer.
    fn consumers(&self) -> ShardedLockReadGuard<'_, HashMap<usize, Arc<Consumer>>> {
        // No change of the map panics in the middle.
        self.consumers.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn consumer(&self, reservation: &MemoryReservation) -> Arc<Consumer> {
        let id = reservation.consumer().id();
        self.consumers().get(&id).expect("a reservation's consumer is registered").clone()
    }

    /// Returns consumers that hold something, the largest first. Each is read once, since it may change during the
    /// sort.
    fn holders(&self) -> Vec<(Arc<Consumer>, u64)> {
        let consumers = self.consumers();
        let each = consumers.values().map(|consumer| (consumer.clone(), consumer.held()));
        let mut holders: Vec<_> = each.filter(|&(_, held)| held > 0).collect();
        holders.sort_by(|(a, x), (b, y)| y.cmp(x).then_with(|| a.name.cmp(&b.name)));
        holders
    }

    fn named_holders(&self) -> Vec<(String, u64)> {
        let holders = self.holders().into_iter();
        holders.map(|(consumer, held)| (consumer.name.clone(), held)).collect()
    }

    /// Takes room at each level, the lowest first, and then from the ledger; all of it or nothing.
    fn take(&self, consumer: &Consumer, bytes: u64) -> Result<(), Why<'_>> {
        if self.ended.load(Relaxed) {
            return Err(Why::Ended);
        }
        let levels = &self.node.levels;
        for (at, level) in levels.iter().enumerate().rev() {
            if let Err(short) = level.admit(consumer, bytes) {
                give_back(&levels[at + 1..], consumer, bytes);
                return Err(Why::Short(level, short));
            }
        }
        consumer.try_charge(bytes).map_err(|refusal| {
            give_back(levels, consumer, bytes);
            Why::Full(refusal)
        })
    }

    /// Takes the units that the lease at the top lacked, if the fleet grants more.
    fn take_beyond_lease<'a>(
        &'a self,
        lease: &Lease,
        consumer: &Consumer,
        bytes: u64,
        mut why: Why<'a>,
    ) -> Result<(), Why<'a>> {
        let (end, spills) = (lease.deadline(), consumer.has_to_spill());
        while why.is_lease(lease, consumer) {
            let Some(units) = self.node.levels[0].lacking(consumer, bytes) else { break };
            let query = self.node.level().reserved().saturating_add(bytes);
            let grown = lease.grow(units, query, spills, end);
            // Even a partial grant may be enough for this request.
            match self.take(consumer, bytes) {
                Err(again) if grown && !consumer.can_spill => why = again,
                result => return result,
            }
        }
        Err(why)
    }

    /// Grows a lease that is nearly used up before a consumer is refused.
    fn foresee(&self) {
        if let Some(lease) = &self.node.engine.lease {
            lease.foresee(self.node.levels[0].reserved());
        }
    }

    fn end(&self) -> Option<QueryReport> {
        if self.ended.swap(true, Relaxed) {
            return None;
        }
        let group = self.node.level().group();
        let peak = group.peak();
        let holders = self.named_holders();
        // Busy only in a sandbox without membarrier, or in a signal handler. Then the group stays, and its holding is
        // reported.
        let leftover = match group.destroy_tree() {
            Ok(settled) => settled.iter().map(|one| one.leftover).max().unwrap_or(0),
            Err(_) => group.precise(),
        };
        let report = QueryReport {
            path: self.path.clone(),
            peak: peak.value,
            peak_bound: peak.bound,
            leftover: leftover.max(holders.iter().map(|(_, held)| held).sum()),
            holders,
            asked_to_spill: self.asked_to_spill.load(Relaxed),
            refused: self.refused.load(Relaxed),
            overrun: self.overrun.load(Relaxed),
        };
        if let Some(hook) = &self.node.engine.settings.on_end {
            hook(&report);
        }
        Some(report)
    }
}

fn give_back(levels: &[Arc<Level>], consumer: &Consumer, bytes: u64) {
    levels.iter().for_each(|level| level.sub(consumer.can_spill, bytes));
}

/// Returns bytes as the ledger counts them.
fn bytes(size: usize) -> u64 {
    // Lossless on every target of Rust.
    size as u64
}

impl MemoryPool for QueryPool {
    fn name(&self) -> &str {
        "ledger"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        let ended = &self.node.engine.ended;
        let consumer = Arc::new(Consumer::new(consumer, self.node.group(), ended));
        if consumer.can_spill {
            self.node.levels.iter().for_each(|level| level.add_spiller(&consumer));
        }
        let mut consumers = self.consumers.write().unwrap_or_else(PoisonError::into_inner);
        consumers.insert(consumer.id, consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        let mut consumers = self.consumers.write().unwrap_or_else(PoisonError::into_inner);
        let removed = consumers.remove(&consumer.id());
        drop(consumers);
        let Some(consumer) = removed else { return };
        if consumer.can_spill {
            self.node.levels.iter().for_each(|level| level.remove_spiller(consumer.id));
        }
        let ended = &self.node.engine.ended;
        if let Some(group) = consumer.own_group() {
            ended.add(group.clone());
        }
        // Checked after the addition: of several that end at once, the last one here sees that all are gone.
        if self.consumers().is_empty() {
            ended.destroy();
        }
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        let (consumer, additional) = (self.consumer(reservation), bytes(additional));
        let levels = &self.node.levels;
        levels.iter().for_each(|level| level.add(consumer.can_spill, additional));
        let charged = consumer.charge(additional);
        let over = |level: &Arc<Level>| {
            let group = level.group();
            group.max().get().is_some_and(|max| group.approximate().value > max)
        };
        if !charged || levels.iter().any(over) {
            self.overrun.fetch_add(additional, Relaxed);
        }
        self.foresee();
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        let (consumer, shrink) = (self.consumer(reservation), bytes(shrink));
        // The ledger first: a level's counts are never less than its part of the ledger.
        consumer.uncharge(shrink);
        give_back(&self.node.levels, &consumer, shrink);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        let (consumer, additional) = (self.consumer(reservation), bytes(additional));
        let mut taken = self.take(&consumer, additional);
        if let Some(lease) = &self.node.engine.lease {
            taken = taken.or_else(|why| self.take_beyond_lease(lease, &consumer, additional, why));
        }
        self.foresee();
        taken.map_err(|why| {
            if consumer.can_spill {
                consumer.ask_to_spill(self.node.level().now());
                self.asked_to_spill.fetch_add(1, Relaxed);
            } else {
                self.refused.fetch_add(1, Relaxed);
            }
            let (consumer, node, holders) = (&consumer, &self.node, self.holders());
            let (query, bytes) = (&*self.path, additional);
            let refused = Refused { query, node, consumer, bytes, why, holders };
            // The kind of error at which operators spill.
            DataFusionError::ResourcesExhausted(refused.to_string())
        })
    }

    fn reserved(&self) -> usize {
        usize::try_from(self.node.level().reserved()).unwrap_or(usize::MAX)
    }

    fn memory_limit(&self) -> MemoryLimit {
        let levels = self.node.levels.iter();
        let max = levels.filter_map(|level| level.group().max().get()).min();
        max.map_or(MemoryLimit::Infinite, |max| {
            MemoryLimit::Finite(usize::try_from(max).unwrap_or(usize::MAX))
        })
    }
}

impl Drop for QueryPool {
    fn drop(&mut self) {
        self.end();
    }
}

impl fmt::Debug for QueryPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueryPool")
            .field("path", &self.path)
            .field("levels", &self.node.levels)
            .finish()
    }
}

impl fmt::Display for QueryPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({}, used: {}", self.name(), self.path, size(self.node.level().reserved()))?;
        match self.memory_limit() {
            MemoryLimit::Finite(limit) => write!(f, ", limit: {})", size(bytes(limit))),
            _ => f.write_str(")"),
        }
    }
}
