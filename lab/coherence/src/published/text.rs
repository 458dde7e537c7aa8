//! Cases with their predictions as a table, in 100 columns.

use super::{Case, Decided, Predicted, Work};
use crate::machine::Range;
use std::fmt::Write as _;

/// Returns the rows of cases, each with its result and the two ranges that it depends on most.
///
/// Changes are printed in whole per cent from 10 on, and in tenths below.
#[must_use]
pub fn table(cases: &[(Case, Vec<Predicted>, Decided)]) -> String {
    let mut text = format!(
        "{:22}{:>5}{:>10}{:>10}  {:17}{:7}{}\n",
        "case", "CPUs", "published", "predicted", "low .. high", "inside", "turns on"
    );
    for (case, rows, decided) in cases {
        for (index, row) in rows.iter().enumerate() {
            let inside = match (row.right_sign(), row.inside()) {
                (false, _) => "SIGN",
                (true, true) => "yes",
                (true, false) => "no",
            };
            let name = if index == 0 { case.name.as_str() } else { "" };
            let turns = if index == 0 { turns(case, decided) } else { String::new() };
            let interval =
                format!("{} .. {}", percent(row.predicted.low), percent(row.predicted.high));
            let line = format!(
                "{name:22}{:>5}{:>10}{:>10}  {interval:17}{inside:7}{turns}",
                row.cpus,
                percent(row.published),
                percent(row.predicted.median),
            );
            let _ = writeln!(text, "{}", line.trim_end());
        }
    }
    let signs = cases.iter().filter(|(_, rows, _)| rows.iter().all(Predicted::right_sign)).count();
    let inside = cases.iter().filter(|(_, rows, _)| rows.iter().all(Predicted::inside)).count();
    let _ = writeln!(
        text,
        "{} case{}: the sign is right in {signs}, every published figure is inside in {inside}",
        cases.len(),
        if cases.len() == 1 { "" } else { "s" }
    );
    text
}

/// Returns the two most important of the ranges that the answer depends on. The case's own ranges come before the
/// machine's.
fn turns(case: &Case, decided: &Decided) -> String {
    let of_case =
        |name: &str| name == "work" || case.unknowns.iter().any(|(unknown, _)| unknown == name);
    let names = decided.turns_on().map(|alone| alone.name.as_str());
    let (first, last): (Vec<&str>, Vec<&str>) = names.partition(|name| of_case(name));
    let names = [first, last].concat();
    match names.len() {
        0 => "-".to_owned(),
        1 | 2 => names.join(", "),
        _ => format!("{} ..", names[..2].join(", ")),
    }
}

/// Returns a change with its significant digits.
fn percent(change: f64) -> String {
    if change.abs() >= 9.95 { format!("{change:+.0} %") } else { format!("{change:+.1} %") }
}

/// Returns a range in a unit, with its source.
fn believed(range: &Range, unit: &str) -> String {
    let Range { low, best, high, source } = range;
    format!("{low} .. {best} .. {high}{unit}: {source}")
}

impl Case {
    /// Returns the description of a case: sources, assumptions, the figures left open, and the effect of each range
    /// alone.
    #[must_use]
    pub fn describe(&self, rows: &[Predicted], decided: &Decided) -> String {
        let mut text = format!("{}: {}\n  source: {}\n", self.name, self.title, self.source);
        let mut say = |what: &str, said: &str| {
            let _ = writeln!(text, "  {what}: {said}");
        };
        say("says", &self.says);
        say("machine", &format!("{}, {}", self.machine_name, self.why_machine));
        for row in &self.rows {
            let figures = row.throughput.map_or(String::new(), |[before, after]| {
                format!(", {before} to {after} {}", self.unit)
            });
            say("published", &format!("{} on {} CPUs{figures}", percent(row.change), row.cpus));
        }
        match &self.work {
            Work::Fitted(why) => {
                let reached = rows.first().map_or(1.0, |row| 100.0 * row.reached);
                let said =
                    format!("fitted on the layout before, at {reached:.0} % of the points; {why}");
                say("work", &said);
            }
            Work::Unknown(range) => {
                say("work", &believed(range, " ns"));
            }
        }
        for (name, range) in &self.unknowns {
            say(name, &believed(range, ""));
        }
        for assumed in &self.assumes {
            say("assumes", assumed);
        }
        for row in rows {
            let interval = row.predicted;
            let said = format!(
                "{} ({} .. {}) on {} CPUs; {:.0} % of the points have the published sign",
                percent(interval.median),
                percent(interval.low),
                percent(interval.high),
                row.cpus,
                100.0 * row.agreeing
            );
            say("predicted", &said);
        }
        let turning: Vec<&str> = decided.turns_on().map(|alone| alone.name.as_str()).collect();
        for alone in &decided.alone {
            let [low, high] = alone.changes.map(percent);
            let [least, most] = alone.ends;
            let mark = if turning.contains(&alone.name.as_str()) { "turns on" } else { "alone" };
            say(mark, &format!("{} of {least} gives {low}, of {most} {high}", alone.name));
        }
        text
    }
}
