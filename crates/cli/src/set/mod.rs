//! `ledgerline set`: changes limits of a running program.
//!
//! | module   | contents                                             |
//! |----------|------------------------------------------------------|
//! | `ask`    | the changes that the command line requests           |
//! | `reach`  | the ledger, if this user may change its limits       |
//! | `check`  | checks of the changes, before anything is changed    |

mod ask;
mod check;
mod reach;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use ledgerline::{Limit, SetMaxError, size};
use ledgerline_view::terminal::output::{fail, print, printable, status};
use serde_json::{Map, Value, json};

use crate::steered::{self, Found};
use ask::{Change, Which};

/// The introduction of `ledgerline set --help`.
pub const LONG_ABOUT: &str = "\
Change limits of a program that runs, and say what they were and are.

GROUP is a group's path as `ledgerline show` prints it; / is the root, and the limit of all. NAME is max (more is \
refused), high (caches are asked above it), low or min (what reclaim leaves); VALUE is like 512M, and `max` takes \
max or high away. Several are checked before the first is changed. Who watches the program hears of it: watches of \
the library wake, in its process too.

A max below what is in use is refused, with who holds most. With --now it holds at once: nothing more is let in until \
usage has come down (a program that cannot go on without memory may end), the program's caches are asked for the excess, and what waits for more room than there will be is \
refused. What lies prepaid in the program's cells (some hundred kilobytes for each CPU at most) is in use already, and \
may still be charged.

For a run, / is what --max limits, the reserve inside as there: the program sees malloc fail from then on, and the account \
at the end shows the new limit. A run's reserve stays as large as it was at its start (1M without --max), and so does --max-heap. With --container the root's max \
follows the kernel's limit, and cannot be set.

Only the user whose program it is, or root, may do it. A ledger whose maker keeps its limits to itself \
(LedgerBuilder::steerable) says so.";

const EXAMPLES: &str = "\
Examples:
  ledgerline set --pid 4711 / max=300M
  ledgerline set --pid 4711 / max=max              no limit any more
  ledgerline set --pid 4711 /python3.4712 max=100M --now
  ledgerline set --file /dev/shm/server.ledger /acme max=1G high=900M low=64M
  ledgerline set --json --pid 4711 / max=1G | jq .limits.max.is";

/// The options of `ledgerline set`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct SetArgs {
    /// The ledger of this process: a `ledgerline run`, a program under one, or one that embeds the library and announced
    /// its ledger
    #[arg(long, value_name = "PID", conflicts_with = "file", required_unless_present = "file")]
    pid: Option<u32>,

    /// The ledger that a program shares as FILE
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// The group whose limits these are
    #[arg(value_name = "GROUP")]
    group: String,

    /// The limits: max, high, low or min, each with its new value
    #[arg(value_name = "NAME=VALUE", required = true, value_parser = ask::parse)]
    limits: Vec<Change>,

    /// Set a max below what is in use, too: it holds at once
    #[arg(long)]
    now: bool,

    /// Print what was and what is as JSON, in bytes
    #[arg(long)]
    json: bool,
}

/// Makes the requested changes. The exit status is 0, 1 if they are refused, or 2 for a bad command line.
pub fn main(args: &SetArgs) -> ExitCode {
    if let Err(error) = ask::check(&args.limits, args.now) {
        return fail("set", &printable(&error), 2);
    }
    let set = text(args).and_then(|text| print(text, "it is set, and cannot be told"));
    status("set", set.map(drop))
}

/// A limit before and after the change.
struct Changed {
    which: Which,
    was: Limit,
    is: Limit,
}

fn text(args: &SetArgs) -> Result<String, String> {
    let ledger = reach::ledger(args.pid, args.file.as_deref())?;
    let found = steered::find(&ledger, &args.group)?;
    check::all(&found, &args.limits, args.now)?;
    let before: Vec<Limit> = args.limits.iter().map(|change| limit(&found, change.which)).collect();
    // The max first: only it may still be refused.
    let mut order: Vec<&Change> = args.limits.iter().collect();
    order.sort_by_key(|change| change.which != Which::Max);
    let mut above = 0;
    for change in order {
        above = above.max(set(&found, *change, args.now)?);
    }
    if !found.group.exists() {
        return Err(format!("the group {:?} was destroyed in that moment", found.path));
    }
    let changed = args.limits.iter().zip(before).map(|(change, was)| Changed {
        which: change.which,
        was,
        is: limit(&found, change.which),
    });
    let changed: Vec<Changed> = changed.collect();
    Ok(if args.json { document(&found, &changed, above) } else { lines(&found, &changed, above) })
}

/// Returns a limit as the user sees it.
fn limit(found: &Found<'_>, which: Which) -> Limit {
    match which {
        Which::Max => steered::max(found),
        Which::High => found.group.high(),
        Which::Low => found.group.low(),
        Which::Min => found.group.min(),
    }
}

/// Sets one limit. Returns the units above it.
fn set(found: &Found<'_>, change: Change, now: bool) -> Result<u64, String> {
    let (group, limit) = (found.group, change.limit);
    let refused = |error: SetMaxError| match error {
        SetMaxError::Busy { usage, .. } => check::busy(found, limit, usage),
        error => format!("{}: {error}", found.path),
    };
    match change.which {
        Which::Max if now => {
            return group.set_max_now(check::kept(found, limit)).map_err(refused);
        }
        Which::Max => group.set_max(check::kept(found, limit)).map_err(refused)?,
        Which::High => group.set_high(limit),
        Which::Low => group.set_low(limit),
        Which::Min => group.set_min(limit),
    }
    Ok(0)
}

fn lines(found: &Found<'_>, changed: &[Changed], above: u64) -> String {
    let mut text = String::new();
    for Changed { which, was, is } in changed {
        let name = which.name();
        text += &match was == is {
            true => format!("{}: {name} is {is}, as before\n", found.path),
            false => format!("{}: {name} was {was}, is {is}\n", found.path),
        };
    }
    if above > 0 {
        text += &format!(
            "{}: {} above it: nothing more is let in until that is returned\n",
            found.path,
            size::format(above)
        );
    }
    text
}

fn document(found: &Found<'_>, changed: &[Changed], above: u64) -> String {
    let number = |limit: Limit| limit.get().map_or(Value::from("max"), Value::from);
    let limits: Map<String, Value> = changed
        .iter()
        .map(|Changed { which, was, is }| {
            (which.name().to_owned(), json!({ "was": number(*was), "is": number(*is) }))
        })
        .collect();
    ledgerline_run::account::json::pretty(&json!({
        "schema": "ledgerline/set.v1", "group": found.path, "limits": limits, "above": above,
    }))
}
