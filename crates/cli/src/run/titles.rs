//! The titles of a run's processes, looked up while they live.
//!
//! A process may change its title at any time without a notification. So the supervisor looks a few times a second, at
//! a bounded number of processes, and keeps the last titles. A process that lives shorter than that has its program's
//! name.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use ledgerline::{GroupState, Ledger};
use ledgerline_protocol::{Item, program};
use ledgerline_run::account::model::{Asked, Seen};

/// The interval between looks.
const EVERY: Duration = Duration::from_millis(250);
/// The most processes per look. Each takes some thirty microseconds.
const MANY: usize = 64;

/// The last look at each process.
pub(super) struct Titles {
    looked: Instant,
    /// The process at which the next look continues, if there are more than one look takes.
    next: usize,
    seen: RefCell<HashMap<Asked, Seen>>,
}

impl Titles {
    pub(super) fn new() -> Titles {
        Titles { looked: Instant::now(), next: 0, seen: RefCell::default() }
    }

    /// Looks at living processes, if a look is due.
    pub(super) fn look(&mut self, ledger: &Ledger) {
        if self.looked.elapsed() < EVERY {
            return;
        }
        self.looked = Instant::now();
        self.forget(ledger);
        let groups = ledger.snapshot().groups;
        let living: Vec<_> = groups
            .iter()
            .filter(|group| group.depth == 1 && group.owner != 0 && group.state == GroupState::Live)
            .collect();
        if self.next >= living.len() {
            self.next = 0;
        }
        for group in living.iter().skip(self.next).take(MANY) {
            let stat = ledger.group(group.id).stat();
            let started = stat.get(Item::Started.name()).map_or(0, |line| line.own);
            let started = u64::try_from(started - 1).unwrap_or(0);
            let asked = Asked { owner: group.owner, started };
            self.see(asked, program(&group.name), true);
        }
        self.next += MANY;
    }

    /// Looks at a running process; returns the last look at an ended one.
    pub(super) fn see(&self, asked: Asked, program: &str, goes_on: bool) -> Option<Seen> {
        let now = goes_on.then(|| Seen::of(asked, program, "VmHWM:")).flatten();
        let mut seen = self.seen.borrow_mut();
        match now {
            Some(now) => {
                // Only names are kept, of processes that have one.
                if now.called.is_some() {
                    seen.insert(asked, Seen { resident: None, ..now.clone() });
                }
                Some(now)
            }
            None => seen.get(&asked).cloned(),
        }
    }

    /// Forgets the processes whose rows are gone.
    fn forget(&mut self, ledger: &Ledger) {
        if self.seen.get_mut().len() > FORGET {
            let there: std::collections::HashSet<u32> =
                ledger.snapshot().groups.iter().map(|group| group.owner).collect();
            self.seen.get_mut().retain(|asked, _| there.contains(&asked.owner));
        }
    }
}

/// The number of kept names from which those without a row are removed.
const FORGET: usize = 4096;
