//! `ledgerline show`: a ledger or a table of counters, in the kernel's own formats.
//!
//! | module     | contents                                                  |
//! |------------|-----------------------------------------------------------|
//! | `source`   | opens the ledger or the table                             |
//! | `ledger`   | groups: the tree, `memory.stat`, `memory.events`          |
//! | `files`    | one group's files by name                                 |
//! | `watch`    | changes                                                   |
//! | `counters` | places: `vmstat`, `zoneinfo`, `numastat`                  |

mod counters;
mod files;
mod ledger;
mod source;
mod watch;

use ledgerline_run::account::render::Extent;
use ledgerline_view::terminal::output::{print, status};
use ledgerline_view::watch::find;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};

use source::Source;

/// The introduction of `ledgerline show --help`.
pub const LONG_ABOUT: &str = "\
Print what a ledger, or a table of counters, says now.

FILE is one that a program shares: a ledger made with LedgerBuilder::create_in, or a table made \
with CountersBuilder::create_in. --pid shows the ledger that a process belongs to: of a `ledgerline \
run` or any process under it (for root even one that outlived the run), or of a program that \
announced its ledger (LedgerBuilder::announce) or shares it in a file. Looking changes nothing.

Without more words a ledger is shown as a tree, as `run` prints its account, but that resident is what the kernel sees in \
a process now. A group's path and names of its files \
print what those say, byte for byte as cgroup v2's memory controller does (a number, `max`, or names with numbers): \
memory.current, .peak, .max, .high, .low, .min, .events, .events.local, .oom.group, .stat. Sizes are \
numbers of bytes. A limit of a run's root has the reserve inside, as `run --max` took it. memory.events and memory.stat count \
the group and all below it. A path without a name prints all files, each below a line with its name; names without a \
path are of the root.

With --watch a line is printed for each group and file that changed since the last look, with the time (UTC): those of \
the group that was named and all below it; of memory.current, .peak, .max, .high, .low, .min and .events.local, or those \
of them that were named. It ends when the process of --pid ends, \
when the FILE is removed, or by Ctrl-C.

A ledger also has --format memory.stat (that file, with the present usage and the peak before it) and memory.events, of the root or \
of the group at --at. Counters have the \
formats of /proc and /sys: vmstat; zoneinfo (the zones of the first FILE; the others add the NUMA \
items and those of the nodes); and numastat, of the nodes or of the place at --at.";

const EXAMPLES: &str = "\
Examples:
  ledgerline show /dev/shm/server.ledger
  ledgerline show /dev/shm/server.ledger /acme/q1 memory.current
  ledgerline show --pid 4711        a `ledgerline run` that goes on, or a process under it
  ledgerline show --pid 4711 / memory.max memory.peak
  ledgerline show --pid 4711 --watch=0.5 /python3.4712 memory.current
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
    /// Ledgers or tables of counters that programs share as files; of one ledger, a group and the names of its files
    #[arg(value_name = "FILE|GROUP|memory.NAME", required_unless_present_any = ["pid", "file"])]
    words: Vec<PathBuf>,

    /// The ledger that the process with this ID belongs to
    #[arg(long, value_name = "PID", conflicts_with = "file")]
    pid: Option<u32>,

    /// The ledger in FILE, as when FILE is the first word
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// Print what changes, a line each, and look every SECONDS (default 1)
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1",
        value_parser = seconds,
        conflicts_with_all = ["format", "at"]
    )]
    watch: Option<Duration>,

    /// How to print [default: tree for a ledger, vmstat for counters]
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Option<Format>,

    /// The group (like /acme/q1) or the place (like 0/Normal) to print
    #[arg(long, value_name = "PATH")]
    at: Option<String>,

    /// Print every row of a tree, and every column
    #[arg(long, conflicts_with_all = ["format", "at", "watch", "json"])]
    all: bool,

    /// Print everything as JSON; with --watch, an object a line
    #[arg(long, conflicts_with_all = ["format", "at"])]
    json: bool,
}

/// Prints the requested output. The exit status is 0, 1 on an error, or 2 for a bad command line.
pub fn main(args: &ShowArgs) -> ExitCode {
    status("show", text(args).and_then(|text| print(text, "cannot write")).map(drop))
}

/// The allowed intervals between two looks.
const SECONDS: std::ops::RangeInclusive<f64> = 0.01..=86_400.0;

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| SECONDS.contains(seconds));
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| format!("a number of seconds from {} to {}", SECONDS.start(), SECONDS.end()))
}

/// The classified words.
struct Words<'a> {
    paths: Vec<PathBuf>,
    group: Option<&'a str>,
    names: Vec<String>,
}

/// Classifies the words. Names come last. Before them is the group, and before that the file, unless an option names
/// it. Without names and without a watch all words are files, since tables of counters are shown together.
fn words(args: &ShowArgs) -> Result<Words<'_>, String> {
    let named = match (args.pid, &args.file) {
        (Some(pid), _) => Some(find::by_pid(pid)?.path),
        (None, file) => file.clone(),
    };
    let first = usize::from(named.is_none());
    let is_name = |word: &PathBuf| word.to_str().is_some_and(files::is_name);
    let names = args.words.iter().skip(first).rev().take_while(|word| is_name(word)).count();
    let (words, names) = args.words.split_at(args.words.len() - names);
    let names: Vec<String> = names.iter().map(|name| name.to_string_lossy().into_owned()).collect();
    if names.is_empty() && args.watch.is_none() && named.is_none() {
        return Ok(Words { paths: words.to_vec(), group: None, names });
    }
    let (file, groups) = match &named {
        Some(file) => (file, words),
        None => words.split_first().ok_or("a FILE is missing")?,
    };
    let group = match groups {
        [] => None,
        [group] => Some(group.to_str().ok_or("a group's path is text")?),
        [_, more, ..] => {
            return Err(format!("{}: one GROUP is shown at a time", more.display()));
        }
    };
    Ok(Words { paths: vec![file.clone()], group, names })
}

fn text(args: &ShowArgs) -> Result<String, String> {
    let Words { paths, group, names } = words(args)?;
    if let Some(every) = args.watch {
        let watched = watch::Watched {
            path: &paths[0],
            pid: args.pid,
            group: group.unwrap_or("/"),
            names: &names,
            every,
            json: args.json,
        };
        return watch::run(&watched).map(|()| String::new());
    }
    let sources =
        paths.iter().map(|path| source::open(path)).collect::<Result<Vec<Source>, String>>()?;
    if let [Source::Ledger(ledger)] = &sources[..] {
        if group.is_none() && names.is_empty() {
            let extent = if args.all { Extent::All } else { Extent::Folded };
            return ledger::text(ledger, args.format, args.at.as_deref(), args.json, extent);
        }
        if args.format.is_some() || args.at.is_some() {
            return Err("--format and --at do not go with a group or its files".to_owned());
        }
        let found = crate::steered::find(ledger, group.unwrap_or("/"))?;
        return files::text(&found, &names, args.json);
    }
    if group.is_some() || !names.is_empty() {
        return Err(format!("{}: a table of counters has no groups", paths[0].display()));
    }
    let table = |(source, path): (Source, &PathBuf)| match source {
        Source::Counters(table) => Ok(table),
        Source::Ledger(_) => Err(format!("{}: a ledger is shown by itself", path.display())),
    };
    let tables = sources.into_iter().zip(&paths).map(table).collect::<Result<Vec<_>, String>>()?;
    counters::text(&tables, args.format, args.at.as_deref(), args.json)
}

/// Returns the error for a format that the opened file does not have.
fn not_of(format: Format, what: &str, formats: &[Format]) -> String {
    let name = |format: &Format| {
        format.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    };
    let there: Vec<String> = formats.iter().map(name).collect();
    format!("{what} has no {}; there are {}", name(&format), there.join(", "))
}
