//! Writes today's layout as rules.

use std::fmt::Write;

use crate::leaf::{Expand, Leaf, find, leaves, record};
use crate::lines::Lines;
use crate::model::{TypeId, Types};

/// Returns the text of a file of rules that the types keep now and break when other fields share a line. The fields
/// of a line stay together, one field of each line stays apart from those of the others, and no line is added.
///
/// For fields on several lines, such as long arrays and nested records, only the number of lines is fixed.
pub fn lock(types: &Types, picked: &[(&str, TypeId)], line: u64) -> String {
    let mut out = format!("line = {line}\n");
    let lines = Lines::of(line);
    for &(name, id) in picked {
        let Some((id, record)) = record(types, id) else { continue };
        let mut on: Vec<(u64, Vec<String>)> = Vec::new();
        let mut known: Vec<Leaf> = leaves(types, id, Expand::Anonymous);
        known.sort_by_key(|leaf| leaf.start);
        for leaf in known.into_iter().filter(|leaf| leaf.bits > 0) {
            let (first, last) = lines.leaf(&leaf);
            // A path that finds another field first cannot be a rule.
            let named = find(types, id, &leaf.path).is_some_and(|found| found.start == leaf.start);
            if first != last || !named || leaf.path.is_empty() {
                continue;
            }
            match on.last_mut() {
                Some((at, list)) if *at == first => list.push(leaf.path),
                _ => on.push((first, vec![leaf.path])),
            }
        }
        let _ = write!(out, "\n[[type]]\nname = {}\n", quoted(name));
        let _ = writeln!(out, "max_lines = {}", lines.count(0, record.size));
        let several = on.iter().filter(|(_, list)| list.len() > 1);
        let lists: Vec<String> =
            several.map(|(_, list)| format!("    {},\n", array(list))).collect();
        if !lists.is_empty() {
            let _ = writeln!(out, "together = [\n{}]", lists.concat());
        }
        if on.len() > 1 {
            let heads: Vec<String> = on.iter().map(|(_, list)| list[0].clone()).collect();
            let _ = writeln!(out, "apart = [{{ among = {} }}]", array(&heads));
        }
    }
    out
}

fn array(names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|name| quoted(name)).collect();
    format!("[{}]", names.join(", "))
}

/// Returns a text quoted for TOML, whose escapes include JSON's.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
