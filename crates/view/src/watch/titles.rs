//! The names of a run's processes as `ps` shows them.
//!
//! A process may change its title at any time without a notification. So a bounded number of processes is looked at every
//! second, and the last titles are kept.

use crate::watch::{Asked, Look, Seen, State};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The interval between looks at the titles.
const EVERY: Duration = Duration::from_secs(1);
/// The most processes per look. Each takes some thirty microseconds.
const MANY: usize = 64;

/// The last titles of a ledger's processes.
#[derive(Debug, Default)]
pub struct Titles {
    looked: Option<Instant>,
    /// The process at which the next look continues, if there are more than one look takes.
    next: usize,
    seen: HashMap<Asked, Option<String>>,
}

impl Titles {
    /// Names the rows of processes that have a title, or gave themselves a name: `nginx: worker process.4711`. Reads `/proc`
    /// for at most 64 processes a second, those that have no name yet first.
    pub fn name(&mut self, look: &mut Look) {
        let living = || {
            let live = look.rows.iter().filter(|row| row.state == State::Live);
            live.filter_map(|row| Some((row.process?, &*row.program)))
        };
        if self.looked.is_none_or(|looked| looked.elapsed() >= EVERY) {
            self.looked = Some(Instant::now());
            let known: Vec<_> =
                living().filter(|(asked, _)| self.seen.contains_key(asked)).collect();
            let new: Vec<_> =
                living().filter(|(asked, _)| !self.seen.contains_key(asked)).take(MANY).collect();
            if self.next >= known.len() {
                self.next = 0;
            }
            let again = known.iter().skip(self.next).take(MANY - new.len());
            let looks: Vec<_> = new.iter().chain(again).copied().collect();
            self.next += MANY - new.len();
            for (asked, program) in looks {
                let called = Seen::of(asked, program, "VmRSS:").and_then(|seen| seen.called);
                self.seen.insert(asked, called);
            }
        }
        // Of processes that ended the last title is kept, as long as they have a row.
        let mut there = HashMap::new();
        for row in look.rows.iter_mut() {
            let Some((asked, called)) =
                row.process.and_then(|asked| self.seen.remove_entry(&asked))
            else {
                continue;
            };
            if let Some(called) = &called {
                row.name = format!("{called}.{}", row.pid);
            }
            there.insert(asked, called);
        }
        self.seen = there;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::Row;
    use ledgerline::GroupId;
    use std::time::SystemTime;

    /// Returns a look with a row of this very process, of a program that it is not.
    fn look(state: State) -> Look {
        let pid = std::process::id();
        let row = |number, path: &str| Row::new(GroupId::from_parts(number, 1), path);
        let own = Row {
            pid,
            process: Some(Asked { owner: pid, started: 0 }),
            program: "other".to_owned(),
            state,
            ..row(2, &format!("/other.{pid}"))
        };
        let thread = Row { pid, ..row(3, &format!("/other.{pid}/main")) };
        Look {
            at: SystemTime::now(),
            clock: Duration::ZERO,
            unit: "bytes",
            steady: true,
            damaged: false,
            rows: vec![row(0, "/"), own, thread],
        }
    }

    #[test]
    fn a_process_is_called_as_it_calls_itself_and_keeps_the_name_when_it_has_ended() {
        let mut titles = Titles::default();
        let comm = std::fs::read_to_string(format!("/proc/{}/comm", std::process::id())).unwrap();
        let name = format!("{}.{}", comm.trim_end(), std::process::id());
        for state in [State::Live, State::Live, State::Exited] {
            let mut look = look(state);
            titles.name(&mut look);
            assert_eq!((&*look.rows[1].name, &*look.rows[2].name), (&*name, "main"));
            assert!(look.rows[1].path.starts_with("/other."), "the path stays");
        }
        let mut without = look(State::Live);
        without.rows.truncate(1);
        titles.name(&mut without);
        assert!(titles.seen.is_empty(), "what has no row is forgotten");
    }

    #[test]
    fn a_process_that_was_not_seen_while_it_lived_keeps_its_programs_name() {
        let mut look = look(State::Exited);
        Titles::default().name(&mut look);
        assert_eq!(look.rows[1].name, format!("other.{}", std::process::id()));
    }
}
