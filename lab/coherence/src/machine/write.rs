//! Writes a machine as the text of its file.

use super::file::{NOT_SAID, has};
use super::{Entry, Figure, Machine, Range};
use std::fmt::Write as _;
use toml_writer::{ToTomlValue, TomlStringBuilder};

pub(super) fn text(machine: &Machine) -> String {
    let Machine { name, clock_ghz, topology, topology_source, latency, nuisance } = machine;
    let mut text = format!("name = {}\n", quoted(name));
    figure(&mut text, "clock_ghz", clock_ghz);
    let source = quoted(topology_source);
    // Writing to a string does not fail.
    let _ = write!(
        text,
        "\n[topology]\nsockets = {}\ncomplexes_per_socket = {}\ncores_per_complex = {}\n\
         threads_per_core = {}\nhops = {}\nsource = {source}\n\n[latency_ns]\n",
        topology.sockets,
        topology.complexes_per_socket,
        topology.cores_per_complex,
        topology.threads_per_core,
        topology.hops
    );
    for Entry { name, value, .. } in latency.figures() {
        let said = name != "atomic_moved" || latency.atomic_moved != latency.atomic;
        if said && has(*topology, name) {
            figure(&mut text, name, value);
        }
    }
    text.push_str("\n[nuisance]\n");
    for Entry { name, value, .. } in nuisance.ranges() {
        range(&mut text, name, value);
    }
    text
}

fn figure(text: &mut String, name: &str, figure: &Figure) {
    let Figure { value, low, high, source } = figure;
    let _ = write!(text, "{name} = {{ value = {value:?}");
    for (end, value) in [("low", low), ("high", high)] {
        if let Some(value) = value {
            let _ = write!(text, ", {end} = {value:?}");
        }
    }
    let _ = writeln!(text, ", source = {} }}", quoted(source));
}

fn range(text: &mut String, name: &str, range: &Range) {
    let Range { low, best, high, source } = range;
    if source != NOT_SAID {
        let source = quoted(source);
        let _ = writeln!(
            text,
            "{name} = {{ low = {low:?}, best = {best:?}, high = {high:?}, source = {source} }}"
        );
    }
}

fn quoted(text: &str) -> String {
    TomlStringBuilder::new(text).as_basic().to_toml_value()
}
