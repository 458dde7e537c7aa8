//! `ledgerline fleet top`: books as they change.

use std::io::IsTerminal as _;
use std::time::Duration;

use clap::Args;
use ledgerline_view::fleet::{HELP, Reader, Screen, Watch, milliseconds, organisation};
use ledgerline_view::terminal::output::{plain_json, print, printable, say};
use ledgerline_view::terminal::style::Style;

use super::{Opened, Place, once};

const EXAMPLES: &str = "\
It costs the store one call for each organisation in an interval (some ten commands of a Redis, and the time to read the \
book), for 50 organisations at most, and where none is named a list of them in half a minute. A store that does not \
answer keeps nobody waiting: what was read last stays on the screen, with its age and the error.

Examples:
  ledgerline fleet top
  ledgerline fleet top acme --interval 5s
  ledgerline fleet top --once                          one look as a table
  ledgerline fleet top acme --json | jq -c '.books[].refusals[-1]'";

/// Returns the keys and the examples, after the options.
pub fn after_help() -> String {
    crate::top::keys_and(EXAMPLES, &HELP)
}

/// The options of `ledgerline fleet top`.
#[derive(Args, Debug)]
pub struct TopArgs {
    #[command(flatten)]
    place: Place,
    /// The first names of budgets' paths [default: all that the store has, 50 at most]
    #[arg(value_name = "ORGANISATION", value_parser = organisation)]
    organisations: Vec<String>,
    /// Print one look as a table, and end
    #[arg(long)]
    once: bool,
    /// Print JSON: with --once one object, else a line for each interval
    #[arg(long)]
    json: bool,
    /// The time between looks, at least 100ms
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,
}

/// Parses an interval, like `5s`.
pub(super) fn interval(text: &str) -> Result<Duration, String> {
    match milliseconds(text)? {
        milliseconds @ 100..=86_400_000 => Ok(Duration::from_millis(milliseconds)),
        _ => Err("the interval is 100ms to a day".to_owned()),
    }
}

/// Watches. The caller prints the returned text.
pub(super) fn main(args: &TopArgs) -> Result<String, String> {
    let opened = Opened::new(&args.place)?;
    let mut reader = Reader::new(opened.store.clone(), &args.organisations, Reader::MOST);
    if args.once {
        return once(&opened, &mut reader, args.json);
    }
    let watch = Watch::start(reader, args.interval)
        .map_err(|error| format!("no thread to read with: {error}"))?;
    if args.json || !std::io::stdout().is_terminal() {
        stream(&watch, args.json)?;
    } else {
        ledgerline_view::top::run_other(&mut Screen::new(watch))?;
    }
    Ok(String::new())
}

/// Prints each look, until the reader leaves. An error is printed to standard error, once, and does not end the stream.
fn stream(watch: &Watch, json: bool) -> Result<(), String> {
    let (mut told, mut is_first) = (String::new(), true);
    watch.tell(|books| {
        let text = match books {
            Err(error) => {
                if told != error {
                    say(format_args!("ledgerline: fleet: {}", printable(error)));
                    told = error.to_owned();
                }
                return Ok(true);
            }
            Ok(books) if json => {
                plain_json(&ledgerline_view::fleet::json(books).to_string()) + "\n"
            }
            Ok(books) => {
                let between = if is_first { "" } else { "\n" };
                between.to_owned() + &ledgerline_view::fleet::table(books, &Style::of_stdout())
            }
        };
        (told, is_first) = (String::new(), false);
        print(text, "cannot write")
    })
}
