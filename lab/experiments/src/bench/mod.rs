//! `ledgerline-lab bench`: measures older designs of counting beside ours.
//!
//! The suites about the cost of the library are those of `ledgerline bench`, whose harness this uses.

mod numa;
mod rss;

use clap::{Args, Subcommand};
use ledgerline_bench::options::{SuiteArgs, count, one_of};
use ledgerline_bench::run;
use std::process::ExitCode;

/// Most sleeping threads.
const SLEEPERS_MOST: u64 = 1_000_000;

/// What to measure, and how.
#[derive(Args, Debug)]
pub struct BenchArgs {
    #[command(subcommand)]
    suite: Suites,
}

#[derive(Subcommand, Debug)]
enum Suites {
    /// NUMA statistics: a sweep of thresholds, beside what the kernel's commit reported
    #[command(after_help = numa::NUMA.help, mut_arg("cases", one_of(numa::NUMA.cases)))]
    Numa(SuiteArgs),
    /// Resident pages: many threads counted four ways, beside what the kernel says
    #[command(after_help = rss::RSS.help, mut_arg("cases", one_of(rss::RSS.cases)))]
    Rss(RssArgs),
}

/// The options of the suite `rss`.
#[derive(Args, Clone, Debug)]
struct RssArgs {
    #[command(flatten)]
    suite: SuiteArgs,

    /// Threads that touch 128 KiB and sleep; with --quick: 200
    #[arg(long, value_name = "N", default_value = "10000", value_parser = count(SLEEPERS_MOST))]
    #[arg(default_value_if("quick", "true", "200"))]
    sleepers: usize,
}

/// Runs the suite and prints its figures.
///
/// The exit status is 0, or 1 when something could not be measured.
pub fn main(args: &BenchArgs) -> ExitCode {
    match &args.suite {
        Suites::Numa(args) => run(&numa::NUMA, args, 0),
        Suites::Rss(args) => run(&rss::RSS, &args.suite, args.sleepers),
    }
}

/// Returns the names of a suite's cases, in the order of the report; none if there is no such suite.
pub fn cases(suite: &str) -> &'static [&'static str] {
    [&numa::NUMA, &rss::RSS]
        .iter()
        .find(|found| found.name == suite)
        .map_or(&[], |found| found.cases)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_explains_every_case_and_no_other() {
        // The ends of the sweep are enough.
        ledgerline_bench::check_help(&numa::NUMA, &["threshold_32", "threshold_65533", "none"]);
        ledgerline_bench::check_help(&rss::RSS, rss::RSS.cases);
    }
}
