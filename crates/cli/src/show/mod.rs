//! `ledgerline show`: what a ledger or a table of counters says, in the kernel's own formats.
//!
//! | module     | what it holds                                             |
//! |------------|-----------------------------------------------------------|
//! | `source`   | finding and opening what is to be shown                   |
//! | `ledger`   | groups: the tree, `memory.stat`, `memory.events`          |
//! | `counters` | places: `vmstat`, `zoneinfo`, `numastat`                  |

mod counters;
mod ledger;
mod source;

use ledgerline_terminal::output::{print, printable};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};

use source::Source;

/// What `ledgerline show --help` says first.
pub const LONG_ABOUT: &str = "\
Print what a ledger, or a table of counters, says now.

FILE is one that a program shares: a ledger made with LedgerBuilder::create_in, or a table made \
with CountersBuilder::create_in. --pid shows the ledger of a `ledgerline run` that is still \
running; for root it may also be a process under it, even one that outlived the run. Looking changes \
nothing.

A ledger has the formats tree (the account, as `run` prints it), memory.stat and memory.events. The \
last two are cgroup v2's, of the root or of the group at --at, subtree included. Counters have the \
formats of /proc and /sys: vmstat; zoneinfo (the zones of the first FILE; the others add the NUMA \
items and those of the nodes); and numastat, of the nodes or of the place at --at.";

const EXAMPLES: &str = "\
Examples:
  ledgerline show /dev/shm/server.ledger
  ledgerline show --format memory.stat --at /acme /dev/shm/server.ledger
  ledgerline show --pid 4711        a `ledgerline run` that goes on
  ledgerline show --format zoneinfo zones.counters numa.counters
  ledgerline show --json /dev/shm/server.ledger | jq '.groups[0].current'";

/// How to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A ledger's groups as a tree
    Tree,
    /// What a group and its subtree counted
    #[value(name = "memory.stat")]
    MemoryStat,
    /// How often limits were met in a group and its subtree
    #[value(name = "memory.events")]
    MemoryEvents,
    /// All items of counters, one a line
    Vmstat,
    /// The zones of counters, with their items
    Zoneinfo,
    /// The NUMA items of each node
    Numastat,
}

/// The options of `ledgerline show`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ShowArgs {
    /// Ledgers or tables of counters that programs share as files
    #[arg(value_name = "FILE", required_unless_present = "pid")]
    files: Vec<PathBuf>,

    /// The ledger of the `ledgerline run` with this process ID, or, for root, of a process under one
    #[arg(long, value_name = "PID", conflicts_with = "files")]
    pid: Option<u32>,

    /// How to print [default: tree for a ledger, vmstat for counters]
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Option<Format>,

    /// The group (like /acme/q1) or the place (like 0/Normal) to print
    #[arg(long, value_name = "PATH")]
    at: Option<String>,

    /// Print everything as JSON
    #[arg(long, conflicts_with_all = ["format", "at"])]
    json: bool,
}

/// Prints what is asked for. The exit status is 0, 1 when it cannot be shown, or 2 for a bad command
/// line.
pub fn main(args: &ShowArgs) -> ExitCode {
    let text = match text(args) {
        Ok(text) => text,
        Err(error) => return fail(&error),
    };
    match print(text.as_bytes()) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => fail(&format!("cannot write: {error}")),
    }
}

fn fail(error: &str) -> ExitCode {
    eprintln!("ledgerline: show: {}", printable(error));
    ExitCode::FAILURE
}

fn text(args: &ShowArgs) -> Result<String, String> {
    let paths = match args.pid {
        Some(pid) => vec![source::of_run(pid)?],
        None => args.files.clone(),
    };
    let mut sources =
        paths.iter().map(|path| source::open(path)).collect::<Result<Vec<Source>, String>>()?;
    if let [Source::Ledger(ledger)] = &sources[..] {
        return ledger::text(ledger, args.format, args.at.as_deref(), args.json);
    }
    let mut tables = Vec::new();
    for (source, path) in sources.drain(..).zip(&paths) {
        match source {
            Source::Counters(table) => tables.push(table),
            Source::Ledger(_) => {
                return Err(format!("{}: a ledger is shown by itself", path.display()));
            }
        }
    }
    counters::text(&tables, args.format, args.at.as_deref(), args.json)
}

/// The error for a format that what was opened does not have.
fn not_of(format: Format, what: &str, formats: &[Format]) -> String {
    let name = |format: &Format| {
        format.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    };
    let there: Vec<String> = formats.iter().map(name).collect();
    format!("{what} has no {}; there are {}", name(&format), there.join(", "))
}
