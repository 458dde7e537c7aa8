//! `ledgerline man`: a page of the manual for the command, and one for each subcommand.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Command, ValueHint};
use ledgerline_terminal::output::status;

/// What stands at the foot of each page.
const SOURCE: &str = concat!("ledgerline ", env!("CARGO_PKG_VERSION"));

/// What `ledgerline man --help` says first.
pub const LONG_ABOUT: &str = "\
Write the pages of the manual.

There is a page for `ledgerline` and one for each of its subcommands, as in ledgerline-run.1. They are made of the same \
definitions as --help. DIR is made where there is none, and pages of the same names in it are replaced.";

const EXAMPLES: &str = "\
Examples:
  ledgerline man ~/.local/share/man/man1                then: man ledgerline-run
  ledgerline man pages && man -l pages/ledgerline-layout-show.1";

/// The options of `ledgerline man`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ManArgs {
    /// The folder that gets the pages
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    folder: PathBuf,
}

/// Writes the pages of `command`. The exit status is 0, 1 when one cannot be written, or 2 for a bad command line.
pub fn main(args: &ManArgs, mut command: Command) -> ExitCode {
    command.build();
    let made = fs::create_dir_all(&args.folder).map_err(|error| told(&args.folder, &error));
    status("man", made.and_then(|()| write(&args.folder, &command, None)))
}

/// Writes the page of a command and of those below it.
fn write(folder: &Path, command: &Command, above: Option<&Command>) -> Result<(), String> {
    let file = folder.join(format!("{}.1", ledgerline_manual::name(command)));
    let page = ledgerline_manual::page(command, above, SOURCE, "Ledgerline");
    fs::write(&file, page).map_err(|error| told(&file, &error))?;
    ledgerline_manual::below(command).try_for_each(|sub| write(folder, sub, Some(command)))
}

fn told(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}
