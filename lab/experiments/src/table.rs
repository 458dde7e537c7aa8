//! An experiment's results: published, predicted, measured, and ours.

use super::document::Document;
use super::mark::Mark;
use super::measured::{Measured, measure};
use super::options::ReproduceArgs;
use super::reported::{self, Here};
use super::words::{figure, range};
use ledgerline_coherence::experiments::study::{Curve, Scale, Study};
use ledgerline_coherence::experiments::{Basis, Experiment, Interval, Throughput, ours};
use ledgerline_coherence::machine::Machine;
use ledgerline_coherence::simulate::Error;
use ledgerline_view::terminal::progress::Progress;

/// An experiment with all its results.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) document: &'static Document,
    /// The unit of the published and predicted values; empty if there are none.
    pub(super) unit: &'static str,
    /// The simulation, if there was one.
    pub(super) predicted: Option<Predicted>,
    pub(super) lines: Vec<Line>,
    /// The reason if the measurement failed.
    pub(super) measured: Result<(), String>,
    pub(super) scaling: Option<Scaling>,
}

/// The basis of the predictions.
#[derive(Debug)]
pub(super) struct Predicted {
    /// The result of the simulation. Its rows are the table's lines.
    pub(super) experiment: Experiment,
    pub(super) cpus: usize,
    pub(super) points: usize,
    pub(super) ours_assumes: &'static [&'static str],
}

impl Predicted {
    /// Returns the title of the column of throughputs, in `unit`.
    pub(super) fn throughput(&self, unit: &str) -> String {
        let clock =
            Machine::built_in(self.experiment.machine).map_or(f64::NAN, |at| at.clock_ghz.value);
        format!(
            "throughput of {} threads in {unit}, as published and as the predicted cycles make it at {clock} GHz; \
             the document does not give the clock, which was taken from this column: it predicts nothing \
             that the cycles do not",
            self.cpus
        )
    }
}

/// A row of a document, or one that was only measured.
#[derive(Debug, Default)]
pub(super) struct Line {
    pub(super) name: String,
    pub(super) published: Option<f64>,
    /// The document's statement in words, if it has no figure.
    pub(super) words: Option<&'static str>,
    pub(super) predicted: Option<Interval>,
    /// The basis of the predicted figure.
    pub(super) basis: Option<Basis>,
    pub(super) throughput: Option<Throughput>,
    /// The prediction for our own design, on the document's machine.
    pub(super) ours: Option<Interval>,
    pub(super) measured: Option<Measured>,
}

/// The cost of an operation by the number of CPUs.
#[derive(Debug)]
pub(super) struct Scaling {
    pub(super) curve: Curve,
    pub(super) points: usize,
    pub(super) places: Vec<Scale>,
}

/// `before`, `after` or `ours`, the document's name of that design, and its cost at a number of CPUs.
pub(super) type Design = (&'static str, &'static str, fn(&Scale) -> Interval);

impl Scaling {
    /// Returns the three designs.
    pub(super) fn designs(&self) -> [Design; 3] {
        let Curve { before, after, ours, .. } = self.curve;
        [
            ("before", before, |at| at.before),
            ("after", after, |at| at.after),
            ("ours", ours, |at| at.ours),
        ]
    }
}

impl Line {
    /// Returns the mark of the predicted figure, if it needs one.
    pub(super) fn mark(&self) -> Option<Mark> {
        Mark::of(self.basis?, self.published, self.predicted?)
    }

    /// Returns the published figure, or a sign that the document has words.
    pub(super) fn published(&self) -> String {
        match (self.published, self.words) {
            (Some(value), _) => figure(value),
            (None, Some(_)) => "in words".to_owned(),
            (None, None) => "-".to_owned(),
        }
    }

    /// Returns whether the figure in the column of predictions is not a prediction.
    pub(super) fn predicts_nothing(&self) -> bool {
        self.basis.is_some_and(|basis| !basis.predicts())
    }
}

impl Table {
    /// Returns the document's statements in words, each with the resolution of the model.
    pub(super) fn in_words(&self) -> Vec<String> {
        let resolves = self.predicted.as_ref().and_then(|predicted| predicted.experiment.resolves);
        let said = self.lines.iter().filter_map(|line| {
            let (words, Interval { median, low, high }) = (line.words?, line.predicted?);
            let resolved = resolves.map_or(String::new(), |least| {
                let most = low.abs().max(high.abs());
                let can = if most > least { "tells" } else { "cannot tell" };
                format!(
                    "; two runs of one layout differ by up to {}, so the model {can} it from the base",
                    figure(least)
                )
            });
            let predicted = format!("{} ({})", figure(median), range(low, high));
            Some(format!("{}: \"{words}\"; predicted {predicted}{resolved}", line.name))
        });
        said.collect()
    }

    /// Returns the lines that were measured here, with their results.
    pub(super) fn measured_lines(&self) -> Vec<(&Line, &Measured)> {
        self.lines.iter().filter_map(|line| Some((line, line.measured.as_ref()?))).collect()
    }

    /// Returns the remarks about the document's figures of whole programs.
    pub(super) fn remarks(&self) -> Vec<String> {
        let measured = |row: &str| {
            let line = self.lines.iter().find(|line| line.name == row)?;
            Some(line.measured.as_ref()?.has_figures())
        };
        reported::remarks(self.document.reported, measured)
    }
}

/// Predicts and measures one experiment, according to the options.
pub(super) fn table(
    document: &'static Document,
    args: &ReproduceArgs,
    progress: &Progress,
) -> Result<Table, String> {
    let name = document.name;
    let mut table = Table {
        document,
        unit: "",
        predicted: None,
        lines: Vec::new(),
        measured: Ok(()),
        scaling: None,
    };
    let tell = |what: &str| progress.show(format_args!("{name}: {what}"));
    if document.is_simulated() {
        if !args.curves_alone() {
            tell(&format!("predicting, {} design points", args.points()));
            predict(&mut table, args)?;
        }
        let cpus = args.curve();
        if !cpus.is_empty() {
            table.scaling = Some(scaling(document, args, cpus, &tell)?);
        }
    }
    if args.measures() {
        match measure(name, args.quick, &tell) {
            Ok(rows) => {
                join(&mut table.lines, rows);
                for one in document.reported.iter().filter(|one| one.hits.is_some()) {
                    // These rows have the same figure as the document, and not only a bound of it.
                    let Here::Row(row) = one.here else { continue };
                    if let Some(line) = table.lines.iter_mut().find(|line| line.name == row) {
                        line.published = one.after;
                    }
                }
            }
            Err(error) => table.measured = Err(error),
        }
    }
    Ok(table)
}

/// Formats a simulation's error for the user.
fn told(name: &str) -> impl Fn(Error) -> String + Copy {
    move |error| format!("{name}: {error}")
}

fn predict(table: &mut Table, args: &ReproduceArgs) -> Result<(), String> {
    let name = table.document.name;
    let told = told(name);
    let study = Study::fit(name, args.points(), args.row()).map_err(told)?;
    let mut experiment = study.table().map_err(told)?;
    let rows = std::mem::take(&mut experiment.rows);
    let ours = study.ours().map_err(told)?;
    table.unit = experiment.unit;
    table.predicted = Some(Predicted {
        experiment,
        cpus: study.curve().document_cpus,
        points: args.points(),
        ours_assumes: ours::assumptions(name),
    });
    table.lines.extend(rows.into_iter().zip(ours).map(|(row, ours)| Line {
        name: row.name,
        published: row.published,
        words: row.words,
        predicted: Some(row.predicted),
        basis: Some(row.basis),
        throughput: row.throughput,
        ours,
        measured: None,
    }));
    Ok(())
}

fn scaling(
    document: &Document,
    args: &ReproduceArgs,
    mut cpus: Vec<usize>,
    tell: &dyn Fn(&str),
) -> Result<Scaling, String> {
    let name = document.name;
    let told = told(name);
    tell(&format!("fitting {} design points", args.curve_points()));
    let study = Study::fit(name, args.curve_points(), args.row()).map_err(told)?;
    // By default, the document's own number of CPUs is a place of the curve.
    if !args.cpus_chosen() {
        cpus.push(study.curve().document_cpus);
        cpus.sort_unstable();
        cpus.dedup();
    }
    let place = |&cpus: &usize| {
        tell(&format!("simulating {cpus} CPUs"));
        study.at(cpus).map_err(told)
    };
    Ok(Scaling {
        curve: study.curve(),
        points: args.curve_points(),
        places: cpus.iter().map(place).collect::<Result<_, _>>()?,
    })
}

/// Joins measured rows with the document's rows of the same name. Others follow.
fn join(lines: &mut Vec<Line>, rows: Vec<Measured>) {
    for row in rows {
        let free = |line: &&mut Line| line.name == row.row && line.measured.is_none();
        if let Some(line) = lines.iter_mut().find(free) {
            line.measured = Some(row);
        } else {
            let name = row.row.clone();
            lines.push(Line { name, measured: Some(row), ..Line::default() });
        }
    }
}

/// Splits the name of a row (`group: row`) into the group, if there is one, and the row.
pub(super) fn group(name: &str) -> (Option<&str>, &str) {
    name.split_once(": ").map_or((None, name), |(group, row)| (Some(group), row))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(row: &str) -> Measured {
        Measured { row: row.to_owned(), unit: "ns", ..Measured::default() }
    }

    #[test]
    fn measured_rows_stand_beside_theirs_and_others_follow() {
        let mut lines = Vec::new();
        join(&mut lines, vec![measured("a"), measured("b")]);
        lines.iter_mut().for_each(|line| line.measured = None);
        join(&mut lines, vec![measured("b"), measured("c"), measured("b")]);
        let names: Vec<(&str, bool)> =
            lines.iter().map(|line| (line.name.as_str(), line.measured.is_some())).collect();
        assert_eq!(names, [("a", false), ("b", true), ("c", true), ("b", true)]);
    }
}
