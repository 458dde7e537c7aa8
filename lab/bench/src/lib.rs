//! `ledgerline bench`: what the library costs on this machine.
//!
//! | room       | what it holds                                                          |
//! |------------|------------------------------------------------------------------------|
//! | `options`  | what the user asked for, checked                                       |
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

use self::options::Options;
use self::suite::Suite;
use clap::{Args, Subcommand};
use ledgerline_measure::machine;
use ledgerline_terminal::output;
use ledgerline_terminal::progress::Progress;
use std::io::{IsTerminal, stdout};
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
    #[command(after_help = charge::HELP)]
    Charge(SuiteArgs),
    /// Counting: differences of each width, beside atomics, thread-locals and LongAdder
    #[command(after_help = stat::HELP)]
    Stat(SuiteArgs),
    /// Reading: by the number of CPUs, and by how much has changed
    #[command(after_help = read::HELP)]
    Read(SuiteArgs),
    /// NUMA statistics: a sweep of thresholds, beside what the kernel's commit reported
    #[command(after_help = numa::HELP)]
    Numa(SuiteArgs),
    /// Resident pages: many threads counted four ways, beside what the kernel says
    #[command(after_help = rss::HELP)]
    Rss(RssArgs),
}

// The values are texts that `options` checks, so that a bad one is reported in one line.
#[derive(Args, Debug)]
struct SuiteArgs {
    /// Numbers of threads, separated by commas [default: 1, 2 and as many as CPUs]
    #[arg(long, value_name = "LIST")]
    threads: Option<String>,

    /// Only these cases, separated by commas
    #[arg(long, value_name = "LIST")]
    cases: Option<String>,

    /// Rounds to take the median of [default: 21]
    #[arg(long, value_name = "N")]
    runs: Option<String>,

    /// How per-CPU memory is updated: rseq, fallback or both
    #[arg(long, value_name = "MODE", default_value = "both")]
    mode: String,

    /// Print one JSON object a line instead of a table
    #[arg(long)]
    json: bool,

    /// Short rounds and fewer groups: to see that it works, not how fast
    #[arg(long)]
    quick: bool,

    /// Measure the one mode in this process: how a run starts itself for each mode
    #[arg(long, hide = true)]
    in_this_process: bool,
}

#[derive(Args, Debug)]
struct RssArgs {
    #[command(flatten)]
    suite: SuiteArgs,

    /// Threads that touch 128 KiB and sleep [default: 10000; with --quick: 200]
    #[arg(long, value_name = "N")]
    sleepers: Option<String>,
}

/// Runs the suite and prints its figures.
///
/// The exit status is 0, 1 when something could not be measured, or 2 for a bad command line.
pub fn main(args: BenchArgs) -> ExitCode {
    let sleepers = match &args.suite {
        Suites::Rss(args) => args.sleepers.as_deref(),
        _ => None,
    };
    let (suite, args) = match &args.suite {
        Suites::Charge(args) => (&charge::CHARGE, args),
        Suites::Stat(args) => (&stat::STAT, args),
        Suites::Read(args) => (&read::READ, args),
        Suites::Numa(args) => (&numa::NUMA, args),
        Suites::Rss(args) => (&rss::RSS, &args.suite),
    };
    let options = match Options::check(args, sleepers, suite.cases) {
        Ok(options) => options,
        Err(error) => return fail(&error, 2),
    };
    if args.in_this_process
        && let Err(status) = modes::check_own(options.modes)
    {
        return status;
    }
    match run(suite, &options, args.in_this_process) {
        Ok(text) => print(&text),
        Err(error) => fail(&error, 1),
    }
}

fn run(suite: &Suite, options: &Options, in_this_process: bool) -> Result<String, String> {
    if in_this_process {
        let rows = (suite.measure)(options, &Progress::on_stderr())?;
        return report::json(&rows);
    }
    let rows = modes::measure(suite, options)?;
    if options.json {
        report::json(&rows)
    } else {
        let machine = machine::describe(options.cpus.len());
        Ok(report::table(&machine, &rows, suite.remark, wants_colour()))
    }
}

/// Colour is for a terminal whose user did not decline it (no-color.org).
fn wants_colour() -> bool {
    stdout().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

fn print(text: &str) -> ExitCode {
    match output::print(text.as_bytes()) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => fail(&format!("cannot write the figures: {error}"), 1),
    }
}

fn fail(error: &str, status: u8) -> ExitCode {
    eprintln!("ledgerline: bench: {error}");
    ExitCode::from(status)
}
