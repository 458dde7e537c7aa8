//! `ledgerline bench`: what the library costs on this machine.
//!
//! | module     | what it holds                                                          |
//! |------------|------------------------------------------------------------------------|
//! | `options`  | what the user asked for                                                |
//! | `suite`    | a suite as the command sees it: `charge`, `stat`, `read`, `numa`, `rss`, `alloc`, `task`, `quota`, `run` |
//! | `modes`    | one process a mode                                                     |
//! | `rounds`   | the harness of all suites: a pass for each number of threads           |
//! | `cases`    | the cases of `charge`; `guards`: their loops that hold guards          |
//! | `loops`    | what loops of several suites have in common                            |
//! | `under_run` | the suite `run`: `program`s of their own, plain and under `ledgerline run` by turns |
//! | `watched`  | the cases of `charge` in a ledger at which another process looks       |
//! | `peers`    | what is measured for comparison; `jvm`: in a Java virtual machine; `allocators`: in `alloc` |
//! | `row`      | one figure; `report`: JSON lines and the table                         |
//!
//! What it measures with is in `ledgerline_measure`; older designs of counting pages are in
//! `ledgerline_experiments::history`.
//!
//! A further suite is a file like `charge.rs` with a `Suite`, and a variant of the
//! subcommand below.

mod alloc;
mod allocators;
mod cases;
mod charge;
mod guards;
mod jvm;
mod loops;
mod modes;
mod numa;
mod options;
mod peers;
mod program;
mod quota;
mod read;
mod report;
mod rounds;
mod row;
mod rss;
mod stat;
mod suite;
mod task;
mod under_run;
mod watched;

use self::options::{Options, RssArgs, RunArgs, SuiteArgs, one_of};
use self::rounds::Run;
use self::row::Row;
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
    #[command(after_help = charge::CHARGE.help, mut_arg("cases", one_of(charge::CHARGE.cases)))]
    Charge(SuiteArgs),
    /// Counting: differences of each width, beside atomics, thread-locals and LongAdder
    #[command(after_help = stat::STAT.help, mut_arg("cases", one_of(stat::STAT.cases)))]
    Stat(SuiteArgs),
    /// Reading: by the number of CPUs, and by how much has changed
    #[command(after_help = read::READ.help, mut_arg("cases", one_of(read::READ.cases)))]
    Read(SuiteArgs),
    /// NUMA statistics: a sweep of thresholds, beside what the kernel's commit reported
    #[command(after_help = numa::NUMA.help, mut_arg("cases", one_of(numa::NUMA.cases)))]
    Numa(SuiteArgs),
    /// Resident pages: many threads counted four ways, beside what the kernel says
    #[command(after_help = rss::RSS.help, mut_arg("cases", one_of(rss::RSS.cases)))]
    Rss(RssArgs),
    /// Allocating: what accounting adds to malloc and free, beside other accounting allocators
    #[command(after_help = alloc::ALLOC.help, mut_arg("cases", one_of(alloc::ALLOC.cases)))]
    Alloc(SuiteArgs),
    /// Tasks: what it adds to a poll that the task has a group
    #[command(after_help = task::TASK.help, mut_arg("cases", one_of(task::TASK.cases)))]
    Task(SuiteArgs),
    /// Quotas: a limit of a whole node in one atomic, beside ours
    #[command(after_help = quota::QUOTA.help, mut_arg("cases", one_of(quota::QUOTA.cases)))]
    Quota(SuiteArgs),
    /// Running: what `ledgerline run` adds to a malloc and its free, and to a program's start
    #[command(after_help = under_run::RUN.help, mut_arg("cases", one_of(under_run::RUN.cases)))]
    Run(RunArgs),
}

static SUITES: [&Suite; 9] = [
    &charge::CHARGE,
    &stat::STAT,
    &read::READ,
    &numa::NUMA,
    &rss::RSS,
    &alloc::ALLOC,
    &task::TASK,
    &quota::QUOTA,
    &under_run::RUN,
];

/// The names of a suite's cases, in the order of the report; none if there is no such suite.
pub fn cases(suite: &str) -> &'static [&'static str] {
    SUITES.iter().find(|found| found.name == suite).map_or(&[], |found| found.cases)
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
        Suites::Task(args) => (&task::TASK, args, 0),
        Suites::Quota(args) => (&quota::QUOTA, args, 0),
        Suites::Alloc(args) => (&alloc::ALLOC, args, 0),
        Suites::Run(args) => return output::finish("bench", run_programs(args)),
    };
    if args.in_this_process
        && let Err(status) = modes::check_own(args.mode)
    {
        return status;
    }
    output::finish("bench", run(suite, args, sleepers))
}

fn run(suite: &Suite, args: &SuiteArgs, sleepers: usize) -> Result<String, String> {
    let options = Options::of(args, sleepers, suite.cases)?;
    if args.in_this_process {
        let run = Run::new(suite.name, &options, Progress::on_stderr());
        return report::json(&(suite.measure)(&run)?);
    }
    show(suite, &modes::measure(suite, args.mode, &options)?, &options, args.json)
}

/// The suite `run`, whose figures are of programs and not of this process; or one of these programs.
fn run_programs(args: &RunArgs) -> Result<String, String> {
    if let Some(work) = args.work {
        return work.measured(args.quick);
    }
    let suite = &under_run::RUN;
    let options = Options::of_programs(args, suite.cases)?;
    let run = Run::new(suite.name, &options, Progress::on_stderr());
    show(suite, &(suite.measure)(&run)?, &options, args.json)
}

fn show(suite: &Suite, rows: &[Row], options: &Options, json: bool) -> Result<String, String> {
    if json {
        report::json(rows)
    } else {
        let machine = machine::describe(options.cpus.len());
        Ok(report::table(&machine, rows, suite.remark, Style::of_stdout()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_explains_every_case_and_no_other() {
        for suite in SUITES {
            let (cases, _) = suite.help.split_once("\n\n").expect("cases come first");
            let explained = cases.lines().filter_map(|line| line.strip_prefix("  "));
            let explained: Vec<&str> = explained
                .filter_map(|line| line.split(' ').next().filter(|name| !name.is_empty()))
                .collect();
            assert!(explained.iter().all(|name| suite.cases.contains(name)), "{explained:?}");
            match suite.name {
                // The ends of the sweep say enough.
                "numa" => assert_eq!(explained, ["threshold_32", "threshold_65533", "none"]),
                _ => assert_eq!(explained, suite.cases, "in the same order"),
            }
        }
    }
}
