//! A ledger's groups.

use super::{Format, not_of};
use crate::account::{Account, Ending, Mistakes, is_damaged, resident};
use crate::json;
use crate::launch::Status;
use crate::render;
use ledgerline::stat::print::{Flat, Stat};
use ledgerline::{Group, Ledger};
use ledgerline_protocol::REFUSED;
use ledgerline_terminal::style::Style;
use std::time::Duration;

const FORMATS: [Format; 3] = [Format::Tree, Format::MemoryStat, Format::MemoryEvents];

/// A ledger in a format.
pub(super) fn text(
    ledger: &Ledger,
    format: Option<Format>,
    at: Option<&str>,
    json: bool,
) -> Result<String, String> {
    if json {
        return Ok(json::groups(&account(ledger)));
    }
    let group = || find(ledger, at.unwrap_or("/"));
    match format.unwrap_or(Format::Tree) {
        Format::Tree => match at {
            None => Ok(render::groups(&account(ledger), &Style::of_stdout())),
            Some(_) => Err("--at goes with --format memory.stat or memory.events".to_owned()),
        },
        Format::MemoryStat => Ok(Flat(&memory_stat(group()?)).to_string()),
        Format::MemoryEvents => Ok(group()?.events().to_string()),
        other => Err(not_of(other, "a ledger", &FORMATS)),
    }
}

fn find<'l>(ledger: &'l Ledger, path: &str) -> Result<Group<'l>, String> {
    let snapshot = ledger.snapshot();
    let wanted = format!("/{}", path.trim_matches('/'));
    let found = snapshot.groups.iter().find(|group| group.path == wanted);
    let group = found
        .ok_or_else(|| format!("there is no group {path:?}; `ledgerline show FILE` lists them"))?;
    if is_damaged(ledger, group) {
        return Err(format!(
            "the group {path:?} is damaged: a program wrote over it, and its numbers mean nothing"
        ));
    }
    Ok(ledger.group(group.id))
}

/// What the group uses now and used at most, then what it and its subtree counted.
fn memory_stat(group: Group<'_>) -> Vec<Stat> {
    let mut stats =
        vec![Stat::new("current", group.precise()), Stat::new("peak", group.peak().value)];
    let counted = group.stat().lines;
    // A sum of what rows were refused first means nothing.
    let counted = counted.into_iter().filter(|line| !REFUSED.contains(&&*line.name));
    stats.extend(counted.map(|line| Stat::clamped(line.name, line.subtree)));
    stats
}

/// The account of a ledger whose program is somebody else's.
fn account(ledger: &Ledger) -> Account {
    let mistakes = ledger.mistakes();
    let ending = Ending {
        command: Vec::new(),
        status: Status::Exited(0),
        wall: Duration::ZERO,
        mode: String::new(),
        ledger_bytes: ledger.footprint().resident,
        started: None,
        max_resident: None,
        mistakes: Some(Mistakes { underflows: mistakes.underflows, strays: mistakes.strays }),
        running: &|_| true,
        resident: &|owner| resident::of(owner, "VmRSS:"),
        heap_peak: None,
        limits: None,
        container: None,
    };
    Account::new(ledger, ending)
}
