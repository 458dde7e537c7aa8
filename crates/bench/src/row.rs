//! The results of a suite: one row per case, mode and number of threads.

use crate::measure::harness::Rounds;
use crate::measure::stats::Summary;
use serde::{Deserialize, Serialize};

/// One figure. As JSON it is one line, with these names in this order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub suite: String,
    pub case: String,
    /// The way in which the library of the same process updated its per-CPU memory: `rseq` or `fallback`. Rows of other
    /// structures carry the mode that they were interleaved with.
    pub mode: String,
    pub threads: usize,
    /// Whether there were more threads than CPUs.
    pub oversubscribed: bool,
    /// The median round, averaged over the threads; so are `min` and `max`.
    pub ns_per_op: f64,
    pub min: f64,
    pub max: f64,
    pub runs: usize,
    /// The part of the time for which the threads waited while other programs had their CPUs. The figures above do not
    /// contain it, unless oversubscribed; a large part makes them noisy nevertheless.
    pub waited: f64,
    /// The cost of moving a cache line between the first two CPUs: the median over all rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transfer_ns: Option<f64>,
    /// The median of the costs before the case's rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transfer_ns_before: Option<f64>,
    /// The median of the costs after the case's rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transfer_ns_after: Option<f64>,
    /// For a charge held by a guard: its cost relative to the same units without a guard, at the same depth in the same
    /// run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub times_units: Option<f64>,
    /// For a charge in a ledger with an observer in another process: its cost relative to one in a ledger without, in
    /// the same run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub times_unwatched: Option<f64>,
    /// The added cost in the same run. For an allocator: of a block beyond the allocator beneath. For a task with a
    /// group: beyond the same without one. For a program under `ledgerline run`: beyond the plain one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub added_ns: Option<f64>,
    /// For a program under `ledgerline run`: the quartiles of its added cost, over the pairs of rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub added_quartiles: Option<[f64; 2]>,
    /// For a reading: the number of CPUs that were added up, and the cost per CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u32>,
    /// The cost per CPU of `cpus`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ns_per_cpu: Option<f64>,
    /// For a counter with a threshold: the threshold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold: Option<u32>,
    /// The source document's figure for the same threshold: cycles per allocation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published_cycles: Option<u64>,
    /// The source document's number of allocations of all its threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published_allocations: Option<u64>,
    /// The figures of a way to count resident pages.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub rss: Option<RssFigures>,
    /// For a case about memory: the number of groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups: Option<u64>,
    /// For a case about memory: the time to make them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// For a case about memory: the growth of the process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resident_bytes: Option<u64>,
}

/// A design's count of the pages of many sleeping threads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RssFigures {
    pub sleepers: u64,
    pub shown_pages: i64,
    pub counted_pages: i64,
    /// The growth of the process, as the kernel adds it up page by page.
    pub truth_pages: Option<i64>,
    /// Shown less counted.
    pub error_pages: i64,
    /// The most pages by which it may be wrong.
    pub bound_pages: i64,
    pub read_ns: f64,
    pub memory_bytes: u64,
    /// Updates per write of a line that other CPUs write; null without such writes.
    pub updates_per_miss: Option<f64>,
}

/// The common fields of the rows of one pass.
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

/// Rounds to three decimals: a round cannot resolve less than a picosecond.
pub fn thousandths(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// The rows that a row may be compared with.
#[derive(Clone, Copy)]
pub struct Rows<'a>(pub &'a [Row]);

impl Rows<'_> {
    /// Returns the figure of another case in the same mode with as many threads.
    pub fn beside(self, row: &Row, case: &str) -> Option<f64> {
        self.find(case, &row.mode, row.threads)
    }

    /// Returns the cost of a row relative to another case beside it.
    pub fn times(self, row: &Row, case: &str) -> Option<f64> {
        Some(row.ns_per_op / self.beside(row, case)?)
    }

    /// Returns, in words, the cost of a row of several threads relative to the same case on one thread.
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
