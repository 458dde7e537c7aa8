//! What a suite reports: one row a case, mode and number of threads.

use crate::measure::harness::Rounds;
use crate::measure::stats::Summary;
use serde::{Deserialize, Serialize};

/// One figure. As JSON it is one line, with these names in this order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub suite: String,
    pub case: String,
    /// `rseq` or `fallback`: how the library of the same process updated its per-CPU memory. Rows
    /// of other structures carry the mode that they were interleaved with.
    pub mode: String,
    pub threads: usize,
    /// More threads than CPUs.
    pub oversubscribed: bool,
    /// Median round, averaged over the threads; so are `min` and `max`.
    pub ns_per_op: f64,
    pub min: f64,
    pub max: f64,
    pub runs: usize,
    /// The part of the time for which the threads waited while others had their CPUs. The figures above do not
    /// contain it, unless oversubscribed; a large part makes them noisy all the same.
    pub waited: f64,
    /// What moving a cache line between the first two CPUs took: median over all rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transfer_ns: Option<f64>,
    /// The median of those measured before the case's rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transfer_ns_before: Option<f64>,
    /// The median of those measured after the case's rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transfer_ns_after: Option<f64>,
    /// For a charge held by a guard: how many times as long it takes as the same units without, at the
    /// same depth in the same run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub times_units: Option<f64>,
    /// For a charge in a ledger that another process looks at: how many times as long it takes as in one that nobody
    /// looks at, in the same run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub times_unwatched: Option<f64>,
    /// For an allocator: what a block takes more than from the one beneath; for a task with a group: what it takes more
    /// than the same without one; for a program under `ledgerline run`: what it takes more than plain. In the same run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub added_ns: Option<f64>,
    /// For a program under `ledgerline run`: the quartiles of what it takes more, over the pairs of rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub added_quartiles: Option<[f64; 2]>,
    /// For a reading: how many CPUs were added up, and what each took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u32>,
    /// See `cpus`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ns_per_cpu: Option<f64>,
    /// For a counter with a threshold: that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold: Option<u32>,
    /// What the source document reported for the same threshold: cycles an allocation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published_cycles: Option<u64>,
    /// And allocations of all its threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published_allocations: Option<u64>,
    /// For a way to count resident pages.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub rss: Option<RssFigures>,
    /// For a case about memory: how many groups there were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups: Option<u64>,
    /// For a case about memory: how long it took to make them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// For a case about memory: what the process grew by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resident_bytes: Option<u64>,
}

/// What a design showed of the pages of many sleeping threads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RssFigures {
    pub sleepers: u64,
    pub shown_pages: i64,
    pub counted_pages: i64,
    /// What the process grew by, as the kernel adds it up page by page.
    pub truth_pages: Option<i64>,
    /// Shown less counted.
    pub error_pages: i64,
    /// Most pages by which it may be wrong.
    pub bound_pages: i64,
    pub read_ns: f64,
    pub memory_bytes: u64,
    /// Updates for each write of a line that other CPUs write; null where there was none.
    pub updates_per_miss: Option<f64>,
}

/// What rows of one pass have in common.
#[derive(Clone, Copy, Debug)]
pub struct Pass<'a> {
    pub suite: &'a str,
    pub mode: &'a str,
    pub threads: usize,
    pub runs: usize,
    pub oversubscribed: bool,
}

impl Row {
    pub fn new(pass: Pass<'_>, measured: &Rounds) -> Row {
        let Rounds { name, threads, transfer, waited, .. } = measured;
        let ns_per_op = Summary::of_threads(threads);
        Row {
            suite: pass.suite.to_owned(),
            case: (*name).to_owned(),
            mode: pass.mode.to_owned(),
            threads: pass.threads,
            oversubscribed: pass.oversubscribed,
            ns_per_op: thousandths(ns_per_op.median),
            min: thousandths(ns_per_op.min),
            max: thousandths(ns_per_op.max),
            runs: pass.runs,
            waited: thousandths(*waited),
            transfer_ns: transfer.map(|t| thousandths(t.median)),
            transfer_ns_before: transfer.map(|t| thousandths(t.before)),
            transfer_ns_after: transfer.map(|t| thousandths(t.after)),
            ..Row::default()
        }
    }
}

/// Rounded to three decimals: a picosecond is beyond what a round can tell.
pub fn thousandths(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// The rows that a row may be compared with.
#[derive(Clone, Copy)]
pub struct Rows<'a>(pub &'a [Row]);

impl Rows<'_> {
    /// The figure of another case in the same mode with as many threads.
    pub fn beside(self, row: &Row, case: &str) -> Option<f64> {
        self.find(case, &row.mode, row.threads)
    }

    /// How many times as long a row takes as another case beside it.
    pub fn times(self, row: &Row, case: &str) -> Option<f64> {
        Some(row.ns_per_op / self.beside(row, case)?)
    }

    /// How many times as long a row of several threads takes as the same case on one thread, in words.
    pub fn times_one_thread(self, row: &Row) -> Option<String> {
        let alone = self.find(&row.case, &row.mode, 1).filter(|_| row.threads != 1)?;
        Some(format!("{:.2}x one thread", row.ns_per_op / alone))
    }

    fn find(self, case: &str, mode: &str, threads: usize) -> Option<f64> {
        self.0
            .iter()
            .find(|row| row.case == case && row.mode == mode && row.threads == threads)
            .map(|row| row.ns_per_op)
    }
}
