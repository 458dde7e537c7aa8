//! Parses the files, for tests that check the kernel's own files and ours against this grammar.

use super::{Pageset, Stat, Zone};

/// Parses lines `name value`.
pub(super) fn flat(text: &str) -> Result<Vec<Stat>, String> {
    assert!(text.is_empty() || text.ends_with('\n'), "the last line has an end");
    text.lines().map(|line| pair(line, line, " ")).collect()
}

/// Parses `name` and `value` of `rest`, separated by `between` and any further spaces.
fn pair(line: &str, rest: &str, between: &str) -> Result<Stat, String> {
    let (name, value) = rest.split_once(between).ok_or_else(|| line.to_owned())?;
    let digits = value.trim_start_matches(' ');
    let value = digits.parse().map_err(|error| format!("{line:?}: {error}"))?;
    let word = !name.is_empty() && !name.contains(|c: char| c.is_whitespace() || c.is_control());
    if word { Ok(Stat::new(name.to_owned(), value)) } else { Err(line.to_owned()) }
}

/// Parses a whole `/proc/zoneinfo`.
pub(super) fn zones(text: &str) -> Result<Vec<Zone>, String> {
    let mut zones: Vec<Zone> = Vec::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("Node ") {
            let (node, name) = rest.split_once(", zone ").ok_or(line)?;
            let node = node.parse().map_err(|_| line)?;
            zones.push(Zone::new(node, name.trim_start_matches(' ').to_owned()));
            continue;
        }
        let zone = zones.last_mut().ok_or(line)?;
        let spaces = line.len() - line.trim_start_matches(' ').len();
        let rest = &line[spaces..];
        match spaces {
            2 if rest == "per-node stats" || rest == "pagesets" => {}
            2 if rest.starts_with("pages ") => zone.pages.push(pair(line, &rest[6..], " ")?),
            2 if rest.starts_with("vm stats threshold: ") => {
                let set = zone.pagesets.last_mut().ok_or(line)?;
                set.threshold = rest[20..].parse().map_err(|_| line)?;
            }
            2 => zone.tail.push(pair(line, rest, ":")?),
            4 => {
                let cpu = rest.strip_prefix("cpu: ").ok_or(line)?.parse().map_err(|_| line)?;
                zone.pagesets.push(Pageset { cpu, ..Pageset::default() });
            }
            6 => {
                let stat = pair(line, rest, " ")?;
                let items = if zone.pages.is_empty() {
                    &mut zone.node_stats
                } else if stat.name.starts_with("numa_") {
                    &mut zone.numa
                } else if zone.numa.is_empty() {
                    &mut zone.stats
                } else {
                    return Err(format!("{line:?} stands behind the NUMA items"));
                };
                items.push(stat);
            }
            8 => match rest.strip_prefix("protection: (").and_then(|s| s.strip_suffix(')')) {
                Some(list) => {
                    let pages = list.split(", ").map(|pages| pages.parse().map_err(|_| line));
                    zone.protection = pages.collect::<Result<_, _>>()?;
                }
                None => zone.pages.push(pair(line, rest, " ")?),
            },
            14 => {
                let set = zone.pagesets.last_mut().ok_or(line)?;
                set.stats.push(pair(line, rest, ":")?);
            }
            _ => return Err(line.to_owned()),
        }
    }
    Ok(zones)
}
