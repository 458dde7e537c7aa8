//! `ledgerline top`: a ledger on the terminal, as it changes.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, builder::PossibleValuesParser, builder::TypedValueParser};
use ledgerline_view::terminal::output::{print, status};
use ledgerline_view::top::other::Help;
use ledgerline_view::top::{Choice, Column, Folds, HELP, Options};
use ledgerline_view::watch::Source;

/// The introduction of `ledgerline top --help`.
pub const LONG_ABOUT: &str = "\
Watch a ledger on the terminal while its program runs, and after.

PID is a `ledgerline run`, or a process that runs under one, or a program that announced its ledger \
(LedgerBuilder::announce); NAME is the name that it announced. FILE is a ledger that a program shares \
(LedgerBuilder::create_in). Without one the ledgers that there are are listed, and Enter opens one. \
Looking changes nothing, and costs those who charge nothing.

Each group has a line: what it holds now, the most it held, how fast it grows, which part of its max \
it holds, how often its limits are met, how often it is refused and charged, and what it held in the last looks. \
`limits/s` counts refusals, and times that the group's own max and high were met, in a second, \
added up. A `!` stands before a group that holds 90 % of its max or met a limit just now, an `x` before \
one whose process ended, a `?` before one that a program wrote over. What a group holds includes what \
the groups below it hold.

There are no colours where NO_COLOR is set. When the program ends, its last look stays until q is \
pressed.";

const EXAMPLES: &str = "\
Examples:
  ledgerline top                                 the ledgers that there are: choose one
  ledgerline top 4711                            a process of a `ledgerline run`
  ledgerline top --merge 4711                    one row for each program
  ledgerline top --sort limits --flat /dev/shm/server.ledger
  ledgerline top --once --rows 20 /dev/shm/server.ledger
  ledgerline top --once --json /dev/shm/server.ledger | jq '.groups[0].current'
  ledgerline top --json --interval 0.1 4711      a line every 100 ms, until the program ends";

/// Returns the keys and the examples, after the options.
pub fn after_help() -> String {
    keys_and(EXAMPLES, &HELP)
}

/// Returns keys and examples in the form that follows the options of a command with a screen.
pub fn keys_and(examples: &str, keys: &[Help]) -> String {
    let mut text = "Keys:\n".to_owned();
    for (keys, what) in keys {
        let _ = writeln!(text, "  {keys:<12} {what}");
    }
    text + "\n" + examples
}

/// The options of `ledgerline top`.
#[derive(Args, Debug)]
pub struct TopArgs {
    /// A process of a `ledgerline run`, a ledger that a program shares as a file, or the name or process of a program
    /// that announced one [default: the list of all]
    #[arg(value_name = "PID|FILE|NAME")]
    ledger: Option<String>,

    /// Print one look as a table, and end; without a ledger, the list of all. It takes two looks, an interval apart, to know rates; with --interval 0 it
    /// takes one, and leaves the rates out
    #[arg(long)]
    once: bool,

    /// Print JSON: with --once one object, else a line for each interval until the program ends
    #[arg(long)]
    json: bool,

    /// The time between looks
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    interval: Duration,

    /// The column to sort by, the largest first
    #[arg(long, value_name = "COLUMN", default_value = "current", value_parser = columns())]
    sort: Column,

    /// Sort the other way round
    #[arg(long)]
    reverse: bool,

    /// Show groups whose path has this text alone, with those above them
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    filter: String,

    /// Show so many levels below the root
    #[arg(long, value_name = "LEVELS", conflicts_with = "flat")]
    depth: Option<u32>,

    /// Show all groups side by side, and sort them among all
    #[arg(long)]
    flat: bool,

    /// Show the groups of one program as one: sums, and the largest peak and share
    #[arg(long)]
    merge: bool,

    /// Print so many rows at most, with --once or --json
    #[arg(long, value_name = "N")]
    rows: Option<usize>,
}

fn columns() -> impl TypedValueParser<Value = Column> {
    PossibleValuesParser::new(Column::ALL.map(Column::word))
        .try_map(|word| Column::named(&word).ok_or("not one of them"))
}

/// Parses a time in seconds, possibly with a fraction.
fn interval(text: &str) -> Result<Duration, String> {
    const LONGEST: f64 = 86_400.0;
    let seconds = text.parse::<f64>().ok();
    let seconds = seconds.filter(|seconds| (0.0..=LONGEST).contains(seconds));
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| format!("a number of seconds, up to {LONGEST}"))
}

/// Watches. The exit status is 0, 1 if the ledger cannot be watched, or 2 for a bad command line.
pub fn main(args: &TopArgs) -> ExitCode {
    status("top", watch(args))
}

fn watch(args: &TopArgs) -> Result<(), String> {
    let options = Options {
        choice: Choice {
            sort: args.sort,
            reverse: args.reverse,
            flat: args.flat,
            merge: args.merge,
            filter: args.filter.clone(),
            folds: Folds::to_depth(args.depth),
        },
        interval: args.interval,
        rows: args.rows,
    };
    let print = |text: &str| print(text, "cannot write");
    let shortest = Duration::from_millis(10);
    if !args.once && args.interval < shortest {
        return Err("--interval is at least 0.01, except with --once".to_owned());
    }
    let Some(ledger) = &args.ledger else {
        return match (args.once, args.json) {
            (_, true) => print(&ledgerline_view::top::list_json()).map(drop),
            (true, false) => print(&ledgerline_view::top::list()).map(drop),
            (false, false) => ledgerline_view::top::run_any(&options),
        };
    };
    let source = Source::named(ledger)?;
    match (args.once, args.json) {
        (true, false) => print(&ledgerline_view::top::once(&source, &options)?).map(drop),
        (true, true) => print(&ledgerline_view::top::once_json(&source, &options)?).map(drop),
        (false, true) => ledgerline_view::top::stream(&source, &options, print),
        (false, false) => ledgerline_view::top::run(&source, &options),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_a_time_that_can_be_waited_for() {
        assert_eq!(interval("0.1"), Ok(Duration::from_millis(100)));
        assert_eq!(interval("0"), Ok(Duration::ZERO));
        for bad in ["-1", "nan", "inf", "1e9", "x", ""] {
            assert!(interval(bad).is_err(), "{bad}");
        }
    }
}
