//! One JSON object a line.

use super::measured::Figure;
use super::table::{Line, Scaling, Table};
use ledgerline_coherence::experiments::Interval;
use serde::Serialize;

/// A row of a table. What was not published, predicted or measured is null.
#[derive(Serialize)]
struct Row<'t> {
    experiment: &'t str,
    row: &'t str,
    /// Of `published`, `predicted` and `predicted_ours`.
    unit: Option<&'t str>,
    published: Option<f64>,
    predicted: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
    calibration: bool,
    predicted_ours: Option<f64>,
    predicted_ours_low: Option<f64>,
    predicted_ours_high: Option<f64>,
    measured_unit: Option<&'t str>,
    measured_before: Option<f64>,
    measured_before_low: Option<f64>,
    measured_before_high: Option<f64>,
    measured_after: Option<f64>,
    measured_after_low: Option<f64>,
    measured_after_high: Option<f64>,
    measured_ours: Option<f64>,
    measured_ours_low: Option<f64>,
    measured_ours_high: Option<f64>,
    transfer_ns: Option<f64>,
    note: Option<&'t str>,
}

/// A design on a number of CPUs.
#[derive(Serialize)]
struct Place<'t> {
    experiment: &'t str,
    /// `before`, `after` or `ours`.
    row: &'static str,
    design: &'t str,
    cpus: usize,
    unit: &'static str,
    predicted: f64,
    low: f64,
    high: f64,
    /// Of all CPUs together.
    operations_per_second: f64,
    machine: &'t str,
    sockets: usize,
    grown: bool,
    method: &'static str,
}

/// The table's rows, or its curve's.
pub(super) fn lines(table: &Table, curves_alone: bool) -> Result<String, String> {
    let mut text = String::new();
    let mut push = |line: serde_json::Result<String>| -> Result<(), String> {
        text += &line.map_err(|error| error.to_string())?;
        text.push('\n');
        Ok(())
    };
    if !curves_alone {
        for line in &table.lines {
            push(serde_json::to_string(&row(table, line)))?;
        }
    } else if let Some(scaling) = &table.scaling {
        for place in places(table.document.name, scaling) {
            push(serde_json::to_string(&place))?;
        }
    }
    Ok(text)
}

/// A thousandth of a unit is more than anything here means.
fn rounded(value: f64) -> f64 {
    let rounded = (value * 1000.0).round() / 1000.0;
    // No minus before a zero.
    if rounded == 0.0 { 0.0 } else { rounded }
}

fn row<'t>(table: &'t Table, line: &'t Line) -> Row<'t> {
    let of = |interval: Option<Interval>, part: fn(Interval) -> f64| {
        interval.map(|interval| rounded(part(interval)))
    };
    let measured = line.measured.as_ref();
    let of_figure = |figure: Option<Figure>, part: fn(Figure) -> f64| {
        figure.map(|figure| rounded(part(figure)))
    };
    let before = measured.and_then(|measured| measured.before);
    let after = measured.and_then(|measured| measured.after);
    let ours = measured.and_then(|measured| measured.ours);
    Row {
        experiment: table.document.name,
        row: &line.name,
        unit: if line.predicted.is_some() {
            Some(table.unit)
        } else {
            line.published.and(measured.map(|measured| measured.unit))
        },
        published: line.published.map(rounded),
        predicted: of(line.predicted, |interval| interval.median),
        low: of(line.predicted, |interval| interval.low),
        high: of(line.predicted, |interval| interval.high),
        calibration: line.calibration,
        predicted_ours: of(line.ours, |interval| interval.median),
        predicted_ours_low: of(line.ours, |interval| interval.low),
        predicted_ours_high: of(line.ours, |interval| interval.high),
        measured_unit: measured.map(|measured| measured.unit),
        measured_before: of_figure(before, |figure| figure.median),
        measured_before_low: of_figure(before, |figure| figure.low),
        measured_before_high: of_figure(before, |figure| figure.high),
        measured_after: of_figure(after, |figure| figure.median),
        measured_after_low: of_figure(after, |figure| figure.low),
        measured_after_high: of_figure(after, |figure| figure.high),
        measured_ours: of_figure(ours, |figure| figure.median),
        measured_ours_low: of_figure(ours, |figure| figure.low),
        measured_ours_high: of_figure(ours, |figure| figure.high),
        transfer_ns: measured.and_then(|measured| measured.transfer_ns).map(rounded),
        note: measured.and_then(|measured| measured.note.as_deref()),
    }
}

fn places<'t>(name: &'t str, scaling: &'t Scaling) -> impl Iterator<Item = Place<'t>> {
    let curve = &scaling.curve;
    scaling.places.iter().flat_map(move |scale| {
        let designs = [
            ("before", curve.before, scale.before),
            ("after", curve.after, scale.after),
            ("ours", curve.ours, scale.ours),
        ];
        designs.map(|(row, design, cost)| Place {
            experiment: name,
            row,
            design,
            cpus: scale.cpus,
            unit: "ns",
            predicted: rounded(cost.median),
            low: rounded(cost.low),
            high: rounded(cost.high),
            operations_per_second: (scale.cpus as f64 * 1e9 / cost.median).round(),
            machine: scaling.machine,
            sockets: scale.sockets,
            grown: scale.grown,
            method: "simulation",
        })
    })
}
