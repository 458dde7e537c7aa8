//! A group's files, by the names that cgroup v2 gives them and in its formats.

use crate::show::ledger::counted;
use crate::steered::{self, Found};
use ledgerline::Limit;
use ledgerline::stat::print::Flat;
use serde_json::{Map, Value, json};

/// The existing files.
pub(super) const NAMES: [&str; 10] = [
    "memory.current",
    "memory.peak",
    "memory.max",
    "memory.high",
    "memory.low",
    "memory.min",
    "memory.events",
    "memory.events.local",
    "memory.oom.group",
    "memory.stat",
];

/// Returns whether a word is a file's name, even if that group lacks the file.
pub(super) fn is_name(word: &str) -> bool {
    word.starts_with("memory.")
}

/// Refuses a name that is not in `there`.
pub(super) fn check(name: &str, there: &[&str]) -> Result<(), String> {
    if there.contains(&name) {
        return Ok(());
    }
    let part = name.trim_start_matches("memory.").split('.').next().unwrap_or_default();
    let why = match part {
        "swap" | "zswap" => ": a ledger has no swap",
        "pressure" => ": a ledger keeps no pressure of its own",
        "reclaim" => ": only the program itself asks its caches (Group::reclaim)",
        "numa_stat" => ": a ledger does not know on which node memory lies",
        _ => "",
    };
    Err(format!("there is no {name}{why}; there are {}", there.join(", ")))
}

/// Returns the content of a file: a number, `max`, or lines with a name and a number.
fn read(found: &Found<'_>, name: &str) -> String {
    let group = found.group;
    // Limits have another format of their own: the kernel writes bytes.
    let limit = |limit: Limit| match limit.get() {
        Some(units) => format!("{units}\n"),
        None => "max\n".to_owned(),
    };
    match name {
        "memory.current" => format!("{}\n", group.precise()),
        "memory.peak" => format!("{}\n", group.peak().value),
        "memory.max" => limit(steered::max(found)),
        "memory.high" => limit(group.high()),
        "memory.low" => limit(group.low()),
        "memory.min" => limit(group.min()),
        "memory.events" => group.events().to_string(),
        "memory.events.local" => group.local_events().to_string(),
        "memory.oom.group" => format!("{}\n", u8::from(group.oom_group())),
        _ => Flat(&counted(group)).to_string(),
    }
}

/// Returns the content as JSON: a number, a word, or an object.
fn value(text: &str) -> Value {
    let number = |word: &str| word.parse::<u64>().map_or_else(|_| word.into(), Value::from);
    let pair = |line: &str| {
        let (name, value) = line.split_once(' ')?;
        Some((name.to_owned(), number(value)))
    };
    match text.lines().next() {
        Some(word) if !word.contains(' ') => number(word),
        _ => text.lines().filter_map(pair).collect(),
    }
}

/// Returns one file in the kernel's format; several with a heading line for each.
pub(super) fn text(found: &Found<'_>, names: &[String], json: bool) -> Result<String, String> {
    let all: Vec<String> = NAMES.map(str::to_owned).to_vec();
    let names = if names.is_empty() { &all } else { names };
    names.iter().try_for_each(|name| check(name, &NAMES))?;
    let files: Vec<(&String, String)> =
        names.iter().map(|name| (name, read(found, name))).collect();
    if json {
        let mut document = Map::from_iter([
            ("schema".to_owned(), "ledgerline/group-files.v1".into()),
            ("group".to_owned(), json!(found.path)),
        ]);
        document.extend(files.iter().map(|(name, file)| ((*name).clone(), value(file))));
        return Ok(ledgerline_run::account::json::pretty(&document));
    }
    if let [(_, file)] = &files[..] {
        return Ok(file.clone());
    }
    let titled = |(name, file): &(&String, String)| format!("==> {name} <==\n{file}");
    Ok(files.iter().map(titled).collect::<Vec<_>>().join("\n"))
}
