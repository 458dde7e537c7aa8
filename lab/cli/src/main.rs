//! The `ledgerline-lab` command: costs of the layout of hot structures, and measurements of machines.
//!
//! This file parses the command line and calls the subcommand. `layout` is part of this crate; the others are crates of
//! their own. `ledgerline layout`, `calibrate` and `reproduce` become this command.

mod carried;
mod completions;
mod layout;
mod man;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use ledgerline_experiments as reproduce;
use ledgerline_experiments::bench;
use ledgerline_measure::calibrate;
use ledgerline_view::manual::tame;

#[derive(Parser)]
#[command(
    name = "ledgerline-lab",
    version,
    about = "What the layout of hot structures costs on many CPUs, and what costs less",
    max_term_width = 100,
    after_help = "Example:\n  ledgerline-lab layout show ./server page_counter\n\n\
                  `ledgerline-lab help layout` has more."
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Where the fields of types fall on cache lines, what that costs, and what costs less
    #[command(subcommand)]
    Layout(layout::LayoutCommand),
    /// Measure older designs of counting beside ours
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
    let cli = Cli::try_parse().unwrap_or_else(|error| tame(error).exit());
    match cli.command {
        Some(Command::Layout(command)) => layout::main(&command),
        Some(Command::Bench(args)) => bench::main(&args),
        Some(Command::Reproduce(args)) => reproduce::main(&args),
        Some(Command::Calibrate(args)) => calibrate::main(&args),
        Some(Command::Man(args)) => man::main(&args, Cli::command()),
        Some(Command::Completions(args)) => completions::main(&args, Cli::command()),
        None => match Cli::command().print_help() {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
    }
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
            let arguments: [&[&str]; 4] = [
                &[&word],
                &["layout", &word],
                &["reproduce", &word],
                &["bench", "rss", "--runs", &word],
            ];
            for arguments in arguments {
                let Err(error) = Cli::try_parse_from([&["ledgerline-lab"], arguments].concat())
                else {
                    panic!("{arguments:?} was accepted")
                };
                let told = tame(error).to_string();
                assert!(told.len() < 500, "{told:.300}");
                assert!(!told.contains(['\u{1b}', '\u{202e}']), "{told:?}");
            }
        }
    }
}
