//! Reads machine files: TOML, strictly, with an error of one line for each mistake.

use super::{BUILT_IN, Latencies, Machine, Nuisance, Topology};
use serde::Deserialize;
use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Read, Result as Io};
use std::ops::Range as Span;
use toml::Spanned;

/// A figure and where it comes from.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// In the unit its name states.
    pub value: f64,
    /// A lower value is implausible. Where it is left out, nobody has said how uncertain the figure is.
    pub low: Option<f64>,
    /// A higher value is implausible.
    pub high: Option<f64>,
    /// Who measured it, or from what it was inferred.
    pub source: String,
}

/// What is believed about a figure that nobody published.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    /// A lower value is implausible.
    pub low: f64,
    /// The best guess: it is as likely too low as too high.
    pub best: f64,
    /// A higher value is implausible.
    pub high: f64,
    /// Why these three are believed.
    pub source: String,
}

impl Range {
    /// The value below which the share `quantile` of the belief lies. Half of the belief lies below the best guess.
    #[must_use]
    pub fn at(&self, quantile: f64) -> f64 {
        if quantile < 0.5 {
            self.low + (self.best - self.low) * 2.0 * quantile
        } else {
            self.best + (self.high - self.best) * (2.0 * quantile - 1.0)
        }
    }
}

/// A machine file that cannot be used; prints as `file:line: reason`, or `file: reason` where there is no text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadMachine {
    /// The name that the caller gave.
    pub file: String,
    /// The line, counted from one; zero where the file could not be read at all.
    pub line: usize,
    /// What is wrong and what is expected, in one line.
    pub reason: String,
}

impl fmt::Display for BadMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file, self.reason),
            line => write!(f, "{}:{line}: {}", self.file, self.reason),
        }
    }
}

impl std::error::Error for BadMachine {}

/// The source of a range that the file leaves out.
pub(super) const NOT_SAID: &str = "not in the file";

/// A machine file is a page of text, so a longer one is something else.
const LONGEST: usize = 1 << 20;
/// The most CPUs that a file may describe, so that a typing mistake does not exhaust memory.
const MOST_CPUS: usize = 8192;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    name: String,
    clock_ghz: Spanned<Figure>,
    topology: Spanned<Sockets>,
    latency_ns: Figures,
    nuisance: Ranges,
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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Figures {
    first_cache: Spanned<Figure>,
    second_cache: Spanned<Figure>,
    /// Left out where a core has one thread.
    sibling: Option<Spanned<Figure>>,
    near_clean: Spanned<Figure>,
    near_modified: Spanned<Figure>,
    /// Left out where a socket is one complex.
    socket_clean: Option<Spanned<Figure>>,
    socket_modified: Option<Spanned<Figure>>,
    remote_homed_at_owner: Option<Spanned<Figure>>,
    remote_homed_at_reader: Option<Spanned<Figure>>,
    far: Option<Spanned<Figure>>,
    memory_local: Spanned<Figure>,
    memory_remote: Option<Spanned<Figure>>,
    atomic: Spanned<Figure>,
    /// Equals `atomic` where it is left out.
    atomic_moved: Option<Spanned<Figure>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ranges {
    handover: Spanned<Range>,
    latency_scale: Spanned<Range>,
    read_service_ns: Spanned<Range>,
    keep_ns: Spanned<Range>,
    pair: Spanned<Range>,
    overlap: Spanned<Range>,
    store_buffer: Spanned<Range>,
    request: Option<Spanned<Range>>,
    migratory: Option<Spanned<Range>>,
    keep_spread: Option<Spanned<Range>>,
    upgrade_keep: Option<Spanned<Range>>,
    early_request: Option<Spanned<Range>>,
}

/// Where in the text a mistake is, and what it is.
type Complaint = (Span<usize>, String);

/// Reads and parses a file.
pub(super) fn open(path: &str) -> Result<Machine, BadMachine> {
    let unread = |reason| BadMachine { file: path.to_owned(), line: 0, reason };
    let read = || -> Io<String> {
        let mut text = String::new();
        // Reads one byte more than the longest file has, so that `parse` sees that it is too long.
        File::open(path)?.take(LONGEST as u64 + 1).read_to_string(&mut text)?;
        Ok(text)
    };
    match read() {
        Ok(text) => parse(path, &text),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let names: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).collect();
            let names = names.join(", ");
            Err(unread(format!("no such file, and no machine comes with this name: {names}")))
        }
        Err(error) => Err(unread(format!("cannot be read as a machine file: {error}"))),
    }
}

pub(super) fn parse(name: &str, text: &str) -> Result<Machine, BadMachine> {
    let bad = |(span, reason): Complaint| BadMachine {
        file: name.to_owned(),
        line: 1 + text.as_bytes()[..span.start.min(text.len())]
            .iter()
            .filter(|&&byte| byte == b'\n')
            .count(),
        reason,
    };
    if text.len() > LONGEST {
        return Err(bad((
            0..0,
            format!("over {LONGEST} bytes; a machine file has a few thousand"),
        )));
    }
    let document: Document = toml::from_str(text).map_err(|error| {
        let span = error.span().unwrap_or(0..0);
        let reason = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
        bad((span, reason))
    })?;
    check(document).map_err(bad)
}

fn check(document: Document) -> Result<Machine, Complaint> {
    let clock_ghz = figure("clock_ghz", document.clock_ghz, 0.01, 100.0)?;
    let topology = topology(&document.topology)?;
    let topology_source = document.topology.get_ref().source.clone();
    let at_topology = document.topology.span();
    let latency = latencies(document.latency_ns, topology, &at_topology)?;
    let n = document.nuisance;
    let nuisance = Nuisance {
        handover: range("handover", n.handover, 0.01, 1.0)?,
        latency_scale: range("latency_scale", n.latency_scale, 0.1, 10.0)?,
        read_service_ns: range("read_service_ns", n.read_service_ns, 0.0, 10_000.0)?,
        keep_ns: range("keep_ns", n.keep_ns, 0.0, 10_000.0)?,
        pair: range("pair", n.pair, 0.0, 1.0)?,
        overlap: range("overlap", n.overlap, 0.0, 1.0)?,
        store_buffer: range("store_buffer", n.store_buffer, 1.0, 1024.0)?,
        request: share("request", n.request, 0.0)?,
        migratory: share("migratory", n.migratory, 0.0)?,
        keep_spread: share("keep_spread", n.keep_spread, 0.0)?,
        upgrade_keep: share("upgrade_keep", n.upgrade_keep, 1.0)?,
        early_request: share("early_request", n.early_request, 0.0)?,
    };
    Ok(Machine { name: document.name, clock_ghz, topology, topology_source, latency, nuisance })
}

fn latencies(t: Figures, topology: Topology, at: &Span<usize>) -> Result<Latencies, Complaint> {
    const MOST: f64 = 1e6;
    let read = |name: &str, given: Spanned<Figure>| figure(name, given, 0.001, MOST);
    // A distance that occurs in the topology needs a figure; any other may go without.
    let needed =
        |name: &str, given: Option<Spanned<Figure>>, exists: bool, else_: &Figure| match given {
            Some(given) => read(name, given),
            None if exists => Err((
                at.clone(),
                format!("this topology needs `{name}` in [latency_ns], with its source"),
            )),
            None => Ok(else_.clone()),
        };
    let near_clean = read("near_clean", t.near_clean)?;
    let near_modified = read("near_modified", t.near_modified)?;
    let sibling = needed("sibling", t.sibling, topology.threads_per_core > 1, &near_modified)?;
    let complexes = topology.complexes_per_socket > 1;
    let socket_clean = needed("socket_clean", t.socket_clean, complexes, &near_clean)?;
    let socket_modified = needed("socket_modified", t.socket_modified, complexes, &near_modified)?;
    let sockets = topology.sockets > 1;
    let owner =
        needed("remote_homed_at_owner", t.remote_homed_at_owner, sockets, &socket_modified)?;
    let reader =
        needed("remote_homed_at_reader", t.remote_homed_at_reader, sockets, &socket_modified)?;
    let far = needed("far", t.far, topology.hops > 1, &owner)?;
    let memory_local = read("memory_local", t.memory_local)?;
    let memory_remote = needed("memory_remote", t.memory_remote, sockets, &memory_local)?;
    let atomic = read("atomic", t.atomic)?;
    let atomic_moved = match t.atomic_moved {
        Some(given) => {
            let span = given.span();
            let figure = read("atomic_moved", given)?;
            if figure.value < atomic.value {
                let reason = format!(
                    "`atomic_moved` is {}; it is at least `atomic`, {}",
                    figure.value, atomic.value
                );
                return Err((span, reason));
            }
            figure
        }
        None => atomic.clone(),
    };
    Ok(Latencies {
        first_cache: read("first_cache", t.first_cache)?,
        second_cache: read("second_cache", t.second_cache)?,
        sibling,
        near_clean,
        near_modified,
        socket_clean,
        socket_modified,
        remote_homed_at_owner: owner,
        remote_homed_at_reader: reader,
        far,
        memory_local,
        memory_remote,
        atomic,
        atomic_moved,
    })
}

fn topology(given: &Spanned<Sockets>) -> Result<Topology, Complaint> {
    let sockets = given.get_ref();
    let sizes = [
        sockets.sockets,
        sockets.complexes_per_socket,
        sockets.cores_per_complex,
        sockets.threads_per_core,
    ];
    let cpus = sizes.iter().try_fold(1usize, |product, &size| product.checked_mul(size));
    if !cpus.is_some_and(|cpus| (1..=MOST_CPUS).contains(&cpus)) {
        return Err((given.span(), format!("a topology has 1 to {MOST_CPUS} CPUs")));
    }
    if !(1..=2).contains(&sockets.hops) {
        return Err((given.span(), "`hops` is 1, or 2 where some sockets have no link".to_owned()));
    }
    Ok(Topology {
        sockets: sockets.sockets,
        complexes_per_socket: sockets.complexes_per_socket,
        cores_per_complex: sockets.cores_per_complex,
        threads_per_core: sockets.threads_per_core,
        hops: sockets.hops,
    })
}

fn figure(name: &str, given: Spanned<Figure>, least: f64, most: f64) -> Result<Figure, Complaint> {
    let span = given.span();
    let figure = given.into_inner();
    if !(least..=most).contains(&figure.value) {
        return Err((
            span,
            format!("`{name}` is {}; it lies between {least} and {most}", figure.value),
        ));
    }
    let (low, high) = (figure.low.unwrap_or(figure.value), figure.high.unwrap_or(figure.value));
    if !(least <= low && low <= figure.value && figure.value <= high && high <= most) {
        return Err((
            span,
            format!(
                "`{name}` is {} within {low} and {high}; it rises from low to value to high",
                figure.value
            ),
        ));
    }
    sourced(name, &figure.source, span)?;
    Ok(figure)
}

fn range(name: &str, given: Spanned<Range>, least: f64, most: f64) -> Result<Range, Complaint> {
    let span = given.span();
    let range = given.into_inner();
    let ordered = least <= range.low
        && range.low <= range.best
        && range.best <= range.high
        && range.high <= most;
    if !ordered {
        let Range { low, best, high, .. } = range;
        return Err((
            span,
            format!(
                "`{name}` is {low}, {best}, {high}; it rises from low to best to high, within {least} and {most}"
            ),
        ));
    }
    sourced(name, &range.source, span)?;
    Ok(range)
}

/// A share that a file may leave out; `unsaid` is its value then.
fn share(name: &str, given: Option<Spanned<Range>>, unsaid: f64) -> Result<Range, Complaint> {
    let source = || NOT_SAID.to_owned();
    match given {
        Some(given) => range(name, given, 0.0, 1.0),
        None => Ok(Range { low: unsaid, best: unsaid, high: unsaid, source: source() }),
    }
}

fn sourced(name: &str, source: &str, span: Span<usize>) -> Result<(), Complaint> {
    if source.trim().is_empty() {
        return Err((
            span,
            format!("`{name}` has no source; say who measured it, or why it is believed"),
        ));
    }
    Ok(())
}
