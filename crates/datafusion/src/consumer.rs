//! A consumer: the holdings of one `MemoryConsumer` of one query, in all of its reservations.
//!
//! DataFusion registers a `MemoryConsumer` for each partition of each operator. An operator may split its reservation,
//! take it or add new ones to the same consumer. Spilling gives back all of them at once. So all reservations of a
//! registration count together here, and each registration is a separate group: two operators of one name, such as two
//! sorts below a join, each have their part.
//!
//! All atomics of this file are counts, and no other memory depends on their values: Relaxed.

use crate::ended::Ended;
use crate::names::group_name;
use datafusion_execution::memory_pool::MemoryConsumer;
use ledgerline::{Group, OwnedGroup, Refusal};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[derive(Debug)]
pub(crate) struct Consumer {
    pub(crate) id: usize,
    pub(crate) name: String,
    pub(crate) can_spill: bool,
    /// Its own group, or the query's if the ledger has no row left.
    group: OwnedGroup,
    has_own_group: bool,
    /// Bytes in all its reservations.
    held: AtomicU64,
    /// The part of these that `grow` could not charge, since the query had ended. They are not in the ledger.
    uncharged: AtomicU64,
    /// Its holding when it was first asked to spill; zero if it is not spilling.
    spilling_from: AtomicU64,
    /// The millisecond of the pool's life in which it was last asked to spill, plus one; zero if it was not.
    asked_at: AtomicU64,
}

impl Consumer {
    /// Makes a consumer with its group below the query's.
    pub(crate) fn new(consumer: &MemoryConsumer, query: &OwnedGroup, ended: &Ended) -> Consumer {
        let name = group_name(consumer.name());
        let own = ended.create(query, &name).ok();
        Consumer {
            id: consumer.id(),
            name: consumer.name().to_owned(),
            can_spill: consumer.can_spill(),
            has_own_group: own.is_some(),
            group: own.unwrap_or_else(|| query.clone()),
            held: AtomicU64::new(0),
            uncharged: AtomicU64::new(0),
            spilling_from: AtomicU64::new(0),
            asked_at: AtomicU64::new(0),
        }
    }

    pub(crate) fn group(&self) -> Group<'_> {
        self.group.group()
    }

    pub(crate) fn held(&self) -> u64 {
        self.held.load(Relaxed)
    }

    /// Returns whether it continues by spilling when it is refused. A spilling consumer may be refused for each batch
    /// that it writes.
    pub(crate) fn has_to_spill(&self) -> bool {
        self.can_spill && self.held() > 0
    }

    /// Returns its holding when it was asked to spill, until it has given back half of that.
    pub(crate) fn spilling_from(&self) -> u64 {
        self.spilling_from.load(Relaxed)
    }

    /// Charges with the right of a limit to refuse. Before that, reclaimers of the groups above are asked: a cache
    /// gives way before a query spills.
    pub(crate) fn try_charge(&self, bytes: u64) -> Result<(), Refusal> {
        let group = self.group();
        if let Err(refusal) = group.try_charge_units(bytes) {
            // Only this call asks reclaimers. Its own refusal is the same as the first, but has no path.
            let charge = group.try_charge(bytes).map_err(|_| refusal)?;
            let _ours_now = charge.into_units();
        }
        self.held.fetch_add(bytes, Relaxed);
        Ok(())
    }

    /// Charges without the right to refuse. Returns whether it could be charged.
    pub(crate) fn charge(&self, bytes: u64) -> bool {
        let charged = self.group().charge_units(bytes).is_ok();
        if !charged {
            self.uncharged.fetch_add(bytes, Relaxed);
        }
        self.held.fetch_add(bytes, Relaxed);
        charged
    }

    /// Returns bytes of any of its reservations to the ledger.
    pub(crate) fn uncharge(&self, bytes: u64) {
        let held = self.held.fetch_sub(bytes, Relaxed) - bytes;
        if held <= self.spilling_from() / 2 {
            self.spilling_from.store(0, Relaxed);
        }
        // Bytes that never entered the ledger go first.
        let ghosts = if self.uncharged.load(Relaxed) == 0 {
            0
        } else {
            let taken = |ghosts: u64| Some(ghosts - ghosts.min(bytes));
            let before = self.uncharged.fetch_update(Relaxed, Relaxed, taken);
            before.expect("it always says what remains").min(bytes)
        };
        if bytes > ghosts {
            self.group().uncharge_units(bytes - ghosts);
        }
    }

    /// Notes that it was refused so that it spills.
    pub(crate) fn ask_to_spill(&self, now: u64) {
        let held = self.held().max(1);
        // A consumer that is asked again before it gave back half keeps its first value.
        let _ = self.spilling_from.compare_exchange(0, held, Relaxed, Relaxed);
        self.asked_at.store(now + 1, Relaxed);
    }

    /// Returns whether it counts when the room is shared: it holds something, or was asked to spill within the last
    /// `recent` milliseconds and is about to ask again.
    pub(crate) fn is_active(&self, now: u64, recent: u64) -> bool {
        let asked_at = self.asked_at.load(Relaxed);
        self.held() > 0 || (asked_at > 0 && now.saturating_sub(asked_at - 1) <= recent)
    }

    /// Returns its own group, which ends with it; `None` without one.
    pub(crate) fn own_group(&self) -> Option<&OwnedGroup> {
        self.has_own_group.then_some(&self.group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledgerline::Ledger;
    use std::sync::Arc;

    #[test]
    fn every_name_of_a_consumer_becomes_one_that_a_group_may_have() {
        let ledger = Ledger::builder().capacity(16).anonymous().unwrap();
        let long = format!("Größe[{}]{}[7]", "ä".repeat(100), "é".repeat(100));
        for name in ["ExternalSorter[0]", "", "a/b\nc", &long] {
            ledger.root().create(&group_name(name)).unwrap();
        }
        assert_eq!(group_name("ExternalSorter[0]"), "ExternalSorter[0]");
        assert_eq!(group_name("a/b\nc"), "a_b_c");
        assert!(group_name(&long).ends_with("[7]"));
    }

    #[test]
    fn a_consumer_without_a_row_of_its_own_is_charged_to_its_query() {
        let ledger = Arc::new(Ledger::builder().capacity(2).anonymous().unwrap());
        let query = ledger.owned_root().create("q").unwrap();
        let consumer = Consumer::new(&MemoryConsumer::new("sort"), &query, &Ended::default());
        consumer.try_charge(100).unwrap();
        assert_eq!(query.group().precise(), 100);
        consumer.uncharge(100);
        assert!(consumer.own_group().is_none(), "with it the query would end");
        assert_eq!(query.group().precise(), 0);
    }

    #[test]
    fn bytes_that_could_not_be_charged_are_never_uncharged() {
        let ledger = Arc::new(Ledger::builder().capacity(8).anonymous().unwrap());
        let query = ledger.owned_root().create("q").unwrap();
        let consumer = Consumer::new(&MemoryConsumer::new("sort"), &query, &Ended::default());
        consumer.try_charge(100).unwrap();
        query.group().destroy_tree().unwrap();
        assert!(!consumer.charge(50), "the group is gone");
        assert_eq!((consumer.held(), ledger.root().precise()), (150, 100));
        consumer.uncharge(150);
        assert_eq!((consumer.held(), ledger.root().precise()), (0, 0));
        assert_eq!(ledger.mistakes(), Default::default());
    }

    #[test]
    fn a_consumer_spills_until_it_has_given_back_half() {
        let ledger = Arc::new(Ledger::builder().capacity(8).anonymous().unwrap());
        let consumer =
            Consumer::new(&MemoryConsumer::new("sort"), &ledger.owned_root(), &Ended::default());
        consumer.try_charge(100).unwrap();
        consumer.ask_to_spill(7);
        consumer.try_charge(20).unwrap();
        consumer.ask_to_spill(8);
        assert_eq!(consumer.spilling_from(), 100, "where it was first asked");
        consumer.uncharge(60);
        assert_eq!(consumer.spilling_from(), 100);
        consumer.uncharge(10);
        assert_eq!(consumer.spilling_from(), 0);
        consumer.uncharge(50);
        assert!(consumer.is_active(1000, 1000) && !consumer.is_active(2000, 1000));
    }
}
