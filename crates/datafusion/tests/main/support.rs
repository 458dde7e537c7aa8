//! Common code of the tests.

use datafusion_execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use ledgerline::{Ledger, Limit};
use ledgerline_datafusion::{LedgerPool, LedgerPoolBuilder, Query};
use std::sync::Arc;

pub const MIB: usize = 1 << 20;

/// Makes a pool at `/acme` with a max.
pub fn pool(max: usize) -> LedgerPool {
    builder(max).build()
}

pub fn builder(max: usize) -> LedgerPoolBuilder {
    let ledger = Arc::new(Ledger::builder().capacity(4096).anonymous().unwrap());
    let group = ledger.owned_root().create("acme").unwrap();
    group.group().set_max(Limit::units(max as u64)).unwrap();
    LedgerPool::builder(group)
}

pub fn query(pool: &LedgerPool, name: &str) -> Query {
    pool.for_query(name).unwrap()
}

/// Registers a consumer that can spill.
pub fn spiller(pool: &Arc<dyn MemoryPool>, name: &str) -> MemoryReservation {
    MemoryConsumer::new(name).with_can_spill(true).register(pool)
}

/// Registers a consumer that cannot.
pub fn fixed(pool: &Arc<dyn MemoryPool>, name: &str) -> MemoryReservation {
    MemoryConsumer::new(name).register(pool)
}

/// Grows in steps, like operators do per batch, until it is refused or holds `most`. Returns its holding.
pub fn fill(reservation: &MemoryReservation, step: usize, most: usize) -> usize {
    while reservation.size() + step <= most && reservation.try_grow(step).is_ok() {}
    reservation.size()
}

/// Spills like an operator: it gives everything back, and asks again.
pub fn spill(reservation: &MemoryReservation) -> usize {
    reservation.free()
}
