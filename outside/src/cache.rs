//! A cache like that of a server: it charges each entry to its group, and evicts entries on request.

use ledgerline::{Charge, Group, Reclaimer, Refused};
use std::sync::{Arc, Mutex, PoisonError};

/// A cache that gives back as many units as requested, in whole entries.
pub struct Cache {
    pub group: Group<'static>,
    entry: u64,
    entries: Arc<Mutex<Vec<Charge<'static>>>>,
    _reclaimer: Reclaimer<'static>,
}

impl Cache {
    /// Makes an empty cache with entries of `entry` units.
    pub fn new(group: Group<'static>, entry: u64) -> Cache {
        let entries: Arc<Mutex<Vec<Charge<'static>>>> = Arc::default();
        let evicted = entries.clone();
        let reclaimer = group.add_reclaimer(0, move |need| {
            let mut freed = 0;
            while freed < need {
                let popped = evicted.lock().unwrap_or_else(PoisonError::into_inner).pop();
                let Some(entry) = popped else { break };
                freed += entry.units();
            }
            freed
        });
        Cache { group, entry, entries, _reclaimer: reclaimer }
    }

    /// Adds entries of `units` in all.
    pub fn fill(&self, units: u64) -> Result<(), Refused> {
        for _ in 0..units / self.entry {
            let entry = self.group.try_charge(self.entry)?;
            self.entries.lock().unwrap_or_else(PoisonError::into_inner).push(entry);
        }
        Ok(())
    }

    /// Returns the units of all its entries.
    pub fn holds(&self) -> u64 {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.iter().map(Charge::units).sum()
    }
}
