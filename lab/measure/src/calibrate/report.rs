//! The results of a calibration, for people and for programs.

use super::describe::Described;
use super::fit::Fitted;
use super::modes::Mode;
use super::probe::Found;
use super::rounds::Pair;
use super::validate::{Row, SCORED, score};
use ledgerline_coherence::machine::{Figure, Range};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Everything that is reported.
#[derive(Debug)]
pub(super) struct Report<'a> {
    /// Processor, CPUs, kernel, date.
    pub(super) machine: &'a str,
    pub(super) pairs: &'a [Pair],
    /// Every pair of CPUs, and a transfer between them; empty for two CPUs.
    pub(super) matrix: &'a [(usize, usize, f64)],
    pub(super) described: &'a [Described],
    /// Modes that occurred and were not measured enough, with the reason.
    pub(super) left_out: &'a [String],
    /// The rows of each described mode, if validation was requested.
    pub(super) validated: Option<&'a [Vec<Row>]>,
}

/// A figure that no machine file contains: its name for a program and for people, its unit, and its value unless
/// every try was disturbed.
type Beside = (&'static str, &'static str, &'static str, Option<f64>);

/// Returns the figures of a pair in a mode that no machine file contains.
fn beside(pair: &Pair, mode: &Mode) -> [Beside; 5] {
    let value = |figure: fn(&Found) -> f64| {
        pair.figure(mode, figure).map(|spread| (spread.value * 1000.0).round() / 1000.0)
    };
    // The first fight: atomics, and no work.
    let contended = value(|found| found.fights[0] / 2.0);
    [
        ("upgrade_ns", "atomic on a line that both have", "ns", value(|found| found.upgrade)),
        ("contended_atomic_ns", "atomic on a contended line", "ns", contended),
        ("ticket_handover_ns", "hand-over of a ticket lock", "ns", value(|found| found.ticket)),
        ("queue_handover_ns", "hand-over of a queue lock", "ns", value(|found| found.queue)),
        ("time_stamp_ghz", "time-stamp counter", "GHz", value(|found| found.time_stamp)),
    ]
}

/// Returns the error in per cent of the model in the fights that its settings were fitted to: the median, and the
/// largest.
fn off(described: &Described) -> [f64; 2] {
    let Fitted { median_off, worst_off, .. } = described.fitted;
    [median_off, worst_off].map(|share| (1000.0 * share).round() / 10.0)
}

/// Returns one JSON object.
pub(super) fn json(report: &Report<'_>) -> String {
    let modes: Vec<_> = (report.described.iter().enumerate())
        .map(|(index, described)| {
            let mode = &described.mode;
            let [median, worst] = off(described);
            let beside = beside(&report.pairs[0], mode).into_iter();
            let beside: BTreeMap<_, _> = beside.map(|(key, _, _, value)| (key, value)).collect();
            serde_json::json!({
                "transfer_ns": mode.median,
                "transfer_low_ns": mode.low,
                "transfer_high_ns": mode.high,
                "drifts": mode.drifts(),
                "rounds": report.pairs[0].during(mode).count(),
                "machine_file": described.machine.to_toml(),
                "beside": beside,
                "fit": {"median_error_percent": median, "worst_error_percent": worst},
                "not_measured": described.refusals,
                "validation": report.validated.map(|rows| &rows[index]),
            })
        })
        .collect();
    let matrix: Vec<_> = (report.matrix.iter())
        .map(|(one, other, ns)| serde_json::json!({"cpus": [one, other], "transfer_ns": ns}))
        .collect();
    let value = serde_json::json!({
        "schema": "ledgerline/calibrate.v1",
        "machine": report.machine,
        "modes": modes,
        "left_out": report.left_out,
        "matrix": matrix,
    });
    format!("{value}\n")
}

/// Returns a table for a terminal.
pub(super) fn table(report: &Report<'_>) -> String {
    let mut out = format!("{}\n", report.machine);
    if !report.matrix.is_empty() {
        out.push_str("\ntransfers between CPUs, ns\n");
        for (one, other, ns) in report.matrix {
            // Writing to a string does not fail.
            let _ = writeln!(out, "  {one:>4} {other:>4}  {ns:8.1}");
        }
    }
    if report.described.len() + report.left_out.len() > 1 {
        out.push_str("\nThe machine changed while it was measured; each mode is kept apart.\n");
    }
    for (index, described) in report.described.iter().enumerate() {
        mode(&mut out, report, described);
        if let Some(rows) = report.validated {
            validation(&mut out, &rows[index]);
        }
    }
    if let Some(described) = report.described.first() {
        out.push_str("\nnot measured\n");
        for refusal in &described.refusals {
            let _ = writeln!(out, "  {refusal}");
        }
    }
    for line in report.left_out {
        let _ = writeln!(out, "  {line}");
    }
    out
}

fn range(out: &mut String, name: &str, range: &Range, unit: &str) {
    let Range { low, best, high, .. } = range;
    let _ = writeln!(out, "  {name:<42} {best:>8.2} {unit:<4}({low:.2} .. {high:.2})");
}

fn mode(out: &mut String, report: &Report<'_>, described: &Described) {
    let (machine, mode) = (&described.machine, &described.mode);
    let pair = &report.pairs[0];
    let [one, other] = pair.cpus;
    let rounds = pair.during(mode).count();
    let drifts = if mode.drifts() { ", drifting" } else { "" };
    let _ = writeln!(
        out,
        "\nCPUs {one} and {other}, transfers of {:.1} ns ({:.1} .. {:.1}{drifts}), {rounds} rounds",
        mode.median, mode.low, mode.high
    );
    let (latency, nuisance) = (&machine.latency, &machine.nuisance);
    let mut figure = |name: &str, figure: &Figure, unit: &str| {
        let bounds = match (figure.low, figure.high) {
            (Some(low), Some(high)) => format!("({low:.2} .. {high:.2})"),
            _ => "(inferred)".to_owned(),
        };
        let _ = writeln!(out, "  {name:<42} {:>8.2} {unit:<4}{bounds}", figure.value);
    };
    figure("clock", &machine.clock_ghz, "GHz");
    figure("load from the first cache", &latency.first_cache, "ns");
    figure("load from the second cache", &latency.second_cache, "ns");
    figure("load from memory", &latency.memory_local, "ns");
    figure("atomic on an own line, beyond the load", &latency.atomic, "ns");
    figure("atomic on a moved line, beyond the load", &latency.atomic_moved, "ns");
    figure("load of a line that the other has changed", &latency.near_modified, "ns");
    figure("load of a line that no CPU has changed", &latency.near_clean, "ns");
    range(out, "stay of a contended line", &nuisance.keep_ns, "ns");
    range(out, "share by which stays differ", &nuisance.keep_spread, "");
    range(out, "too late for an atomic on a contended line", &nuisance.closing_ns, "ns");
    range(out, "share of an atomic beside what follows", &nuisance.atomic_ahead, "");
    range(out, "loads behind an atomic may be lost until", &nuisance.behind_ns, "ns");
    range(out, "share of a transfer: request", &nuisance.request, "");
    range(out, "share of a transfer: line on its way", &nuisance.handover, "");
    let [median, worst] = off(described);
    let _ = writeln!(
        out,
        "  (with these the model takes what fights took: median error {median:.1} %, worst {worst:.1} %)"
    );
    range(out, "reading takes a changed line away", &nuisance.migratory, "");
    range(out, "atomics ask while stores are on their way", &nuisance.early_request, "");
    range(out, "neighbouring line costs like the same", &nuisance.pair, "");
    for (_, name, unit, value) in beside(pair, mode) {
        let value = value.map_or_else(|| "disturbed".to_owned(), |value| format!("{value:.2}"));
        let _ = writeln!(out, "  {name:<42} {value:>8} {unit}");
    }
}

fn validation(out: &mut String, rows: &[Row]) {
    if rows.is_empty() {
        out.push_str("\n  too few undisturbed runs in this mode to hold predictions against\n");
        return;
    }
    let _ = writeln!(
        out,
        "\n  {:<22} {:>4} {:>6} {:>5} {:>9} {:>19} {:>9} {:>7}",
        "pattern", "CPUs", "cycles", "runs", "real ns", "(low .. high)", "predicted", "error"
    );
    for row in rows {
        let bounds = format!("({:.1} .. {:.1})", row.real_low_ns, row.real_high_ns);
        let mark = if row.scored { "" } else { "  not scored" };
        let _ = writeln!(
            out,
            "  {:<22} {:>4} {:>6.0} {:>5} {:>9.1} {bounds:>19} {:>9.1} {:>+6.1}%{mark}",
            format!("{}{}", row.pattern, row.part.suffix()),
            row.cpus,
            row.work_cycles,
            row.runs,
            row.real_ns,
            row.predicted_ns,
            row.error_percent
        );
    }
    if let Some([median, worst]) = score(rows) {
        let _ = writeln!(
            out,
            "  from {SCORED} cycles of private work on: median error {median:.1} %, worst {worst:.1} %"
        );
    }
}
