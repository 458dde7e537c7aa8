//! `ledgerline bench`: the cost of the library on this machine.
//!
//! | module     | contents                                                               |
//! |------------|------------------------------------------------------------------------|
//! | `options`  | the user's options                                                     |
//! | `suite`    | a suite as the command sees it: `charge`, `stat`, `read`, `alloc`, `task`, `quota`, `run` |
//! | `modes`    | one process per mode                                                   |
//! | `rounds`   | the harness of all suites: a pass for each number of threads           |
//! | `cases`    | the cases of `charge`; `guards`: their loops that hold guards          |
//! | `loops`    | the common parts of several suites' loops                              |
//! | `under_run` | the suite `run`: separate `program`s, plain and under `ledgerline run` in turns |
//! | `watched`  | the cases of `charge` in a ledger that another process looks at        |
//! | `peers`    | designs for comparison; `jvm`: in a Java virtual machine; `allocators`: in `alloc` |
//! | `row`      | one figure; `report`: JSON lines and the table                         |
//! | [`measure`] | rounds of timed work on pinned threads                                 |
//!
//! The laboratory has two further suites, `numa` and `rss`. They use the hidden modules here.
//!
//! A further suite is a file like `charge.rs` with a `Suite`, and a variant of the
//! subcommand below.

mod alloc;
mod allocators;
mod cases;
mod charge;
mod guards;
mod jvm;
#[doc(hidden)]
pub mod loops;
pub mod measure;
mod modes;
#[doc(hidden)]
pub mod options;
mod peers;
mod program;
mod queries;
mod quota;
mod read;
mod report;
#[doc(hidden)]
pub mod rounds;
#[doc(hidden)]
pub mod row;
mod stat;
#[doc(hidden)]
pub mod suite;
mod task;
mod under_run;
mod watched;

use self::options::{Options, RunArgs, SuiteArgs, one_of};
use self::rounds::Run;
use self::row::Row;
use self::suite::Suite;
use crate::measure::machine;
use clap::{Args, Subcommand};
use ledgerline_view::terminal::output;
use ledgerline_view::terminal::progress::Progress;
use ledgerline_view::terminal::style::Style;
use std::ffi::OsString;
use std::process::ExitCode;

/// What to measure, and how.
#[derive(Args, Debug)]
pub struct BenchArgs {
    #[command(subcommand)]
    suite: Suites,
}

/// The words after the name of a suite that the laboratory has.
#[derive(Args, Debug)]
struct Elsewhere {
    /// Options of the suite, which `ledgerline-lab` has
    #[arg(value_name = "ARGS", trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
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
    /// NUMA statistics: a sweep of thresholds, beside what the kernel's commit reported (ledgerline-lab)
    #[command(disable_help_flag = true)]
    Numa(Elsewhere),
    /// Resident pages: many threads counted four ways, beside what the kernel says (ledgerline-lab)
    #[command(disable_help_flag = true)]
    Rss(Elsewhere),
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

static SUITES: [&Suite; 7] = [
    &charge::CHARGE,
    &stat::STAT,
    &read::READ,
    &alloc::ALLOC,
    &task::TASK,
    &quota::QUOTA,
    &under_run::RUN,
];

/// Returns the names of a suite's cases, in the order of the report; none if there is no such suite.
pub fn cases(suite: &str) -> &'static [&'static str] {
    SUITES.iter().find(|found| found.name == suite).map_or(&[], |found| found.cases)
}

impl BenchArgs {
    /// Returns whether the laboratory has the requested suite.
    pub fn is_elsewhere(&self) -> bool {
        matches!(self.suite, Suites::Numa(_) | Suites::Rss(_))
    }
}

/// Runs the suite and prints its figures.
///
/// The exit status is 0, or 1 if something could not be measured.
///
/// # Panics
///
/// Panics if [`BenchArgs::is_elsewhere`].
pub fn main(args: &BenchArgs) -> ExitCode {
    let (suite, args) = match &args.suite {
        Suites::Charge(args) => (&charge::CHARGE, args),
        Suites::Stat(args) => (&stat::STAT, args),
        Suites::Read(args) => (&read::READ, args),
        Suites::Numa(_) | Suites::Rss(_) => unreachable!("the laboratory has this suite"),
        Suites::Task(args) => (&task::TASK, args),
        Suites::Quota(args) => (&quota::QUOTA, args),
        Suites::Alloc(args) => (&alloc::ALLOC, args),
        Suites::Run(args) => return output::finish("bench", run_programs(args)),
    };
    run(suite, args, 0)
}

/// Runs a suite and prints its figures. `sleepers` is for the suite `rss`.
#[doc(hidden)]
pub fn run(suite: &Suite, args: &SuiteArgs, sleepers: usize) -> ExitCode {
    if args.in_this_process
        && let Err(status) = modes::check_own(args.mode)
    {
        return status;
    }
    output::finish("bench", measured(suite, args, sleepers))
}

fn measured(suite: &Suite, args: &SuiteArgs, sleepers: usize) -> Result<String, String> {
    let options = Options::of(args, sleepers, suite.cases)?;
    if args.in_this_process {
        let run = Run::new(suite.name, &options, Progress::on_stderr());
        return report::json(&(suite.measure)(&run)?);
    }
    show(suite, &modes::measure(suite, args.mode, &options)?, &options, args.json)
}

/// Runs the suite `run`, whose figures are of separate programs and not of this process; or one of these programs.
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

/// Checks that a suite's help explains each of its cases and no other, in their order. For tests.
///
/// # Panics
///
/// Panics if it does not.
#[doc(hidden)]
pub fn check_help(suite: &Suite, explained: &[&str]) {
    let (cases, _) = suite.help.split_once("\n\n").expect("cases come first");
    let lines = cases.lines().filter_map(|line| line.strip_prefix("  "));
    let named: Vec<&str> =
        lines.filter_map(|line| line.split(' ').next().filter(|name| !name.is_empty())).collect();
    assert_eq!(named, explained);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_explains_every_case_and_no_other() {
        for suite in SUITES {
            check_help(suite, suite.cases);
        }
    }
}
