//! The harness of all suites: a pass for each number of threads, in which the cases are timed in rounds.

use super::options::Options;
use super::row::{Pass, Row};
use crate::measure::harness::{self, Body, Case, Plan, Rounds, Step};
use ledgerline_view::terminal::progress::Progress;
use std::error::Error;
use std::fmt::Display;

/// A prepared case, or the reason why it could not be made.
pub type Made<T> = Result<T, Box<dyn Error>>;

/// The timed work of a case: operations are requested in multiples of the first.
pub type Work<'a> = (u64, Body<'a>);

/// A suite in this process, in its mode.
pub struct Run<'a> {
    pub options: &'a Options,
    suite: &'static str,
    mode: String,
    progress: Progress,
}

/// One pass: a number of threads times the cases.
pub struct Turn<'a> {
    pub plan: &'a Plan,
    cases: &'a [&'static str],
    progress: &'a (dyn Fn(Step) + Sync),
}

impl<'a> Run<'a> {
    pub fn new(suite: &'static str, options: &'a Options, progress: Progress) -> Run<'a> {
        let mode = ledgerline::percpu::detect().to_string();
        Run { options, suite, mode, progress }
    }

    /// Shows the progress.
    pub fn tell(&self, what: impl Display) {
        self.progress.show(format_args!("{}, {what}", self.mode));
    }

    /// Returns the chosen cases without one that is not timed in rounds, and whether that one was chosen.
    pub fn apart(&self, case: &str) -> (Vec<&'static str>, bool) {
        let chosen = &self.options.cases;
        let others: Vec<_> = chosen.iter().copied().filter(|&name| name != case).collect();
        let apart = others.len() < chosen.len();
        (others, apart)
    }

    /// Times the cases with each of these numbers of threads.
    pub fn in_rounds(
        &self,
        threads: &[usize],
        cases: &[&'static str],
        time: impl Fn(&Turn<'_>) -> Made<Vec<Rounds>>,
    ) -> Result<Vec<Row>, String> {
        let options = self.options;
        let mut rows = Vec::new();
        if cases.is_empty() {
            return Ok(rows);
        }
        for &threads in threads {
            let plan = Plan {
                threads,
                runs: options.runs,
                round: options.round(),
                cpus: options.cpus.clone(),
            };
            let plural = if threads == 1 { "" } else { "s" };
            let what = format!("{threads} thread{plural}");
            let progress = |step| self.tell(format_args!("{what}: {step}"));
            let measured = time(&Turn { plan: &plan, cases, progress: &progress })
                .map_err(|error| format!("{}, {what}: {error}", self.mode))?;
            let pass = self.pass(threads, plan.runs);
            rows.extend(measured.iter().map(|measured| Row::new(pass, measured)));
        }
        Ok(rows)
    }

    /// Returns the common fields of the rows of one pass.
    pub fn pass(&self, threads: usize, runs: usize) -> Pass<'_> {
        let oversubscribed = threads > self.options.cpus.len();
        Pass { suite: self.suite, mode: &self.mode, threads, runs, oversubscribed }
    }
}

impl Turn<'_> {
    /// Times all cases. `make` gets a case's index and its entry in the suite's table.
    pub fn time<'c, T: Copy>(
        &self,
        table: &[(&'static str, T)],
        mut make: impl FnMut(usize, T) -> Made<Work<'c>>,
    ) -> Made<Vec<Rounds>> {
        let case = |(at, &name): (usize, &&'static str)| -> Made<Case<'c>> {
            let of_case = of(table, name).expect("options name cases of the table");
            let (granule, body) = make(at, of_case)?;
            Ok(Case { name, granule, body })
        };
        let cases = self.cases.iter().enumerate().map(case).collect::<Made<Vec<_>>>()?;
        Ok(harness::rounds(&cases, self.plan, self.progress))
    }
}

/// Returns the entry of a case in a table.
pub fn of<T: Copy>(table: &[(&'static str, T)], case: &str) -> Option<T> {
    table.iter().find(|(name, _)| *name == case).map(|&(_, of)| of)
}

/// Inserts a row behind the other rows of as many threads, if there are any.
pub fn insert(rows: &mut Vec<Row>, row: Row) {
    let last = rows.iter().rposition(|other| other.threads == row.threads);
    rows.insert(last.map_or(rows.len(), |last| last + 1), row);
}
