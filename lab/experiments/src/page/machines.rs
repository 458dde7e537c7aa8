//! The machine files that predictions rest on, with their sources.

use super::svg::escaped;
use ledgerline_coherence::machine::{Figure, Machine, Range};
use std::fmt::Write as _;

/// A machine's figures and ranges, folded up.
pub(super) fn machine(name: &str) -> String {
    let Some(machine) = Machine::built_in(name) else { return String::new() };
    let Machine { name: title, clock_ghz, topology, topology_source, latency, nuisance } = machine;
    let mut out = format!(
        "<details class=\"machine\"><summary><code>{}</code> {}: {} sockets, {} CPUs</summary>\n",
        escaped(name),
        escaped(&title),
        topology.sockets,
        topology.cpus()
    );
    let latencies: [(&str, &Figure); 15] = [
        ("clock, GHz", &clock_ghz),
        ("first cache", &latency.first_cache),
        ("second cache", &latency.second_cache),
        ("sibling thread", &latency.sibling),
        ("near, clean", &latency.near_clean),
        ("near, modified", &latency.near_modified),
        ("same socket, clean", &latency.socket_clean),
        ("same socket, modified", &latency.socket_modified),
        ("other socket, homed at owner", &latency.remote_homed_at_owner),
        ("other socket, homed at reader", &latency.remote_homed_at_reader),
        ("two links away", &latency.far),
        ("memory, local", &latency.memory_local),
        ("memory, remote", &latency.memory_remote),
        ("atomic, beyond the load", &latency.atomic),
        ("atomic on a line from another core, beyond the load", &latency.atomic_moved),
    ];
    let _ = writeln!(out, "<p>Topology: {}.</p>", escaped(&topology_source));
    out += "<div class=\"wide\"><table><thead><tr><th>latency</th><th>ns</th><th>source</th></tr></thead><tbody>\n";
    for (what, Figure { value, low, high, source }) in latencies {
        let range = match (low, high) {
            (Some(low), Some(high)) => format!(" ({low} to {high})"),
            _ => String::new(),
        };
        let source = escaped(source);
        let _ = writeln!(out, "<tr><td>{what}</td><td>{value}{range}</td><td>{source}</td></tr>");
    }
    out += "</tbody></table></div>\n<div class=\"wide\"><table><thead><tr><th>in no table</th><th>low</th>\
            <th>best</th><th>high</th><th>why these</th></tr></thead><tbody>\n";
    let ranges: [(&str, &Range); 18] = [
        ("share of a transfer during which a line serves nobody", &nuisance.handover),
        ("factor on all transfers", &nuisance.latency_scale),
        ("ns between two readers (fitted)", &nuisance.read_service_ns),
        ("ns that an owner keeps a line", &nuisance.keep_ns),
        ("probability that the neighbour is fetched too", &nuisance.pair),
        ("share of a load's wait that is hidden", &nuisance.overlap),
        ("stores that may wait", &nuisance.store_buffer),
        ("share of a transfer that is the request's way to the line", &nuisance.request),
        ("whether a line that was changed moves as a whole to who reads it", &nuisance.migratory),
        ("share by which stays differ", &nuisance.keep_spread),
        ("share of a stay with a line of which there was a copy", &nuisance.upgrade_keep),
        ("whether atomics ask for lines while stores are on their way", &nuisance.early_request),
        ("for how long an atomic needs its line (ns)", &nuisance.closing_ns),
        ("work that goes on while a CPU waits (ns)", &nuisance.window_ns),
        ("until when a load behind an atomic may be lost (ns)", &nuisance.behind_ns),
        ("share of an atomic that its CPU does not wait for", &nuisance.atomic_ahead),
        ("how long before its turn a line is asked for (ns)", &nuisance.lead_ns),
        ("what it takes to begin anew behind a load (ns)", &nuisance.flush_ns),
    ];
    for (what, Range { low, best, high, source }) in ranges {
        let _ = writeln!(
            out,
            "<tr><td>{what}</td><td>{low}</td><td>{best}</td><td>{high}</td><td>{}</td></tr>",
            escaped(source)
        );
    }
    out += "</tbody></table></div></details>\n";
    out
}
