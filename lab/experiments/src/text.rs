//! Prints tables as text, in 100 columns.

use super::mark::{MARKS, Mark};
use super::measured::Measured;
use super::notes::notes;
use super::plot;
use super::table::{Line, Predicted, Scaling, Table, group};
use super::words::{exact, figure, range, wrapped};
use ledgerline_coherence::experiments::Interval;
use ledgerline_view::terminal::style::{Paint, Style};

/// The standard width of tables.
const WIDTH: usize = 100;

/// Returns the number of columns to print: the terminal's if it has fewer.
fn width(style: Style) -> usize {
    style.width.unwrap_or(WIDTH).clamp(40, WIDTH)
}

/// Wraps a text that follows `begin`, indented to its width.
fn paragraph(begin: &str, says: &str, style: Style) -> String {
    wrapped(begin, says, begin.chars().count(), width(style))
}

/// Returns the whole text of an experiment, with a newline at its end.
pub(super) fn table(table: &Table, style: Style) -> String {
    let document = table.document;
    let mut text = wrapped(
        &format!("{}: ", style.paint(Paint::Strong, document.name)),
        document.title,
        2,
        width(style),
    );
    text += &style.paint(Paint::Faint, &paragraph("  ", document.source, style));
    if let Some(predicted) = &table.predicted {
        text.push('\n');
        text += &there(table, predicted, style);
    }
    text += &reported(table, style);
    text += &here(table, style);
    if let Some(scaling) = &table.scaling {
        text.push('\n');
        text += &curve(scaling, style);
    }
    text
}

/// Formats cells under titles: the first column is aligned left, the others right. `paint` returns the colour of a cell
/// by its row, counted from zero, and its column.
fn columns(
    titles: &[&str],
    rows: &[Vec<String>],
    style: Style,
    paint: impl Fn(usize, usize) -> Option<Paint>,
) -> String {
    let widths: Vec<usize> = (0..titles.len())
        .map(|column| {
            let cells = rows.iter().map(|row| row[column].chars().count());
            cells.chain([titles[column].chars().count()]).max().unwrap_or(0)
        })
        .collect();
    let titles: Vec<String> = titles.iter().map(|&title| title.to_owned()).collect();
    let mut text = String::new();
    for (number, row) in [&titles].into_iter().chain(rows).enumerate() {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let space = " ".repeat(widths[column] - cell.chars().count());
            let paint = number.checked_sub(1).map_or(Some(Paint::Strong), |row| paint(row, column));
            let cell = paint.map_or_else(|| cell.clone(), |paint| style.paint(paint, cell));
            line +=
                &if column == 0 { format!("  {cell}{space}") } else { format!("  {space}{cell}") };
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// Returns the table of published values and predictions.
fn there(table: &Table, predicted: &Predicted, style: Style) -> String {
    let mut titles =
        vec!["predicted there", "published", "predicted", "low .. high", "", "ours", "low .. high"];
    let lines: Vec<&Line> = table.lines.iter().filter(|line| line.predicted.is_some()).collect();
    let throughputs = lines.iter().any(|line| line.throughput.is_some());
    if throughputs {
        titles.extend(["M/s", "predicted"]);
    }
    let rows: Vec<Vec<String>> = lines
        .iter()
        .map(|line| {
            let cells = |interval: Option<Interval>| match interval {
                Some(Interval { median, low, high }) => [figure(median), range(low, high)],
                None => ["-", "-"].map(str::to_owned),
            };
            let mut row = vec![line.name.clone(), line.published()];
            row.extend(cells(line.predicted));
            row.push(line.mark().map_or("", Mark::sign).to_owned());
            row.extend(cells(line.ours));
            if throughputs {
                let rates = line.throughput.map(|rates| [rates.published, rates.predicted.median]);
                row.extend(rates.map_or(["-", "-"].map(str::to_owned), |rates| {
                    rates.map(|rate| figure(rate / 1e6))
                }));
            }
            row
        })
        .collect();
    let Predicted { experiment, cpus, points, ours_assumes } = predicted;
    let rests_on = format!(
        "{}, in {}; {cpus} CPUs, {}, {points} design points",
        table.document.rows, table.unit, experiment.machine
    );
    let mut text = paragraph("  ", &rests_on, style);
    text += &columns(&titles, &rows, style, |row, column| match column {
        2 if lines[row].predicts_nothing() => Some(Paint::Faint),
        2 | 4 if lines[row].mark() == Some(Mark::Outside) => Some(Paint::Bad),
        2 if lines[row].published.is_some() => Some(Paint::Good),
        3 | 6 | 8 => Some(Paint::Faint),
        _ => None,
    });
    let shown = MARKS.iter().filter(|mark| lines.iter().any(|line| line.mark() == Some(**mark)));
    let legend: Vec<String> =
        shown.map(|mark| format!("{} {}", mark.sign(), mark.long())).collect();
    if !legend.is_empty() {
        text += &style.paint(Paint::Faint, &paragraph("  ", &legend.join("; "), style));
    }
    if throughputs {
        text += &paragraph("  M/s: ", &predicted.throughput("millions a second"), style);
    }
    for said in table.in_words() {
        text += &paragraph("  in words: ", &said, style);
    }
    text += &paragraph("  calibrated on: ", &experiment.calibrated_on, style);
    for gap in experiment.under_determined {
        text += &paragraph("  not given: ", gap, style);
    }
    for assumption in *ours_assumes {
        text += &paragraph("  ours: ", assumption, style);
    }
    text
}

/// Returns the table of the document's figures of whole programs.
fn reported(table: &Table, style: Style) -> String {
    let all = table.document.reported;
    if all.is_empty() {
        return String::new();
    }
    let rows: Vec<Vec<String>> = all
        .iter()
        .map(|one| {
            let change = one.change().map_or(String::new(), |change| format!("{change:+.2}%"));
            let counts =
                one.hits.map_or(String::new(), |(hits, misses)| format!("{hits}/{misses}"));
            let what = format!("{}, {}", one.what, one.unit);
            vec![what, exact(one.before), exact(one.after), change, counts]
        })
        .collect();
    let titles = ["published there", "before", "after", "change", "hits/misses"];
    let mut text = "\n".to_owned();
    text += &columns(&titles, &rows, style, |_, _| None);
    for remark in table.remarks() {
        text += &paragraph("  note: ", &remark, style);
    }
    text
}

/// Returns the table of measurements on this machine.
fn here(table: &Table, style: Style) -> String {
    let lines = table.measured_lines();
    match &table.measured {
        Err(error) => return wrapped("\n  not measured here: ", error, 21, width(style)),
        Ok(_) if lines.is_empty() => return String::new(),
        Ok(_) => {}
    }
    let units: Vec<&str> = lines.iter().map(|(_, measured)| measured.unit).collect();
    let one_unit = units.windows(2).all(|pair| pair[0] == pair[1]);
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut open = None;
    // The notes explain why the other rows have no figures.
    for (line, measured) in lines.iter().filter(|(_, measured)| measured.has_figures()) {
        let Measured { unit, transfer_ns, .. } = measured;
        let (of, row) = group(&line.name);
        if of != open
            && let Some(of) = of
        {
            rows.push([of, "", "", "", ""].map(str::to_owned).into());
        }
        open = of;
        let indent = if of.is_some() { "  " } else { "" };
        // A row that counts "updates" does not repeat the unit.
        let said = one_unit || row.starts_with(unit);
        let unit = if said { String::new() } else { format!(", {unit}") };
        let mut cells = vec![format!("{indent}{row}{unit}")];
        let figures = measured.designs().into_iter();
        cells.extend(figures.map(|(_, figure)| figure.map_or("-".to_owned(), spread)));
        cells.push(transfer_ns.map_or("-".to_owned(), |ns| format!("{} ns", figure(ns))));
        rows.push(cells);
    }
    let title = if one_unit { &format!("measured here, {}", units[0]) } else { "measured here" };
    let titles = [title, "before", "after", "ours", "transfer"];
    let mut text = "\n".to_owned();
    if rows.is_empty() {
        text += "  measured here: nothing\n";
    } else {
        text += &columns(&titles, &rows, style, |_, column| (column == 4).then_some(Paint::Faint));
    }
    let transfers = lines.iter().any(|(_, measured)| measured.transfer_ns.is_some());
    if transfers {
        let says = "transfer: what moving a line between two CPUs took meanwhile";
        text += &style.paint(Paint::Faint, &paragraph("  ", says, style));
    }
    for (line, measured) in &lines {
        if let (Some(published), None) = (line.published, line.predicted) {
            let says = format!("{}: {} {}", line.name, figure(published), measured.unit);
            text += &paragraph("  published: ", &says, style);
        }
    }
    for note in notes(&table.lines) {
        text += &paragraph("  note: ", &note, style);
    }
    text
}

/// Formats a median and the largest distance of the rounds from it, as a share of it.
fn spread(figures: Interval) -> String {
    let Interval { median, low, high } = figures;
    let apart = (median - low).max(high - median);
    if apart <= 0.0 || median == 0.0 {
        return figure(median);
    }
    format!("{} \u{b1}{:.0}%", figure(median), 100.0 * apart / median.abs())
}

/// Returns the scaling curve: a plot and its figures.
fn curve(scaling: &Scaling, style: Style) -> String {
    let Scaling { curve, points, places } = scaling;
    let says = format!(
        "nanoseconds a CPU spends on {}, by the number of CPUs that do so; {}, {points} design \
         points, fitted on {} CPUs",
        curve.operation, curve.machine, curve.document_cpus
    );
    let mut text = paragraph("  ", &says, style);
    let designs = scaling.designs();
    let series = designs.map(|(name, _, cost)| plot::Series {
        mark: name.chars().next().expect("a name has letters"),
        values: places.iter().map(|at| (at.cpus, cost(at).median)).collect(),
    });
    if places.len() > 1 {
        text += &plot::plot(&series, width(style), |mark, cell| match mark {
            'b' => style.paint(Paint::Bad, cell),
            'o' => style.paint(Paint::Good, cell),
            _ => style.paint(Paint::Strong, cell),
        });
        let says = format!(
            "b before: {}; a after: {}; o {}; * several of them; both axes are logarithmic",
            curve.before, curve.after, curve.ours
        );
        text += &paragraph("  ", &says, style);
        text.push('\n');
    }
    let titles =
        ["CPUs", "before", "low .. high", "after", "low .. high", "ours", "low .. high", "sockets"];
    let rows: Vec<Vec<String>> = places
        .iter()
        .map(|at| {
            let mut row = vec![at.cpus.to_string()];
            for Interval { median, low, high } in designs.map(|(.., cost)| cost(at)) {
                row.extend([figure(median), range(low, high)]);
            }
            row.push(format!("{}{}", at.sockets, if at.grown { "+" } else { "" }));
            row
        })
        .collect();
    let ranges = |_, column| matches!(column, 2 | 4 | 6).then_some(Paint::Faint);
    text += &columns(&titles, &rows, style, ranges);
    if places.iter().any(|at| at.grown) {
        let grown =
            "+ grown by whole sockets, each one link from the others: no such machine exists";
        text += &style.paint(Paint::Faint, &paragraph("  ", grown, style));
    }
    text
}
