//! Prints one JSON object a line.

use super::measured::Measured;
use super::reported::{Here, Reported, printed_twice};
use super::table::{Line, Scaling, Table};
use ledgerline_coherence::experiments::study::Scale;
use ledgerline_coherence::experiments::{Basis, Interval};
use serde::{Serialize, Serializer};
use serde_json::Value;

/// An object whose keys keep the order in which they were put.
struct Object(Vec<(String, Value)>);

impl Object {
    fn new(schema: &str) -> Object {
        Object(vec![("schema".to_owned(), schema.into())])
    }

    fn put(&mut self, key: &str, value: impl Into<Value>) {
        self.0.push((key.to_owned(), value.into()));
    }

    /// Puts a median under `key`, and the ends of its interval under the other two keys.
    fn interval(&mut self, key: &str, [low, high]: [&str; 2], interval: Option<Interval>) {
        self.put(key, interval.map(|interval| rounded(interval.median)));
        self.put(low, interval.map(|interval| rounded(interval.low)));
        self.put(high, interval.map(|interval| rounded(interval.high)));
    }
}

impl Serialize for Object {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

/// Returns the table's rows, or its curve's.
pub(super) fn lines(table: &Table, curves_alone: bool) -> Result<String, String> {
    let objects: Vec<Object> = match (&table.scaling, curves_alone) {
        (_, false) => {
            let rows = table.lines.iter().map(|line| row(table, line));
            rows.chain(table.document.reported.iter().map(|one| reported(table, one))).collect()
        }
        (Some(scaling), true) => places(table.document.name, scaling),
        (None, true) => Vec::new(),
    };
    let mut text = String::new();
    for object in objects {
        text += &serde_json::to_string(&object).map_err(|error| error.to_string())?;
        text.push('\n');
    }
    Ok(text)
}

/// Rounds to a thousandth of a unit, which is finer than any figure here.
fn rounded(value: f64) -> f64 {
    let rounded = (value * 1000.0).round() / 1000.0;
    // Avoids a negative zero.
    if rounded == 0.0 { 0.0 } else { rounded }
}

/// Returns a row of a table, with null for values that were not published, predicted or measured.
fn row(table: &Table, line: &Line) -> Object {
    let measured = line.measured.as_ref();
    let measured_unit = measured.map(|measured| measured.unit);
    // The unit of the published and predicted values.
    let unit = match line.predicted {
        Some(_) => Some(table.unit),
        None => line.published.and(measured_unit),
    };
    let mut object = Object::new("ledgerline/reproduce-row.v1");
    object.put("experiment", table.document.name);
    object.put("row", line.name.as_str());
    object.put("unit", unit);
    object.put("published", line.published.map(rounded));
    object.put("published_words", line.words);
    object.interval("predicted", ["low", "high"], line.predicted);
    let resolves = table.predicted.as_ref().and_then(|predicted| predicted.experiment.resolves);
    object.put("resolves", line.words.and(resolves).map(rounded));
    // Whether the published value determined the figure. The base of other rows is neither fitted nor predicted.
    object.put("calibration", matches!(line.basis, Some(Basis::Calibrated | Basis::Floor)));
    object.put("basis", serde_json::to_value(line.basis).unwrap_or_default());
    let rates = line.throughput;
    object.put("throughput_unit", rates.map(|_| "operations a second of all threads"));
    object.put("published_throughput", rates.map(|rates| rates.published));
    let ends = ["predicted_throughput_low", "predicted_throughput_high"];
    object.interval("predicted_throughput", ends, rates.map(|rates| rates.predicted));
    let ends = ["predicted_ours_low", "predicted_ours_high"];
    object.interval("predicted_ours", ends, line.ours);
    object.put("measured_unit", measured_unit);
    for (design, figure) in measured.cloned().unwrap_or_default().designs() {
        let ends = ["low", "high"].map(|end| format!("measured_{design}_{end}"));
        object.interval(&format!("measured_{design}"), [&ends[0], &ends[1]], figure);
    }
    object.put("transfer_ns", measured.and_then(|measured| measured.transfer_ns).map(rounded));
    object.put("note", measured.and_then(Measured::note));
    object
}

/// Returns a figure that the document reports of a whole program.
fn reported(table: &Table, one: &Reported) -> Object {
    let mut object = Object::new("ledgerline/reproduce-reported.v1");
    object.put("experiment", table.document.name);
    object.put("row", one.what);
    object.put("method", "published");
    object.put("unit", one.unit);
    // With the digits of the document.
    object.put("published_before", one.before);
    object.put("published_after", one.after);
    object.put("change_percent", one.change().map(rounded));
    object.put("hits", one.hits.map(|(hits, _)| hits));
    object.put("misses", one.hits.map(|(_, misses)| misses));
    object.put("hits_printed_twice", printed_twice(table.document.reported, one));
    let (row, why) = match one.here {
        Here::Row(row) => (Some(row), None),
        Here::Nothing(why) => (None, Some(why)),
    };
    object.put("stands_in_here", row);
    object.put("why_nothing_stands_in", why);
    object
}

/// Returns an object for each design and number of CPUs.
fn places(name: &str, scaling: &Scaling) -> Vec<Object> {
    let place = |row: &str, design: &str, at: &Scale, cost: Interval| {
        let mut object = Object::new("ledgerline/reproduce-curve.v1");
        object.put("experiment", name);
        object.put("row", row);
        object.put("design", design);
        object.put("cpus", at.cpus);
        object.put("unit", "ns");
        object.interval("predicted", ["low", "high"], Some(cost));
        // The sum of all CPUs.
        object.put("operations_per_second", (at.cpus as f64 * 1e9 / cost.median).round());
        object.put("machine", scaling.curve.machine);
        object.put("sockets", at.sockets);
        object.put("grown", at.grown);
        object.put("method", "simulation");
        object
    };
    let designs = scaling.designs();
    let at = |at| designs.map(|(row, design, cost)| place(row, design, at, cost(at)));
    scaling.places.iter().flat_map(at).collect()
}
