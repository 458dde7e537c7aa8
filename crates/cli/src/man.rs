//! `ledgerline man`: a page of the manual for the command, and one for each subcommand.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Command, ValueHint};
use ledgerline_view::manual;
use ledgerline_view::terminal::output::status;

/// The text at the foot of each page.
const SOURCE: &str = concat!("ledgerline ", env!("CARGO_PKG_VERSION"));

/// The introduction of `ledgerline man --help`.
pub const LONG_ABOUT: &str = "\
Write the pages of the manual.

There is a page for `ledgerline` and one for each of its subcommands, as in ledgerline-run.1. They are made of the same \
definitions as --help. DIR is made where there is none, and pages of the same names in it are replaced.";

const EXAMPLES: &str = "\
Examples:
  ledgerline man ~/.local/share/man/man1                then: man ledgerline-run
  ledgerline man pages && man -l pages/ledgerline-show.1";

/// The options of `ledgerline man`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ManArgs {
    /// The folder that gets the pages
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    folder: PathBuf,
}

/// Writes the pages of `command`. The exit status is 0, 1 if one cannot be written, or 2 for a bad command line.
pub fn main(args: &ManArgs, mut command: Command) -> ExitCode {
    status("man", manual::write_pages(&args.folder, &mut command, SOURCE, "Ledgerline"))
}
