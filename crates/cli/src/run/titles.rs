//! The titles of a run's processes, looked up while they live.
//!
//! A process changes its title whenever it likes and tells nobody. So the supervisor looks a few times a second, at a bounded number of
//! processes, and keeps what it saw last. A process that lives shorter than that is called as its program.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use ledgerline::{GroupState, Ledger};
use ledgerline_protocol::{Item, program};
use ledgerline_run::account::model::{Asked, Seen};

/// How often it looks.
const EVERY: Duration = Duration::from_millis(250);
/// At how many processes at a time. Each takes some thirty microseconds.
const MANY: usize = 64;

/// The last look at each process.
pub(super) struct Titles {
    looked: Instant,
    /// The process at which the next look goes on, if there are more than it takes.
    next: usize,
    seen: RefCell<HashMap<Asked, Seen>>,
}

impl Titles {
    pub(super) fn new() -> Titles {
        Titles { looked: Instant::now(), next: 0, seen: RefCell::default() }
    }

    /// Looks at processes that live, if it is time.
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

    /// Looks at a process that goes on; returns the last look at one that has ended.
    pub(super) fn see(&self, asked: Asked, program: &str, goes_on: bool) -> Option<Seen> {
        let now = goes_on.then(|| Seen::of(asked, program, "VmHWM:")).flatten();
        let mut seen = self.seen.borrow_mut();
        match now {
            Some(now) => {
                // (Names alone are kept, of those that have one.)
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

/// How many names are kept before those of rows that are gone are looked for.
const FORGET: usize = 4096;
