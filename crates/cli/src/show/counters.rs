//! The places of a table of counters.

use super::{Format, not_of};
use ledgerline::stat::print::{self, Flat};
use ledgerline::stat::{CountersSnapshot, PlaceKind};
use serde_json::{Map, Value, json};

const FORMATS: [Format; 3] = [Format::Vmstat, Format::Zoneinfo, Format::Numastat];
/// The item that identifies a table of NUMA statistics.
const NUMA: &str = "numa_hit";

/// Returns tables in a format.
pub(super) fn text(
    tables: &[CountersSnapshot],
    format: Option<Format>,
    at: Option<&str>,
    json: bool,
) -> Result<String, String> {
    if json {
        return Ok(ledgerline_run::account::json::pretty(&document(tables)));
    }
    match format.unwrap_or(Format::Vmstat) {
        Format::Vmstat => match at {
            None => {
                let tables: Vec<&CountersSnapshot> = tables.iter().collect();
                Ok(Flat(&print::vmstat(&tables)).to_string())
            }
            Some(path) => {
                let places = places(tables, path)?;
                let values = places.iter().flat_map(|&(table, place)| table.values(place));
                let stats: Vec<print::Stat> =
                    values.map(|(name, value)| print::Stat::new(name.to_owned(), value)).collect();
                Ok(Flat(&stats).to_string())
            }
        },
        Format::Zoneinfo => zoneinfo(tables),
        Format::Numastat => numastat(tables, at),
        other => Err(not_of(other, "a table of counters", &FORMATS)),
    }
}

fn places<'t>(
    tables: &'t [CountersSnapshot],
    path: &str,
) -> Result<Vec<(&'t CountersSnapshot, usize)>, String> {
    let found: Vec<_> = tables
        .iter()
        .filter_map(|table| Some((table, table.find(path.trim_matches('/'))?)))
        .collect();
    if found.is_empty() {
        return Err(format!("there is no place {path:?}; --json lists them"));
    }
    Ok(found)
}

fn is_numa(table: &CountersSnapshot) -> bool {
    table.items.iter().any(|item| item == NUMA)
}

fn zoneinfo(tables: &[CountersSnapshot]) -> Result<String, String> {
    // A table with NUMA statistics alone also has zones.
    let zones = tables.iter().find(|table| !is_numa(table)).unwrap_or(&tables[0]);
    let others = || tables.iter().filter(|table| !std::ptr::eq(*table, zones));
    let numa = others().find(|table| is_numa(table));
    let nodes = others().find(|table| !is_numa(table));
    let zones = print::zoneinfo(zones, numa, nodes);
    if zones.is_empty() {
        return Err("no place in it is a zone of a node".to_owned());
    }
    Ok(zones.iter().map(ToString::to_string).collect())
}

fn numastat(tables: &[CountersSnapshot], at: Option<&str>) -> Result<String, String> {
    let Some(table) = tables.iter().find(|table| is_numa(table)) else {
        return Err(format!("it counts no NUMA statistics (no item is called {NUMA})"));
    };
    if let Some(path) = at {
        let (table, place) = places(std::slice::from_ref(table), path)?[0];
        return Ok(Flat(&print::numastat(table, place)).to_string());
    }
    let nodes: Vec<usize> = table.of_kind(PlaceKind::Node).collect();
    let mut text = String::new();
    for &node in &nodes {
        if nodes.len() > 1 {
            text += &format!("node{}\n", table.places[node].name.trim_start_matches("node"));
        }
        text += &Flat(&print::numastat(table, node)).to_string();
    }
    if nodes.is_empty() {
        return Err("no place in it is a node".to_owned());
    }
    Ok(text)
}

fn document(tables: &[CountersSnapshot]) -> Value {
    let place = |table: &CountersSnapshot, at: usize| {
        let values: Map<String, Value> =
            table.values(at).map(|(name, value)| (name.to_owned(), value.into())).collect();
        json!({
            "name": table.places[at].name,
            "kind": format!("{:?}", table.places[at].kind).to_lowercase(),
            "parent": table.places[at].parent,
            "threshold": table.places[at].threshold,
            "values": values,
        })
    };
    let tables: Vec<Value> = tables
        .iter()
        .map(|table| {
            let places: Vec<Value> = (0..table.places.len()).map(|at| place(table, at)).collect();
            json!({
                "width": table.width.to_string(),
                "cpus": table.cpus,
                "steady": table.steady,
                "places": places,
            })
        })
        .collect();
    json!({ "schema": "ledgerline/counters.v1", "tables": tables })
}
