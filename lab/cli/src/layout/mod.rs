//! `ledgerline layout`: where the fields of types fall on cache lines, what changed between builds, rules that keep a
//! layout, and which threads touch which field.
//!
//! | module    | what it holds                                           |
//! |-----------|---------------------------------------------------------|
//! | `show`    | types by lines: text, JSON, pictures                    |
//! | `find`    | types that contain another, or point to it              |
//! | `check`   | rules: whether they hold; today's layout as rules       |
//! | `diff`    | fields that share a line in only one of two builds      |
//! | `advise`  | the cost of a layout under a profile; a better order    |
//! | `trial`   | both layouts, replayed by threads on this machine       |
//! | `asked`   | the type and the profile of `advise` and `trial`        |
//! | `profile` | the accesses of a profile as TOML; the options          |
//! | `record`  | the accesses of a run                                   |
//! | `build`   | builds a program with probes before it is run           |

mod advise;
mod asked;
mod build;
mod check;
mod diff;
mod find;
mod profile;
mod record;
mod show;
mod trial;

use ledgerline_view::terminal::output::{print, say};
use std::path::Path;
use std::process::ExitCode;

use clap::Subcommand;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use ledgerline_layout::model::Types;
use ledgerline_layout::{Error, open, open_named};

/// What `ledgerline layout` does.
#[derive(Subcommand, Debug)]
pub enum LayoutCommand {
    /// Print types by cache lines, with holes and padding
    #[command(long_about = show::LONG_ABOUT)]
    Show(show::ShowArgs),
    /// Print the types that contain another, or point to it
    #[command(long_about = find::LONG_ABOUT)]
    Find(find::FindArgs),
    /// Check rules about lines, or write today's layout as rules
    #[command(long_about = check::LONG_ABOUT)]
    Check(check::CheckArgs),
    /// Say what a layout costs under a profile, and propose a better order
    #[command(long_about = advise::LONG_ABOUT)]
    Advise(advise::AdviseArgs),
    /// Replay a profile on this machine, on today's layout and on a proposed one
    #[command(long_about = trial::LONG_ABOUT)]
    Trial(trial::TrialArgs),
    /// Print a profile as TOML, whatever wrote it
    #[command(long_about = profile::LONG_ABOUT)]
    Profile(profile::PrintArgs),
    /// Say which fields came onto a line together, or left one, between two builds
    #[command(long_about = diff::LONG_ABOUT)]
    Diff(diff::DiffArgs),
    /// Run a program and count who reads and writes which field
    #[command(long_about = record::LONG_ABOUT)]
    Record(record::RecordArgs),
}

/// Runs the subcommand. The exit status is 0; 1 if a rule is broken or something changed; 2 if a file cannot be read,
/// rules name something that does not exist, or the command line is bad. `record` ends with the program's own status,
/// like `run`.
pub fn main(command: &LayoutCommand) -> ExitCode {
    let mut missing = Vec::new();
    let (name, result) = match command {
        LayoutCommand::Show(args) => ("show", show::text(args).map(|out| (out, true))),
        LayoutCommand::Find(args) => ("find", find::text(args).map(|out| (out, true))),
        LayoutCommand::Advise(args) => ("advise", advise::text(args).map(|out| (out, true))),
        LayoutCommand::Trial(args) => ("trial", trial::text(args).map(|out| (out, true))),
        LayoutCommand::Profile(args) => ("profile", profile::text(args).map(|out| (out, true))),
        LayoutCommand::Check(args) => ("check", check::text(args, &mut missing)),
        LayoutCommand::Diff(args) => ("diff", diff::text(args)),
        LayoutCommand::Record(args) => return record::main(args),
    };
    let (out, good) = match result {
        Ok(result) => result,
        Err(error) => return fail(name, &error.to_string()),
    };
    let printed = print(&out, "cannot write");
    for error in &missing {
        fail(name, &error.to_string());
    }
    match printed {
        Err(error) => fail(name, &error),
        Ok(_) if !missing.is_empty() => ExitCode::from(2),
        Ok(_) if good => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(1),
    }
}

pub use build::as_compiler;

fn fail(name: &str, error: &str) -> ExitCode {
    say(format_args!("ledgerline: layout {name}: {error}"));
    ExitCode::from(2)
}

/// Reads the types of a file: those with these names, or all if none is given. They are leaked, so that the program
/// does not free a hundred thousand names one by one before it ends.
fn types(path: &Path, names: &[String]) -> Result<&'static Types, Error> {
    let opened = if names.is_empty() { open(path)? } else { open_named(path, names)? };
    Ok(&Box::leak(Box::new(opened)).types)
}

/// Returns the parser of an option for the bytes of a line: 64, or 128 for pairs.
fn line_size() -> impl TypedValueParser<Value = u64> {
    PossibleValuesParser::new(["64", "128"]).map(|size| if size == "128" { 128 } else { 64 })
}

/// Returns one JSON value with a newline.
fn line_of(value: &serde_json::Value) -> String {
    format!("{value}\n")
}
