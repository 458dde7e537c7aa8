//! The machine files that predictions rest on, with their sources.

use super::svg::escaped;
use ledgerline_coherence::machine::{Entry, Figure, Machine, Range};
use std::fmt::Write as _;

/// Prints a machine's figures and ranges, folded up.
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
    let _ = writeln!(out, "<p>Topology: {}.</p>", escaped(&topology_source));
    out += "<div class=\"wide\"><table><thead><tr><th>latency</th><th>ns</th><th>source</th></tr></thead><tbody>\n";
    let latencies = latency.figures().into_iter().map(|entry| (entry.says, entry.value));
    for (what, figure) in [("clock, GHz", &clock_ghz)].into_iter().chain(latencies) {
        let Figure { value, low, high, source } = figure;
        let range = match (low, high) {
            (Some(low), Some(high)) => format!(" ({low} to {high})"),
            _ => String::new(),
        };
        let source = escaped(source);
        let _ = writeln!(out, "<tr><td>{what}</td><td>{value}{range}</td><td>{source}</td></tr>");
    }
    out += "</tbody></table></div>\n<div class=\"wide\"><table><thead><tr><th>in no table</th><th>low</th>\
            <th>best</th><th>high</th><th>why these</th></tr></thead><tbody>\n";
    for Entry { says, value, .. } in nuisance.ranges() {
        let Range { low, best, high, source } = value;
        let _ = writeln!(
            out,
            "<tr><td>{says}</td><td>{low}</td><td>{best}</td><td>{high}</td><td>{}</td></tr>",
            escaped(source)
        );
    }
    out += "</tbody></table></div></details>\n";
    out
}
