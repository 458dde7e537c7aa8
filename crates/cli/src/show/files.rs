//! A group's files, by the names that cgroup v2 gives them and in its formats.

use crate::show::ledger::counted;
use crate::steered::{self, Found};
use ledgerline::Limit;
use ledgerline::stat::print::Flat;
use serde_json::{Map, Value, json};

/// The files that there are.
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

/// What a file says.
enum File {
    Number(u64),
    Limit(Limit),
    /// A name and a number a line.
    Keyed(Vec<(String, u64)>),
}

/// Whether a word names a file, be it there or not.
pub(super) fn is_name(word: &str) -> bool {
    word.starts_with("memory.")
}

/// Refuses a name that is none of `there`.
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

fn read(found: &Found<'_>, name: &str) -> File {
    let group = found.group;
    let events = |text: String| {
        let pair = |line: &str| {
            let (name, number) = line.split_once(' ')?;
            Some((name.to_owned(), number.parse().ok()?))
        };
        File::Keyed(text.lines().filter_map(pair).collect())
    };
    match name {
        "memory.current" => File::Number(group.precise()),
        "memory.peak" => File::Number(group.peak().value),
        "memory.max" => File::Limit(steered::max(found)),
        "memory.high" => File::Limit(group.high()),
        "memory.low" => File::Limit(group.low()),
        "memory.min" => File::Limit(group.min()),
        "memory.events" => events(group.events().to_string()),
        "memory.events.local" => events(group.local_events().to_string()),
        "memory.oom.group" => File::Number(group.oom_group().into()),
        _ => events(Flat(&counted(group)).to_string()),
    }
}

impl std::fmt::Display for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            File::Number(number) => writeln!(f, "{number}"),
            // (Not as a limit prints itself: the kernel writes bytes.)
            File::Limit(limit) => match limit.get() {
                Some(units) => writeln!(f, "{units}"),
                None => writeln!(f, "max"),
            },
            File::Keyed(lines) => {
                lines.iter().try_for_each(|(name, number)| writeln!(f, "{name} {number}"))
            }
        }
    }
}

impl File {
    fn value(&self) -> Value {
        match self {
            File::Number(number) => (*number).into(),
            File::Limit(limit) => limit.get().map_or("max".into(), Value::from),
            File::Keyed(lines) => {
                lines.iter().map(|(name, number)| (name.clone(), Value::from(*number))).collect()
            }
        }
    }
}

/// One file as the kernel has it; several with a line before each that names it.
pub(super) fn text(found: &Found<'_>, names: &[String], json: bool) -> Result<String, String> {
    let all: Vec<String> = NAMES.map(str::to_owned).to_vec();
    let names = if names.is_empty() { &all } else { names };
    names.iter().try_for_each(|name| check(name, &NAMES))?;
    let files: Vec<(&String, File)> = names.iter().map(|name| (name, read(found, name))).collect();
    if json {
        let mut document = Map::from_iter([
            ("schema".to_owned(), "ledgerline/group-files.v1".into()),
            ("group".to_owned(), json!(found.path)),
        ]);
        document.extend(files.iter().map(|(name, file)| ((*name).clone(), file.value())));
        return Ok(ledgerline_account::json::pretty(&document));
    }
    if let [(_, file)] = &files[..] {
        return Ok(file.to_string());
    }
    let titled = |(name, file): &(&String, File)| format!("==> {name} <==\n{file}");
    Ok(files.iter().map(titled).collect::<Vec<_>>().join("\n"))
}
