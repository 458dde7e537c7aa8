//! The report of an audit: the wrong uncharges and the outstanding charges.

use super::wrong::{Outstanding, WrongUncharge};
use crate::ledger::Ledger;
use crate::table::follow;
use crate::table::id::GroupId;
use std::fmt::{self, Write};
use std::panic::Location;

/// The findings of the audit of a ledger, made by [`Ledger::audit_report`]. Its `Display` has one sentence per line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuditReport {
    /// The wrong uncharges, in the order of their first occurrence; at most
    /// [`AUDIT_REPORTS_MAX`](super::wrong::AUDIT_REPORTS_MAX).
    pub wrong: Vec<WrongUncharge>,
    /// The number of wrong uncharges beyond those.
    pub left_out: u64,
}

impl fmt::Display for AuditReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, wrong) in self.wrong.iter().enumerate() {
            if index > 0 {
                f.write_char('\n')?;
            }
            write!(f, "{wrong}")?;
        }
        if self.left_out > 0 {
            write!(f, "\nand {} more that there was no room to name", self.left_out)?;
        }
        Ok(())
    }
}

impl Ledger {
    /// Returns the wrong uncharges that the [audit](crate::LedgerBuilder::audit) found so far; none in a ledger that
    /// is not audited. Not async-signal-safe.
    pub fn audit_report(&self) -> AuditReport {
        let mut report = AuditReport::default();
        let Some(audit) = self.audit() else { return report };
        // Copies one at a time, each allocated before the lock is taken (`audit.rs`, A1).
        loop {
            let blank = WrongUncharge::blank(Location::caller());
            let Some(entered) = audit.enter() else { return report };
            report.left_out = entered.followed.left_out;
            let next = entered.followed.wrong.get(report.wrong.len());
            let Some(next) = next else { return report };
            let wrong = blank.copy(next);
            drop(entered);
            report.wrong.push(wrong);
        }
    }

    /// Returns the charges that were not returned yet, by group and by the line that charged, the most units first.
    /// It shows the lines that leak, or merely hold. Only an [audited](crate::LedgerBuilder::audit) ledger knows
    /// this; any other returns an empty list. Not async-signal-safe.
    ///
    /// ```
    /// # use ledgerline::Ledger;
    /// let ledger = Ledger::builder().audit(true).anonymous()?;
    /// let query = ledger.root().create("q1")?;
    /// let buffers = [query.try_charge(100)?, query.try_charge(200)?];
    /// let held = ledger.outstanding();
    /// assert_eq!((held.len(), held[0].charges, held[1].charges), (2, 1, 1));
    /// assert_eq!((&*held[0].path, held[0].units, held[0].site.file()), ("/q1", 200, file!()));
    /// # drop(buffers);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn outstanding(&self) -> Vec<Outstanding> {
        self.outstanding_in(None)
    }

    pub(crate) fn outstanding_in(&self, only: Option<GroupId>) -> Vec<Outstanding> {
        let Some(audit) = self.audit() else { return Vec::new() };
        let mut held: Vec<Outstanding> = Vec::new();
        loop {
            let Some(entered) = audit.enter() else { return Vec::new() };
            let lines = entered.followed.lines(only);
            if lines.len() <= held.capacity() {
                // Their paths are empty, so this allocates nothing.
                held.extend_from_slice(&lines);
                break;
            }
            let more = lines.len() * 2;
            drop(lines);
            drop(entered);
            held.reserve(more);
        }
        for line in &mut held {
            // A group with outstanding charges keeps its row.
            line.path = follow::path_of(self.table(), line.group);
        }
        held.sort_by(|a, b| b.units.cmp(&a.units).then_with(|| a.path.cmp(&b.path)));
        held
    }
}
