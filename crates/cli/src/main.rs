//! The `ledgerline` command: programs under an account, and what the laboratory measures.
//!
//! This file parses the command line and hands over. Each subcommand lives in a module of its own, and the
//! laboratory's (`bench`, `reproduce`, `calibrate`) in its crates.

mod carried;
mod completions;
mod doctor;
mod fleet;
mod layout;
mod man;
mod record;
mod report;
mod run;
mod serve;
mod set;
mod show;
mod steered;
mod top;

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, Parser, Subcommand};
use ledgerline_bench as bench;
use ledgerline_experiments as reproduce;
use ledgerline_measure::calibrate;
use ledgerline_terminal::output::printable;

/// Letters of a word of the command line that an error quotes.
const QUOTED: usize = 100;

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
    #[command(long_about = top::LONG_ABOUT, after_help = top::after_help())]
    Top(top::TopArgs),
    /// Serve ledgers that run: a page, OpenMetrics, JSON
    #[command(long_about = serve::LONG_ABOUT)]
    Serve(serve::ServeArgs),
    /// Record what a ledger of somebody else holds over time
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
    /// Where the fields of types fall on cache lines, what that costs, and what costs less
    #[command(subcommand)]
    Layout(layout::LayoutCommand),
    /// Measure the library on this machine
    Bench(bench::BenchArgs),
    /// The experiments this project starts from: published, predicted, measured here
    #[command(after_help = reproduce::HELP)]
    Reproduce(reproduce::ReproduceArgs),
    /// Measure this machine's cache lines, atomics and locks, and write a machine file
    #[command(long_about = calibrate::LONG_ABOUT)]
    Calibrate(calibrate::CalibrateArgs),
    /// Write the pages of the manual
    #[command(long_about = man::LONG_ABOUT)]
    Man(man::ManArgs),
    /// Print a script that has a shell complete subcommands and options
    #[command(long_about = completions::LONG_ABOUT)]
    Completions(completions::CompletionsArgs),
}

fn main() -> ExitCode {
    if let Some(code) = layout::as_compiler() {
        return code;
    }
    let cli = Cli::try_parse().unwrap_or_else(|error| tamed(error).exit());
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
        Some(Command::Layout(command)) => layout::main(&command),
        Some(Command::Bench(args)) => bench::main(&args),
        Some(Command::Reproduce(args)) => reproduce::main(&args),
        Some(Command::Calibrate(args)) => calibrate::main(&args),
        Some(Command::Man(args)) => man::main(&args, Cli::command()),
        Some(Command::Completions(args)) => completions::main(&args, Cli::command()),
        None => match Cli::command().print_help() {
            Ok(()) => ExitCode::SUCCESS,
            // Nobody reads the help: there is nobody to tell, either.
            Err(_) => ExitCode::FAILURE,
        },
    }
}

/// An error that quotes the command line in a few words, none of which steers the terminal.
fn tamed(mut error: clap::Error) -> clap::Error {
    let quoted = |(kind, value): (ContextKind, &ContextValue)| match value {
        ContextValue::String(word) => Some((kind, word.clone())),
        _ => None,
    };
    for (kind, word) in error.context().filter_map(quoted).collect::<Vec<_>>() {
        let mut words = printable(&word);
        if words.chars().count() > QUOTED {
            words = words.chars().take(QUOTED - 3).chain("...".chars()).collect();
        }
        if words != word {
            error.insert(kind, ContextValue::String(words));
            // The advice quotes the word, too.
            error.remove(ContextKind::Suggested);
        }
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn an_error_quotes_no_more_than_a_few_plain_letters() {
        for word in ["x".repeat(10_000), "\u{1b}[31m\n\u{202e}".to_owned()] {
            let arguments: [&[&str]; 5] = [
                &[&word],
                &["run", &format!("--{word}"), "ls"],
                &["bench", "charge", "--runs", &word],
                &["reproduce", &word],
                &["layout", &word],
            ];
            for arguments in arguments {
                let Err(error) = Cli::try_parse_from([&["ledgerline"], arguments].concat()) else {
                    panic!("{arguments:?} was accepted")
                };
                let told = tamed(error).to_string();
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
