//! Writes a machine as the text of its file.

use super::file::NOT_SAID;
use super::{Figure, Machine, Range};
use std::fmt::Write as _;

pub(super) fn text(machine: &Machine) -> String {
    let Machine { name, clock_ghz, topology, topology_source, latency, nuisance } = machine;
    let (complexes, sockets) = (topology.complexes_per_socket > 1, topology.sockets > 1);
    let mut text = format!("name = {}\n", quoted(name));
    figure(&mut text, "clock_ghz", clock_ghz, true);
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
    for (name, value, needed) in [
        ("first_cache", &latency.first_cache, true),
        ("second_cache", &latency.second_cache, true),
        ("sibling", &latency.sibling, topology.threads_per_core > 1),
        ("near_clean", &latency.near_clean, true),
        ("near_modified", &latency.near_modified, true),
        ("socket_clean", &latency.socket_clean, complexes),
        ("socket_modified", &latency.socket_modified, complexes),
        ("remote_homed_at_owner", &latency.remote_homed_at_owner, sockets),
        ("remote_homed_at_reader", &latency.remote_homed_at_reader, sockets),
        ("far", &latency.far, topology.hops > 1),
        ("memory_local", &latency.memory_local, true),
        ("memory_remote", &latency.memory_remote, sockets),
        ("atomic", &latency.atomic, true),
        ("atomic_moved", &latency.atomic_moved, latency.atomic_moved != latency.atomic),
    ] {
        figure(&mut text, name, value, needed);
    }
    text.push_str("\n[nuisance]\n");
    for (name, value) in [
        ("handover", &nuisance.handover),
        ("latency_scale", &nuisance.latency_scale),
        ("read_service_ns", &nuisance.read_service_ns),
        ("keep_ns", &nuisance.keep_ns),
        ("pair", &nuisance.pair),
        ("overlap", &nuisance.overlap),
        ("store_buffer", &nuisance.store_buffer),
        ("request", &nuisance.request),
        ("migratory", &nuisance.migratory),
        ("keep_spread", &nuisance.keep_spread),
        ("upgrade_keep", &nuisance.upgrade_keep),
        ("early_request", &nuisance.early_request),
    ] {
        range(&mut text, name, value);
    }
    text
}

fn figure(text: &mut String, name: &str, figure: &Figure, needed: bool) {
    if !needed {
        return;
    }
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

/// A basic string of TOML.
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            _ if letter.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(letter));
            }
            _ => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}
