//! Reads machine files: TOML, strictly, with an error of one line for each mistake.

use super::{BUILT_IN, Entry, Latencies, Machine, Nuisance, Topology};
use crate::text_file::{BadFile, Sort};
use serde::Deserialize;
use toml::de::DeTable;

/// A figure and its source.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// In the unit its name states.
    pub value: f64,
    /// A lower value is implausible. It is left out if the figure's uncertainty is unknown.
    pub low: Option<f64>,
    /// A higher value is implausible.
    pub high: Option<f64>,
    /// The author of the measurement, or the basis of the inference.
    pub source: String,
}

impl Figure {
    /// Returns the value that stands for a figure that the file leaves out.
    pub(super) fn unsaid() -> Figure {
        Figure { value: 0.0, low: None, high: None, source: NOT_SAID.to_owned() }
    }
}

/// The belief about a figure that is not published.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    /// A lower value is implausible.
    pub low: f64,
    /// The best guess: it is as likely too low as too high.
    pub best: f64,
    /// A higher value is implausible.
    pub high: f64,
    /// The reason for these three values.
    pub source: String,
}

impl Range {
    /// Returns the range that stands for one that the file leaves out.
    fn unsaid(all: f64) -> Range {
        Range { low: all, best: all, high: all, source: NOT_SAID.to_owned() }
    }

    pub(super) fn zero() -> Range {
        Range::unsaid(0.0)
    }

    pub(super) fn one() -> Range {
        Range::unsaid(1.0)
    }

    /// Returns the value below which the share `quantile` of the belief lies. Half of the belief lies below the best
    /// guess.
    #[must_use]
    pub fn at(&self, quantile: f64) -> f64 {
        if quantile < 0.5 {
            self.low + (self.best - self.low) * 2.0 * quantile
        } else {
            self.best + (self.high - self.best) * (2.0 * quantile - 1.0)
        }
    }
}

/// The source of a value that the file leaves out.
pub(super) const NOT_SAID: &str = "not in the file";

/// Machine files.
pub(super) const FILES: Sort =
    Sort { what: "machine", called: "a machine file", built_in: &BUILT_IN };

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    name: String,
    clock_ghz: Figure,
    topology: Sockets,
    latency_ns: Latencies,
    nuisance: Nuisance,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sockets {
    sockets: usize,
    complexes_per_socket: usize,
    cores_per_complex: usize,
    threads_per_core: usize,
    hops: usize,
    source: String,
}

/// A mistake and its place: a table of the file and a key in it, which is empty for the whole table.
type Complaint = (&'static str, &'static str, String);

pub(super) fn parse(name: &str, text: &str) -> Result<Machine, BadFile> {
    FILES.parse(name, text, |document| {
        check(document).map_err(|(table, key, reason)| (place(text, table, key), reason))
    })
}

/// Returns the place of a key's value in the text, or else of the table's start.
fn place(text: &str, table: &str, key: &str) -> usize {
    let document = DeTable::parse(text).ok();
    let table = document.as_ref().and_then(|document| document.get_ref().get(table));
    let value = table.and_then(|table| table.get_ref().as_table()?.get(key)).or(table);
    value.map_or(0, |value| value.span().start)
}

/// Returns whether a topology has a latency that only some topologies have.
pub(super) fn has(topology: Topology, latency: &str) -> bool {
    match latency {
        "sibling" => topology.threads_per_core > 1,
        "socket_clean" | "socket_modified" => topology.complexes_per_socket > 1,
        "remote_homed_at_owner" | "remote_homed_at_reader" | "memory_remote" => {
            topology.sockets > 1
        }
        "far" => topology.hops > 1,
        _ => true,
    }
}

fn check(document: Document) -> Result<Machine, Complaint> {
    let Document { name, clock_ghz, topology: sockets, latency_ns: mut latency, nuisance } =
        document;
    figure(("clock_ghz", "clock_ghz"), &clock_ghz, (0.01, 100.0))?;
    let topology = topology(&sockets)?;
    for Entry { name, value: given, within, .. } in latency.figures() {
        if given.source != NOT_SAID {
            figure(("latency_ns", name), given, within)?;
        } else if name != "atomic_moved" && has(topology, name) {
            let reason = format!("this topology needs `{name}` in [latency_ns], with its source");
            return Err(("topology", "", reason));
        }
    }
    fill(&mut latency);
    if latency.atomic_moved.value < latency.atomic.value {
        let (moved, atomic) = (latency.atomic_moved.value, latency.atomic.value);
        let reason = format!("`atomic_moved` is {moved}; it is at least `atomic`, {atomic}");
        return Err(("latency_ns", "atomic_moved", reason));
    }
    for Entry { name, value: given, within, .. } in nuisance.ranges() {
        range(name, given, within)?;
    }
    let topology_source = sockets.source;
    Ok(Machine { name, clock_ghz, topology, topology_source, latency, nuisance })
}

/// Fills each value that the file leaves out with the nearest one that it has.
fn fill(latency: &mut Latencies) {
    let fill = |figure: &mut Figure, other: &Figure| {
        if figure.source == NOT_SAID {
            figure.clone_from(other);
        }
    };
    fill(&mut latency.sibling, &latency.near_modified);
    fill(&mut latency.socket_clean, &latency.near_clean);
    fill(&mut latency.socket_modified, &latency.near_modified);
    fill(&mut latency.remote_homed_at_owner, &latency.socket_modified);
    fill(&mut latency.remote_homed_at_reader, &latency.socket_modified);
    fill(&mut latency.far, &latency.remote_homed_at_owner);
    fill(&mut latency.memory_remote, &latency.memory_local);
    fill(&mut latency.atomic_moved, &latency.atomic);
}

fn topology(of: &Sockets) -> Result<Topology, Complaint> {
    let wrong = |reason| ("topology", "", reason);
    let &Sockets {
        sockets, complexes_per_socket, cores_per_complex, threads_per_core, hops, ..
    } = of;
    let topology =
        Topology { sockets, complexes_per_socket, cores_per_complex, threads_per_core, hops };
    let topology = topology.checked().map_err(wrong)?;
    if !(1..=2).contains(&hops) {
        return Err(wrong("`hops` is 1, or 2 where some sockets have no link".to_owned()));
    }
    Ok(topology)
}

fn figure(
    (table, name): (&'static str, &'static str),
    figure: &Figure,
    (least, most): (f64, f64),
) -> Result<(), Complaint> {
    let Figure { value, low, high, source } = figure;
    let (low, high) = (low.unwrap_or(*value), high.unwrap_or(*value));
    let reason = if !(least..=most).contains(value) {
        format!("`{name}` is {value}; it lies between {least} and {most}")
    } else if !(least <= low && low <= *value && *value <= high && high <= most) {
        format!("`{name}` is {value} within {low} and {high}; it rises from low to value to high")
    } else {
        return sourced((table, name), source);
    };
    Err((table, name, reason))
}

fn range(name: &'static str, range: &Range, (least, most): (f64, f64)) -> Result<(), Complaint> {
    let Range { low, best, high, source } = range;
    let ordered = least <= *low && low <= best && best <= high && *high <= most;
    if !ordered {
        let reason = format!(
            "`{name}` is {low}, {best}, {high}; it rises from low to best to high, within {least} and {most}"
        );
        return Err(("nuisance", name, reason));
    }
    sourced(("nuisance", name), source)
}

/// Checks that a figure has a source.
fn sourced((table, name): (&'static str, &'static str), source: &str) -> Result<(), Complaint> {
    if source.trim().is_empty() {
        let reason = format!("`{name}` has no source; say who measured it, or why it is believed");
        return Err((table, name, reason));
    }
    Ok(())
}
