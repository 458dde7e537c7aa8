//! `ledgerline completions`: shell completions for `ledgerline`.

use std::process::ExitCode;

use clap::{Args, Command};
use ledgerline_view::manual::{self, Shell};
use ledgerline_view::terminal::output::finish;

/// The introduction of `ledgerline completions --help`.
pub const LONG_ABOUT: &str = "\
Print a script that has a shell complete subcommands, options and their values.

The script is made of the same definitions as --help. A package installs it; without one, put it where your shell \
looks, as below, and start a new shell.";

const EXAMPLES: &str = "\
Examples:
  ledgerline completions bash >~/.local/share/bash-completion/completions/ledgerline
  ledgerline completions zsh >~/.zfunc/_ledgerline               with fpath=(~/.zfunc $fpath) before compinit
  ledgerline completions fish >~/.config/fish/completions/ledgerline.fish
  eval \"$(ledgerline completions bash)\"                          for this shell alone";

/// The options of `ledgerline completions`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CompletionsArgs {
    /// The shell that is to read the script
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// Prints the script for `command`. The exit status is 0, 1 if it cannot be written, or 2 for a bad command line.
pub fn main(args: &CompletionsArgs, mut command: Command) -> ExitCode {
    finish("completions", Ok(manual::completions(args.shell, &mut command)))
}
