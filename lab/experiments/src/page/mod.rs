//! One self-contained page, without scripts, fonts or other external parts.
//!
//! | module     | what it holds                                             |
//! |------------|-----------------------------------------------------------|
//! | `svg`      | shapes and text                                           |
//! | `dots`     | rows of dots with whiskers                                |
//! | `lines`    | lines with bands over a logarithmic axis                  |
//! | `tables`   | the tables                                                |
//! | `machines` | machine files with their sources                          |

mod dots;
mod lines;
mod machines;
mod svg;
mod tables;

use self::dots::{Dot, Row};
use self::lines::{Around, Place, Series};
use self::svg::{Shape, escaped, prose};
use super::measured::Measured;
use super::notes::notes;
use super::table::{Line, Predicted, Scaling, Table};
use super::words::{each_once, figure, range};
use ledgerline_bench::measure::machine;
use ledgerline_coherence::experiments::{Basis, Interval};
use ledgerline_coherence::machine::Machine;
use std::fmt::Write as _;

const STYLE: &str = include_str!("style.css");

/// Returns the whole page.
pub(super) fn page(tables: &[Table]) -> String {
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\">\n<title>Ledgerline: experiments reproduced</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<h1>What memory accounting costs on many CPUs</h1>\n"
    );
    out += "<p>Experiments that kernel developers published, held against a simulation of the lines that move \
            between their machines' CPUs, and against designs measured on this machine. A prediction is a \
            median; its interval is the range over everything that nobody published.</p>\n";
    out += "<nav><ul>\n";
    for table in tables {
        let (name, title) = (table.document.name, escaped(table.document.title));
        let _ = writeln!(out, "<li><a href=\"#{name}\">{name}</a>: {title}</li>");
    }
    out += "</ul></nav>\n";
    tables.iter().for_each(|table| section(&mut out, table));
    let used = each_once(tables.iter().filter_map(machine_of));
    if !used.is_empty() {
        out += "<h2 id=\"machines\">The machines</h2>\n<p>Latencies of idle machines, each with its source; and \
                what decides contended costs and stands in no table, as ranges that predictions run over.</p>\n";
        used.iter().for_each(|name| out += &machines::machine(name));
    }
    out + "</body>\n</html>\n"
}

fn machine_of(table: &Table) -> Option<&'static str> {
    let predicted = table.predicted.as_ref().map(|predicted| predicted.experiment.machine);
    predicted.or(table.scaling.as_ref().map(|scaling| scaling.curve.machine))
}

fn section(out: &mut String, table: &Table) {
    let document = table.document;
    let _ = write!(
        out,
        "<h2 id=\"{0}\">{0}</h2>\n<p>{1}.</p>\n<p class=\"source\">{2}.</p>\n",
        document.name,
        capital(document.title),
        escaped(document.source)
    );
    if let Some(rests_on) = &table.predicted {
        predicted(out, table, rests_on);
    }
    if let Some(curve) = &table.scaling {
        scaling(out, curve);
    }
    reported(out, table);
    measured(out, table);
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    escaped(&(first + letters.as_str()))
}

fn predicted(out: &mut String, table: &Table, rests_on: &Predicted) {
    let Predicted { experiment, cpus, points, ours_assumes } = rests_on;
    let _ = writeln!(
        out,
        "<h3>Published and predicted</h3>\n<p>{}, in {}. {cpus} CPUs of <a href=\"#machines\">{}</a>, {points} design points.</p>",
        capital(table.document.rows),
        escaped(table.unit),
        experiment.machine
    );
    *out += &legend(
        &[
            ("published", Shape::Diamond, "published"),
            ("predicted", Shape::Dot, "predicted"),
            ("ours", Shape::Dot, "our own design, predicted there"),
            ("fitted", Shape::Dot, "on shaded ground: no prediction (calibrated on, or the base)"),
        ][..if table.lines.iter().any(Line::predicts_nothing) { 4 } else { 3 }],
    );
    let lines = table.lines.iter().filter(|line| line.predicted.is_some());
    let rows: Vec<Row> = lines.map(|line| row(line, table.unit)).collect();
    let says = format!("{}: published against predicted, in {}", table.document.name, table.unit);
    *out += &dots::plot(&rows, table.unit, &says);
    if table.document.name == "numa-threshold" {
        *out += &thresholds(table);
    }
    *out += &tables::predicted(table);
    if table.lines.iter().any(|line| line.throughput.is_some()) {
        let says = rests_on.throughput("millions a second");
        let _ = writeln!(out, "<p class=\"small\">M/s: {}.</p>", escaped(&says));
    }
    let in_words = table.in_words();
    if !in_words.is_empty() {
        list(out, "The document says in words", &in_words);
    }
    let _ = writeln!(out, "<p><b>Calibrated on</b> {}.</p>", prose(&experiment.calibrated_on));
    list(out, "The document does not give", experiment.under_determined);
    list(out, "Assumed of ours", ours_assumes);
}

fn list(out: &mut String, title: &str, items: &[impl AsRef<str>]) {
    let _ = writeln!(out, "<p><b>{title}</b></p>\n<ul class=\"gaps\">");
    items.iter().for_each(|item| {
        let _ = writeln!(out, "<li>{}</li>", prose(item.as_ref()));
    });
    *out += "</ul>\n";
}

/// Returns the legend of a plot's marks.
fn legend(marks: &[(&str, Shape, &str)]) -> String {
    let mut out = "<ul class=\"legend\">\n".to_owned();
    for (class, shape, says) in marks {
        let mut drawn = String::new();
        if *shape == Shape::Dot {
            svg::line(&mut drawn, (1.0, 7.0), (25.0, 7.0), &format!("whisker {class}"));
        }
        svg::mark(&mut drawn, 13.0, 7.0, *shape, class, says);
        let says = escaped(says);
        let _ = writeln!(
            out,
            "<li><svg viewBox=\"0 0 26 14\" aria-hidden=\"true\">{drawn}</svg>{says}</li>"
        );
    }
    out + "</ul>\n"
}

fn row(line: &Line, unit: &str) -> Row {
    let (class, said) = match line.mark() {
        Some(mark) if line.predicts_nothing() => ("fitted", mark.short()),
        _ => ("predicted", "predicted"),
    };
    let predicted = line.predicted.map(|interval| dot(line, class, 1, interval, said, unit));
    let published = line.published.map(|value| published_dot(line, 0, value, unit));
    let ours = line.ours.map(|interval| dot(line, "ours", 2, interval, "ours, predicted", unit));
    let dots = [predicted, published, ours].into_iter().flatten().collect();
    Row { name: line.name.clone(), shaded: line.predicts_nothing(), dots }
}

/// Returns the dot of a simulated or measured figure.
fn dot(
    line: &Line,
    class: &'static str,
    lane: usize,
    interval: Interval,
    said: &str,
    unit: &str,
) -> Dot {
    let Interval { median: value, low, high } = interval;
    let says = format!("{}, {said}: {} {unit} ({})", line.name, figure(value), range(low, high));
    Dot { class, shape: Shape::Dot, lane, value, whisker: Some((low, high)), says }
}

fn published_dot(line: &Line, lane: usize, value: f64, unit: &str) -> Dot {
    let says = format!("{}, published: {} {unit}", line.name, figure(value));
    Dot { class: "published", shape: Shape::Diamond, lane, value, whisker: None, says }
}

/// Plots cycles over the threshold, like the document's table.
fn thresholds(table: &Table) -> String {
    let at = |line: &Line| line.name.parse::<f64>().ok();
    let places = |of: &dyn Fn(&Line) -> Option<Interval>| -> Vec<Place> {
        let lines = table.lines.iter();
        lines.filter_map(|line| Some(Place { x: at(line)?, cost: of(line)? })).collect()
    };
    let idle = |place: &Place| {
        table.lines.iter().any(|line| at(line) == Some(place.x) && line.predicts_nothing())
    };
    let published = |line: &Line| {
        line.published.map(|value| Interval { median: value, low: value, high: value })
    };
    let series = |class: &'static str, shape, of: &dyn Fn(&Line) -> Option<Interval>| Series {
        class,
        name: class.to_owned(),
        shape,
        places: places(of),
        grey: Vec::new(),
    };
    let mut predicted = series("predicted", Shape::Dot, &|line| line.predicted);
    predicted.grey = predicted.places.iter().map(idle).collect();
    let series = [
        series("ours", Shape::Dot, &|line| line.ours),
        predicted,
        series("published", Shape::Diamond, &published),
    ];
    let fitted = |line: &&Line| line.basis == Some(Basis::Calibrated);
    let calibrated = table.lines.iter().find(fitted).and_then(at);
    lines::plot(
        &series,
        &Around {
            across: "threshold",
            up: table.unit,
            says: "cycles of an allocation by threshold, published, predicted and ours",
            at: calibrated.map(|threshold| (threshold, "calibrated on".to_owned())),
            ground: None,
        },
    )
}

fn scaling(out: &mut String, scaling: &Scaling) {
    let Scaling { curve, points, places } = scaling;
    let cpus = Machine::built_in(curve.machine).map_or(0, |machine| machine.topology.cpus());
    let _ = writeln!(
        out,
        "<h3>By the number of CPUs</h3>\n<p>Nanoseconds that a CPU spends on {}, when so many do so at once; \
         {points} design points, fitted on {} CPUs. Above {cpus} CPUs the machine is grown by whole sockets, \
         each one link from the others: no such machine exists.</p>",
        escaped(curve.operation),
        curve.document_cpus
    );
    let designs = scaling.designs();
    *out += &legend(&designs.map(|(class, says, _)| (class, Shape::Dot, says)));
    let series = designs.map(|(class, name, cost)| Series {
        class,
        name: name.to_owned(),
        shape: Shape::Dot,
        grey: Vec::new(),
        places: places.iter().map(|at| Place { x: at.cpus as f64, cost: cost(at) }).collect(),
    });
    *out += &lines::plot(
        &series,
        &Around {
            across: "CPUs",
            up: "ns an operation",
            says: "cost of an operation by number of CPUs, before, after and ours",
            at: Some((
                curve.document_cpus as f64,
                format!("the document: {} CPUs", curve.document_cpus),
            )),
            ground: Some((cpus as f64, "grown")),
        },
    );
    *out += &tables::scaling(scaling);
}

/// Prints the document's figures of whole programs.
fn reported(out: &mut String, table: &Table) {
    if table.document.reported.is_empty() {
        return;
    }
    *out += "<h3>Published</h3>\n";
    *out += &tables::reported(table.document.reported);
    for remark in table.remarks() {
        let _ = writeln!(out, "<p class=\"small\">{}</p>", escaped(&remark));
    }
}

fn measured(out: &mut String, table: &Table) {
    if let Err(error) = &table.measured {
        let _ = writeln!(out, "<h3>Measured here</h3>\n<p>Not measured: {}</p>", escaped(error));
        return;
    }
    let mut lines = table.measured_lines();
    if lines.is_empty() {
        return;
    }
    // The notes explain why the other rows have no figures.
    lines.retain(|(_, measured)| measured.has_figures());
    let here = machine::describe(machine::allowed_cpus().map_or(1, |cpus| cpus.len()));
    let _ = writeln!(out, "<h3>Measured here</h3>\n<p>{}.</p>", escaped(&here));
    let mut marks =
        Vec::from(["before", "after", "ours"].map(|design| (design, Shape::Dot, design)));
    if lines.iter().any(|(line, _)| line.published.is_some() && line.predicted.is_none()) {
        marks.push(("published", Shape::Diamond, "published"));
    }
    if !lines.is_empty() {
        *out += &legend(&marks);
    }
    // Each unit has an axis of its own.
    for unit in each_once(lines.iter().map(|(_, measured)| measured.unit)) {
        let rows = lines.iter().filter(|(_, measured)| measured.unit == unit);
        let rows: Vec<Row> = rows.map(|(line, measured)| measured_row(line, measured)).collect();
        *out +=
            &dots::plot(&rows, unit, &format!("measured here, in {unit}: before, after and ours"));
    }
    if !lines.is_empty() {
        *out += &tables::measured(&lines);
    }
    for note in notes(&table.lines) {
        let _ = writeln!(out, "<p class=\"small\">{}</p>", prose(&note));
    }
}

fn measured_row(line: &Line, measured: &Measured) -> Row {
    let designs = measured.designs().into_iter().zip(0..);
    let dots = designs.filter_map(|((class, interval), lane)| {
        Some(dot(line, class, lane, interval?, class, measured.unit))
    });
    let published = line.published.filter(|_| line.predicted.is_none());
    let published = published.map(|value| published_dot(line, 3, value, measured.unit));
    Row { name: line.name.clone(), shaded: false, dots: dots.chain(published).collect() }
}
