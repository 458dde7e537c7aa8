//! `ledgerline bench`: what the library costs on this machine.
//!
//! | room       | what it holds                                                          |
//! |------------|------------------------------------------------------------------------|
//! | `options`  | what the user asked for                                                |
//! | `suite`    | a suite as the command sees it: `charge`, `stat`, `read`, `numa`, `rss`|
//! | `modes`    | one process a mode                                                     |
//! | `rounds`   | a pass for each number of threads                                      |
//! | `cases`    | the loops of `charge`, `guards` those that hold guards; `peers`, `jvm`: what they are compared with |
//! | `row`      | one figure; `report`: JSON lines and the table                         |
//!
//! What it measures with is in `ledgerline_measure`; older designs of counting pages are in
//! `ledgerline_experiments::history`.
//!
//! A further suite is a file like `charge.rs` with a `Suite`, and a variant of the
//! subcommand below.

mod cases;
mod charge;
mod guards;
mod jvm;
mod modes;
mod numa;
mod options;
mod peers;
mod read;
mod report;
mod rounds;
mod row;
mod rss;
mod stat;
mod suite;

use self::options::{Options, RssArgs, SuiteArgs, one_of};
use self::suite::Suite;
use clap::{Args, Subcommand};
use ledgerline_measure::machine;
use ledgerline_terminal::output;
use ledgerline_terminal::progress::Progress;
use ledgerline_terminal::style::Style;
use std::process::ExitCode;

/// What to measure, and how.
#[derive(Args, Debug)]
pub struct BenchArgs {
    #[command(subcommand)]
    suite: Suites,
}

#[derive(Subcommand, Debug)]
enum Suites {
    /// Charging and uncharging: per-CPU updates, trees, many groups, and shared counters beside
    #[command(after_help = charge::HELP, mut_arg("cases", one_of(charge::CHARGE.cases)))]
    Charge(SuiteArgs),
    /// Counting: differences of each width, beside atomics, thread-locals and LongAdder
    #[command(after_help = stat::HELP, mut_arg("cases", one_of(stat::STAT.cases)))]
    Stat(SuiteArgs),
    /// Reading: by the number of CPUs, and by how much has changed
    #[command(after_help = read::HELP, mut_arg("cases", one_of(read::READ.cases)))]
    Read(SuiteArgs),
    /// NUMA statistics: a sweep of thresholds, beside what the kernel's commit reported
    #[command(after_help = numa::HELP, mut_arg("cases", one_of(numa::NUMA.cases)))]
    Numa(SuiteArgs),
    /// Resident pages: many threads counted four ways, beside what the kernel says
    #[command(after_help = rss::HELP, mut_arg("cases", one_of(rss::RSS.cases)))]
    Rss(RssArgs),
}

/// Runs the suite and prints its figures.
///
/// The exit status is 0, or 1 when something could not be measured.
pub fn main(args: &BenchArgs) -> ExitCode {
    let (suite, args, sleepers) = match &args.suite {
        Suites::Charge(args) => (&charge::CHARGE, args, 0),
        Suites::Stat(args) => (&stat::STAT, args, 0),
        Suites::Read(args) => (&read::READ, args, 0),
        Suites::Numa(args) => (&numa::NUMA, args, 0),
        Suites::Rss(args) => (&rss::RSS, &args.suite, args.sleepers),
    };
    if args.in_this_process
        && let Err(status) = modes::check_own(args.mode)
    {
        return status;
    }
    match run(suite, args, sleepers) {
        Ok(text) => print(&text),
        Err(error) => fail(&error),
    }
}

fn run(suite: &Suite, args: &SuiteArgs, sleepers: usize) -> Result<String, String> {
    let options = Options::of(args, sleepers, suite.cases)?;
    if args.in_this_process {
        let rows = (suite.measure)(&options, &Progress::on_stderr())?;
        return report::json(&rows);
    }
    let rows = modes::measure(suite, args.mode, &options)?;
    if args.json {
        report::json(&rows)
    } else {
        let machine = machine::describe(options.cpus.len());
        Ok(report::table(&machine, &rows, suite.remark, Style::of_stdout()))
    }
}

fn print(text: &str) -> ExitCode {
    match output::print(text.as_bytes()) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => fail(&format!("cannot write the figures: {error}")),
    }
}

fn fail(error: &str) -> ExitCode {
    eprintln!("ledgerline: bench: {error}");
    ExitCode::FAILURE
}
