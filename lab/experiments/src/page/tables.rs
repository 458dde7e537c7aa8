//! The tables of a page.

use super::super::mark::Mark;
use super::super::measured::Measured;
use super::super::reported::{Reported, printed_twice};
use super::super::table::{Line, Scaling, Table};
use super::super::words::{exact, figure, range};
use super::svg::escaped;
use ledgerline_coherence::experiments::Interval;
use std::fmt::Write as _;

fn interval(interval: Option<Interval>) -> String {
    let cells = interval.map(|Interval { median, low, high }| (figure(median), range(low, high)));
    let (median, range) = cells.unwrap_or(("-".to_owned(), String::new()));
    format!("<td>{median}</td><td class=\"range\">{range}</td>")
}

/// Returns the table of published values, predictions and ours.
pub(super) fn predicted(table: &Table) -> String {
    let lines = || table.lines.iter().filter(|line| line.predicted.is_some());
    let throughputs = lines().any(|line| line.throughput.is_some());
    let mut out = format!(
        "<div class=\"wide\"><table><thead><tr><th>{}</th><th>published</th><th>predicted</th>\
         <th class=\"range\">low .. high</th><th>mark</th><th>ours</th>\
         <th class=\"range\">low .. high</th>{}</tr></thead><tbody>\n",
        escaped(table.unit),
        if throughputs { "<th>M/s, published</th><th>M/s, predicted</th>" } else { "" }
    );
    for line in lines() {
        let class = if line.predicts_nothing() { " class=\"calibrated\"" } else { "" };
        let mark = match line.mark() {
            Some(mark) => {
                let class = if mark == Mark::Outside { "missed" } else { "range" };
                format!("<td class=\"{class}\">{}</td>", mark.short())
            }
            None => "<td></td>".to_owned(),
        };
        let rates = line.throughput.filter(|_| throughputs).map_or(String::new(), |rates| {
            let [published, predicted] =
                [rates.published, rates.predicted.median].map(|rate| figure(rate / 1e6));
            format!("<td>{published}</td><td>{predicted}</td>")
        });
        let published = line.published();
        let _ = writeln!(
            out,
            "<tr{class}><td>{}</td><td>{published}</td>{}{mark}{}{rates}</tr>",
            escaped(&line.name),
            interval(line.predicted),
            interval(line.ours)
        );
    }
    out + "</tbody></table></div>\n"
}

/// Returns the table of a document's figures of whole programs.
pub(super) fn reported(all: &[Reported]) -> String {
    let mut out = "<div class=\"wide\"><table><thead><tr><th>there</th><th>unit</th><th>before</th><th>after</th>\
                   <th>change</th><th>hits</th><th>misses</th></tr></thead><tbody>\n"
        .to_owned();
    for one in all {
        let _ = writeln!(
            out,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}{}</td><td>{}</td></tr>",
            escaped(one.what),
            escaped(one.unit),
            exact(one.before),
            exact(one.after),
            one.change().map_or(String::new(), |change| format!("{change:+.2} %")),
            exact(one.hits.map(|(hits, _)| hits)),
            if printed_twice(all, one) { " (printed twice)" } else { "" },
            exact(one.hits.map(|(_, misses)| misses)),
        );
    }
    out + "</tbody></table></div>\n"
}

/// Returns the table of measurements. A column without figures is left out, and a missing figure is an empty cell.
pub(super) fn measured(lines: &[(&Line, &Measured)]) -> String {
    let shown = [0, 1, 2]
        .map(|design| lines.iter().any(|(_, measured)| measured.designs()[design].1.is_some()));
    let transfers = lines.iter().any(|(_, measured)| measured.transfer_ns.is_some());
    let mut out = "<div class=\"wide\"><table><thead><tr><th>here</th><th>unit</th>".to_owned();
    for ((name, _), _) in Measured::default().designs().into_iter().zip(shown).filter(|one| one.1) {
        let _ = write!(out, "<th>{name}</th><th class=\"range\">half lie in</th>");
    }
    out += if transfers { "<th>line transfer, ns</th>" } else { "" };
    out += "</tr></thead><tbody>\n";
    for (line, measured) in lines {
        let cells = measured.designs().into_iter().zip(shown).filter(|one| one.1);
        let cells = cells.map(|((_, found), _)| match found {
            None => "<td></td><td></td>".to_owned(),
            // A count that was made once has no spread.
            Some(Interval { median, low, high }) if low >= high => {
                format!("<td>{}</td><td></td>", figure(median))
            }
            found => interval(found),
        });
        let transfer = measured.transfer_ns.map_or(String::new(), figure);
        let _ = writeln!(
            out,
            "<tr><td>{}</td><td class=\"range\">{}</td>{}{}</tr>",
            escaped(&line.name),
            escaped(measured.unit),
            cells.collect::<String>(),
            if transfers { format!("<td>{transfer}</td>") } else { String::new() },
        );
    }
    out + "</tbody></table></div>\n"
}

/// Returns a curve's figures, folded up.
pub(super) fn scaling(scaling: &Scaling) -> String {
    let Scaling { curve, places, .. } = scaling;
    let mut out = format!(
        "<details><summary>Figures, ns</summary><div class=\"wide\"><table><thead><tr><th>CPUs</th><th>{}</th>\
         <th class=\"range\">low .. high</th><th>{}</th><th class=\"range\">low .. high</th><th>{}</th>\
         <th class=\"range\">low .. high</th><th>sockets</th></tr></thead><tbody>\n",
        escaped(curve.before),
        escaped(curve.after),
        escaped(curve.ours)
    );
    for at in places {
        let _ = writeln!(
            out,
            "<tr><td>{}</td>{}{}{}<td>{}{}</td></tr>",
            at.cpus,
            interval(Some(at.before)),
            interval(Some(at.after)),
            interval(Some(at.ours)),
            at.sockets,
            if at.grown { ", grown" } else { "" }
        );
    }
    out + "</tbody></table></div></details>\n"
}
