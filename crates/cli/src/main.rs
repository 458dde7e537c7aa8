//! The `ledgerline` command: programs under an account, and ledgers seen from outside.
//!
//! This file parses the command line and dispatches. Each subcommand is in its own module, `bench` in its crate. The
//! laboratory's subcommands (`layout`, `calibrate`, `reproduce`) are passed to the command `ledgerline-lab`.

mod carried;
mod completions;
mod doctor;
mod fleet;
mod lab;
mod man;
mod record;
mod report;
mod run;
mod serve;
mod set;
mod show;
mod sizes;
mod steered;
mod top;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use ledgerline_bench as bench;
use ledgerline_view::manual::tame;

#[derive(Parser)]
#[command(
    name = "ledgerline",
    version,
    about = "Memory cgroups inside your process: account for memory, and limit it, without root",
    max_term_width = 100,
    after_help = "Example:\n  ledgerline run --max 512M -- python3 job.py\n\n\
                  `ledgerline help run` has more."
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Run a program and print who held its memory
    #[command(long_about = run::LONG_ABOUT)]
    Run(run::RunArgs),
    /// Print what a ledger or a table of counters says now
    #[command(long_about = show::LONG_ABOUT)]
    Show(show::ShowArgs),
    /// Change limits of a program that runs
    #[command(long_about = set::LONG_ABOUT)]
    Set(set::SetArgs),
    /// Watch a ledger on the terminal: who holds what, how fast it grows, who is refused
    #[command(long_about = top::LONG_ABOUT, after_long_help = top::after_help())]
    Top(top::TopArgs),
    /// Serve ledgers that run: a page, OpenMetrics, JSON
    #[command(long_about = serve::LONG_ABOUT)]
    Serve(serve::ServeArgs),
    /// Record what the ledger of another program holds over time
    #[command(long_about = record::LONG_ABOUT)]
    Record(record::RecordArgs),
    /// Say who held what when, by the recording of a run
    #[command(long_about = report::LONG_ABOUT)]
    Report(report::ReportArgs),
    /// Operate budgets that hold on many machines
    #[command(subcommand, long_about = fleet::LONG_ABOUT)]
    Fleet(fleet::FleetCommand),
    /// Say what this machine and this environment offer, and what to change
    #[command(long_about = doctor::LONG_ABOUT)]
    Doctor(doctor::DoctorArgs),
    /// Where the fields of types fall on cache lines, what that costs, and what costs less (ledgerline-lab)
    #[command(disable_help_flag = true)]
    Layout(lab::LabArgs),
    /// Measure the library on this machine
    Bench(bench::BenchArgs),
    /// The experiments this project starts from: published, predicted, measured here (ledgerline-lab)
    #[command(disable_help_flag = true)]
    Reproduce(lab::LabArgs),
    /// Measure this machine's cache lines, atomics and locks, and write a machine file (ledgerline-lab)
    #[command(disable_help_flag = true)]
    Calibrate(lab::LabArgs),
    /// Write the pages of the manual
    #[command(long_about = man::LONG_ABOUT)]
    Man(man::ManArgs),
    /// Print a script that has a shell complete subcommands and options
    #[command(long_about = completions::LONG_ABOUT)]
    Completions(completions::CompletionsArgs),
}

fn main() -> ExitCode {
    if let Some(subcommand) = lab::asked_for_help() {
        return lab::hand_over(subcommand);
    }
    let cli = Cli::try_parse().unwrap_or_else(|error| tame(error).exit());
    match cli.command {
        Some(Command::Run(args)) => run::main(&args),
        Some(Command::Show(args)) => show::main(&args),
        Some(Command::Set(args)) => set::main(&args),
        Some(Command::Top(args)) => top::main(&args),
        Some(Command::Serve(args)) => serve::main(&args),
        Some(Command::Record(args)) => record::main(&args),
        Some(Command::Report(args)) => report::main(&args),
        Some(Command::Fleet(command)) => fleet::main(&command),
        Some(Command::Doctor(args)) => doctor::main(&args),
        Some(Command::Layout(_)) => lab::hand_over("layout"),
        Some(Command::Bench(args)) if args.is_elsewhere() => lab::hand_over("bench"),
        Some(Command::Bench(args)) => bench::main(&args),
        Some(Command::Reproduce(_)) => lab::hand_over("reproduce"),
        Some(Command::Calibrate(_)) => lab::hand_over("calibrate"),
        Some(Command::Man(args)) => man::main(&args, with_manual(Cli::command())),
        Some(Command::Completions(args)) => completions::main(&args, Cli::command()),
        None => match Cli::command().print_help() {
            Ok(()) => ExitCode::SUCCESS,
            // The reader of the help is gone, and so is the reader of an error.
            Err(_) => ExitCode::FAILURE,
        },
    }
}

/// Returns the definitions with the additions of the manual to --help.
fn with_manual(command: clap::Command) -> clap::Command {
    command.mut_subcommand("run", |run| run.long_about(run::MANUAL))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_short_help_of_each_subcommand_is_one_screen() {
        let mut command = Cli::command().term_width(100);
        command.build();
        for sub in command.get_subcommands_mut() {
            let text = sub.render_help().to_string();
            assert!(text.lines().count() <= 40, "{}: {text}", sub.get_name());
        }
        let run = command.find_subcommand_mut("run").expect("there is one");
        let text = run.render_help().to_string();
        assert!(text.lines().count() <= 30, "{text}");
    }

    #[test]
    fn an_error_quotes_no_more_than_a_few_plain_letters() {
        for word in ["x".repeat(10_000), "\u{1b}[31m\n\u{202e}".to_owned()] {
            let arguments: [&[&str]; 5] = [
                &[&word],
                &["run", &format!("--{word}"), "ls"],
                &["bench", "charge", "--runs", &word],
                &["completions", &word],
                &["fleet", &word],
            ];
            for arguments in arguments {
                let Err(error) = Cli::try_parse_from([&["ledgerline"], arguments].concat()) else {
                    panic!("{arguments:?} was accepted")
                };
                let told = tame(error).to_string();
                assert!(told.len() < 500, "{told:.300}");
                assert!(!told.contains(['\u{1b}', '\u{202e}']), "{told:?}");
            }
        }
    }

    #[test]
    fn what_follows_the_command_belongs_to_it() {
        let parse = |line: &[&str]| match Cli::try_parse_from(line).map(|cli| cli.command) {
            Ok(Some(Command::Run(args))) => Ok(args),
            Ok(_) => panic!("not the run subcommand"),
            Err(error) => Err(error),
        };
        for line in [
            &["ledgerline", "run", "--max", "1M", "ls", "--max", "-l", "--json"][..],
            &["ledgerline", "run", "--max", "1M", "--", "ls", "--max", "-l", "--json"],
        ] {
            let args = parse(line).expect("a good line");
            assert_eq!(args.max, "1M");
            assert_eq!(args.command, ["ls", "--max", "-l", "--json"]);
            assert_eq!(args.json, None);
        }
        assert!(parse(&["ledgerline", "run", "--bogus", "ls"]).is_err());
        assert!(parse(&["ledgerline", "run"]).is_err());
    }
}
