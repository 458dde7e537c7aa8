//! A thread that lowers limits when leases end. It needs neither the runtime nor the store.

use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use crate::lock;

use super::party::Party;

/// The longest pause between two looks at the time: a sleep does not count the time for which the machine slept.
const LOOK: Duration = Duration::from_millis(100);

/// A handle of the thread, which ends when this is dropped.
pub(super) struct Ends {
    watched: Arc<Watched>,
}

#[derive(Default)]
struct Watched {
    parties: Mutex<Option<Vec<Weak<Party>>>>,
    changed: Condvar,
}

impl Ends {
    pub fn start() -> io::Result<Self> {
        let watched =
            Arc::new(Watched { parties: Mutex::new(Some(Vec::new())), ..Watched::default() });
        let ends = Self { watched: watched.clone() };
        thread::Builder::new().name("ledgerline-fleet".to_owned()).spawn(move || watched.run())?;
        Ok(ends)
    }

    pub fn watch(&self, party: &Arc<Party>) {
        if let Some(parties) = lock(&self.watched.parties).as_mut() {
            parties.push(Arc::downgrade(party));
        }
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        *lock(&self.watched.parties) = None;
        self.watched.changed.notify_one();
    }
}

impl Watched {
    fn run(&self) {
        let mut parties = lock(&self.parties);
        while let Some(list) = parties.as_mut() {
            list.retain(|party| party.strong_count() > 0);
            let live: Vec<Arc<Party>> = list.iter().filter_map(Weak::upgrade).collect();
            drop(parties);
            for party in live {
                party.end();
            }
            parties = lock(&self.parties);
            if parties.is_some() {
                let slept = self.changed.wait_timeout(parties, LOOK);
                parties = slept.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }
}
