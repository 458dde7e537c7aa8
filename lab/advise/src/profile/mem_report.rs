//! `perf mem report --stdio`, and its raw form, `perf mem -D report`.
//!
//! These columns of the table are read: *Samples* (or else *Overhead*), *Data Symbol* (`[k] 0xffff…` or `[.]
//! counter+0x8`), *Mem Op* if there is one, *Locked*, and *CPU* or *Tid* if the table was sorted by it. A line above
//! each table names its events: loads or stores. The raw form has one sample on each line, `PID, TID, IP, ADDR, …,
//! DSRC, SYMBOL`.

use ledgerline_layout::Error;

use super::dotted::Dotted;
use super::kinds::{of_event, of_source};
use super::samples::{Place, Samples, Who, hexadecimal};
use super::{Kind, Known, Profile};

/// The beginning of a raw report.
const RAW: &str = "# PID, TID, ";
/// The column by which a table is recognized.
const DATA: &str = "Data Symbol";

/// Returns whether a text has one of the two forms.
pub(super) fn is(text: &str) -> bool {
    text.lines()
        .take(1000)
        .any(|line| line.starts_with('#') && (line.starts_with(RAW) || line.contains(DATA)))
}

pub(super) fn parse(text: &str, source: &str, known: &Known<'_>) -> Result<Profile, Error> {
    let mut samples = Samples::of(known)?;
    let taken = match text.lines().find(|line| line.starts_with(RAW)) {
        Some(header) => raw(text, header, &mut samples),
        None => table(text, &mut samples),
    };
    if taken == 0 {
        return Err(Error::new("no row says where it went and whether it was a load or a store")
            .advise(
                "sort by symbol_daddr, and by op where perf knows it (`-s cpu,op,symbol_daddr`)",
            ));
    }
    samples.profile(source)
}

fn table(text: &str, samples: &mut Samples<'_>) -> u64 {
    let (mut columns, mut names, mut of_table) = (Dotted::default(), "", None);
    let mut taken = 0;
    for line in text.lines() {
        if let Some(comment) = line.strip_prefix('#') {
            if let Some((_, event)) = line.split_once("of event ") {
                of_table = of_event(event);
            } else if comment.trim_start().starts_with("...") {
                columns = Dotted::of(comment, names);
            } else {
                names = comment;
            }
            continue;
        }
        // The dots begin one column to the right: the mark before them is a column of its own.
        let Some(row) = line.get(1..) else { continue };
        let cell = |name| columns.cell(row, name);
        let Some(place) = cell(DATA).and_then(place) else { continue };
        let operation = cell("Mem Op").or_else(|| cell("Memory Operation")).and_then(of_event);
        let Some(kind) = operation.or(of_table) else { continue };
        let locked = cell("Locked") == Some("Yes");
        let number = |text: &str| text.trim_end_matches('%').parse::<f64>().ok();
        let times = cell("Samples").or_else(|| cell("Overhead")).and_then(number);
        let Some(times) = times.filter(|times| times.is_finite() && *times > 0.0) else { continue };
        let who = |name, who: fn(u64) -> Who| {
            // A thread is printed as `Pid:Command`.
            let digits = cell(name)?.split(':').next()?;
            digits.trim().parse().ok().map(who)
        };
        let who = who("CPU", Who::Cpu)
            .or_else(|| who("Pid:Command", Who::Thread))
            .or_else(|| who("Tid:Command", Who::Thread));
        let kind = if locked { Kind::Atomic } else { kind };
        taken += 1;
        samples.add(place, kind, who.unwrap_or(Who::Somebody), times);
    }
    taken
}

/// Parses `[k] 0xffff888100a4c000` or `[.] counter+0x8`.
fn place(cell: &str) -> Option<Place<'_>> {
    let bare = match cell.split_once("] ") {
        Some((mark, rest)) if mark.starts_with('[') => rest.trim(),
        _ => cell,
    };
    if let Some(digits) = bare.strip_prefix("0x") {
        return u64::from_str_radix(digits, 16).ok().map(Place::Address);
    }
    let (symbol, offset) = match bare.rsplit_once("+0x") {
        Some((symbol, digits)) => (symbol, u64::from_str_radix(digits, 16).ok()?),
        None => (bare, 0),
    };
    (!symbol.is_empty() && !symbol.contains(' ')).then_some(Place::Symbol(symbol, offset))
}

fn raw(text: &str, header: &str, samples: &mut Samples<'_>) -> u64 {
    let names: Vec<&str> = header[1..].split(',').map(str::trim).collect();
    let find = |wanted: &str| names.iter().position(|name| *name == wanted);
    let (Some(address), Some(source), Some(thread)) = (find("ADDR"), find("DSRC"), find("TID"))
    else {
        return 0;
    };
    let mut taken = 0;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> =
            line.split([' ', ',', ';', '\t']).filter(|word| !word.is_empty()).collect();
        let number = |index: usize| words.get(index).and_then(|word| hexadecimal(word));
        let (Some(address), Some(source)) = (number(address), number(source)) else { continue };
        let Some(kind) = of_source(source).or(None) else { continue };
        let thread = words.get(thread).and_then(|word| word.parse().ok());
        taken += 1;
        samples.add(Place::Address(address), kind, Who::of(None, thread), 1.0);
    }
    taken
}
