//! A DataFusion [`MemoryPool`](datafusion_execution::memory_pool::MemoryPool) whose tenants, queries and consumers
//! are groups of a [Ledgerline](ledgerline) ledger.
//!
//! ```
//! use ledgerline::Ledger;
//! use ledgerline_datafusion::LedgerPool;
//! use datafusion_execution::memory_pool::MemoryConsumer;
//! use std::sync::Arc;
//!
//! let ledger = Arc::new(Ledger::new()?);
//! let pool = LedgerPool::builder(ledger.owned_root().create("engine")?).build();
//! let acme = pool.tenant("acme")?;
//! acme.group().set_max("64M".parse()?)?;
//!
//! let query = acme.for_query("q42")?;
//! let sort = MemoryConsumer::new("ExternalSorter[0]").with_can_spill(true).register(&query.pool());
//! sort.try_grow(48 << 20)?;
//! let refused = sort.try_grow(16 << 20).unwrap_err().to_string();
//! assert!(refused.contains("/engine/acme/q42/ExternalSorter[0] asked for 16.0 MB"), "{refused}");
//! drop(sort);
//! println!("{}", query.end().unwrap());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! DataFusion runs a query with the pool of its `TaskContext`: [`Query::task_context`] makes one for a physical
//! plan, and [`Query::runtime`] an environment for a session of its own.
//!
//! # How the room is shared
//!
//! A *consumer* is a registered `MemoryConsumer`: a partition of an operator, with all its reservations together.
//! Some can spill. `try_grow` never takes a group over its max, at any instant, by one byte; `grow` may, since
//! DataFusion does not let it fail, and [`QueryReport::overrun`] counts that. Below each max
//!
//! * a part is kept for consumers that cannot spill ([`LedgerPoolBuilder::keep_for_unspillable`]);
//! * a consumer that can spill takes what it needs as long as there is room, however many others are registered;
//! * if the room gets short, the largest active spiller is refused first. Smaller ones may grow up to their share, out
//!   of the part for finishing a spill ([`LedgerPoolBuilder::room_to_finish`]) and half of the part for consumers that
//!   cannot spill: many operators that hold little cannot spill either, even if they claim to.
//!
//! DataFusion has no call by which a pool asks an operator to spill; an operator spills when its own `try_grow` fails.
//! So the largest is asked when it requests more, and one that holds much and never requests more keeps it until it
//! ends. `try_grow` does not wait, so a consumer that cannot spill is refused at once when a max is full. Reclaimers of
//! the groups ([`Group::add_reclaimer`](ledgerline::Group::add_reclaimer)) are asked before a max refuses: caches give
//! way before queries spill.
//!
//! # A budget of many machines
//!
//! With the feature `fleet` the top of a pool can be a budget of a fleet (`ledgerline-fleet`) instead of a group:
//! `LedgerPool::builder(budget)`. All of the above holds within this node's lease, and the fleet is asked for more
//! before any consumer is refused. The crate's README describes when, which callers wait for it, and what other nodes
//! get back.
//!
//! # Costs
//!
//! A granted `try_grow` costs a look-up in the query's map of consumers, a compare-and-swap for each level (engine,
//! tenant, query) and a charge: with its `shrink` a tenth of a microsecond if the consumer holds much beside those
//! bytes, half of one if it holds little. Operators ask once per batch of some thousand rows. In a short room it also
//! looks at each registered spiller of that level. It waits only for the locks of those maps.

mod consumer;
mod ended;
mod engine;
#[cfg(feature = "fleet")]
mod lease;
#[cfg(not(feature = "fleet"))]
#[path = "no_lease.rs"]
mod lease;
mod level;
mod names;
mod node;
mod pool;
mod query;
mod refusal;
mod report;
mod rss;
mod settings;
mod share;
mod top;

pub use pool::{LedgerPool, LedgerPoolBuilder};
pub use query::Query;
pub use report::QueryReport;
pub use rss::RssWatch;
pub use top::Top;
