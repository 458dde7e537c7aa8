//! Whether the program behind a ledger is still running.

use crate::watch::{Look, Source, State};
use ledgerline::announced;
use std::path::Path;

/// The knowledge about the program behind a ledger.
#[derive(Debug, Default)]
pub struct Life {
    /// Whether the program announced the ledger, so that the announcement can be checked.
    announced: bool,
    /// Whether one of the ledger's processes was seen. In another PID namespace none ever is, and their absence proves
    /// nothing.
    seen: bool,
}

impl Life {
    /// Starts with the program that a ledger was opened from.
    pub fn of(source: &Source) -> Life {
        let announced = announced().iter().any(|announced| announced.path == source.path());
        Life { announced, seen: false }
    }

    /// Returns whether the program has ended. Either the file that the ledger was opened in is gone, as a run's is with
    /// its supervisor; or the program that announced the ledger does not have it any more; or none of the ledger's
    /// processes exists, after one was seen before.
    pub fn has_ended(&mut self, source: &Source, look: &Look) -> bool {
        let there = |pid: u32| Path::new(&format!("/proc/{pid}")).exists();
        if !source.path().exists() {
            return true;
        }
        if self.announced {
            let mut others = announced().into_iter();
            return !others.any(|other| other.path == source.path() && other.running);
        }
        self.all_gone(look, there)
    }

    fn all_gone(&mut self, look: &Look, there: impl Fn(u32) -> bool) -> bool {
        let live = look.rows.iter().filter(|row| row.pid != 0 && row.state == State::Live);
        let any = live.map(|row| row.pid).any(there);
        self.seen |= any;
        self.seen && !any
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::Row;
    use ledgerline::GroupId;
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn a_program_has_ended_when_of_processes_that_were_there_none_is() {
        let row = |path: &str, pid| Row { pid, ..Row::new(GroupId::from_parts(pid, 2), path) };
        let rows = vec![row("/", 0), row("/a.7", 0), row("/b.8", 0)];
        let (at, clock) = (UNIX_EPOCH, Duration::ZERO);
        let mut look = Look { at, clock, unit: "bytes", steady: true, damaged: false, rows };
        let mut life = Life::default();
        assert!(!life.all_gone(&look, |_| false), "a ledger without processes says nothing");
        (look.rows[1].pid, look.rows[2].pid) = (7, 8);
        assert!(!life.all_gone(&look, |_| false), "processes that never were there say nothing");
        assert!(!life.all_gone(&look, |pid| pid == 8));
        assert!(life.all_gone(&look, |_| false));
        look.rows[2].state = State::Exited;
        assert!(life.all_gone(&look, |pid| pid == 8), "another process has its number now");
    }
}
