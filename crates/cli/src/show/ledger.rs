//! A ledger's groups.

use super::{Format, not_of};
use crate::steered;
use ledgerline::stat::print::{Flat, Stat};
use ledgerline::{Group, Ledger};
use ledgerline_protocol::Item;
use ledgerline_run::account::json;
use ledgerline_run::account::model::{Account, Mistakes, Processes, Seen};
use ledgerline_run::account::render::{self, Extent};
use ledgerline_view::terminal::style::Style;

const FORMATS: [Format; 3] = [Format::Tree, Format::MemoryStat, Format::MemoryEvents];

/// Returns a ledger in a format.
pub(super) fn text(
    ledger: &Ledger,
    format: Option<Format>,
    at: Option<&str>,
    json: bool,
    extent: Extent,
) -> Result<String, String> {
    if json {
        return Ok(json::groups(&account(ledger)));
    }
    let group = || steered::find(ledger, at.unwrap_or("/")).map(|found| found.group);
    match format.unwrap_or(Format::Tree) {
        Format::Tree => match at {
            None => Ok(render::groups(&account(ledger), extent, &Style::of_stdout())),
            Some(_) => Err("--at goes with --format memory.stat or memory.events".to_owned()),
        },
        Format::MemoryStat => Ok(Flat(&memory_stat(group()?)).to_string()),
        Format::MemoryEvents => Ok(group()?.events().to_string()),
        other => Err(not_of(other, "a ledger", &FORMATS)),
    }
}

/// Returns the group's present usage and peak, then the counts of it and its subtree.
fn memory_stat(group: Group<'_>) -> Vec<Stat> {
    let mut stats =
        vec![Stat::new("current", group.precise()), Stat::new("peak", group.peak().value)];
    stats.extend(counted(group));
    stats
}

/// Returns the counts of the group and its subtree.
pub(super) fn counted(group: Group<'_>) -> Vec<Stat> {
    let lines = group.stat().lines;
    // Sums of first refusals or of processes' identities mean nothing.
    let no_sums = Item::REFUSED.into_iter().chain(Item::ORIGIN).map(Item::name);
    let no_sums: Vec<&str> = no_sums.collect();
    let lines = lines.into_iter().filter(|line| !no_sums.contains(&&*line.name));
    lines.map(|line| Stat::clamped(line.name, line.subtree)).collect()
}

/// Returns the account of a ledger that another program has.
fn account(ledger: &Ledger) -> Account {
    let mistakes = ledger.mistakes();
    let account = Account {
        ledger_bytes: ledger.footprint().resident,
        mistakes: Some(Mistakes { underflows: mistakes.underflows, strays: mistakes.strays }),
        ..Account::default()
    };
    let processes = Processes {
        running: &|_| true,
        seen: &|asked, program, goes_on| {
            goes_on.then(|| Seen::of(asked, program, "VmRSS:")).flatten()
        },
        of_run: false,
    };
    account.with_rows(ledger, &processes)
}
