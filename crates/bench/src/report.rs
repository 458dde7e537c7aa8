//! Rows as JSON lines, and as a table for people.

use super::row::{Row, Rows};
use ledgerline_view::terminal::style::{Paint, Style};
use serde::Serialize;

/// The part of the time taken by other programs from which the table reports it.
const BUSY: f64 = 0.05;

/// A row in print.
#[derive(Serialize)]
struct Line<'a> {
    schema: &'static str,
    #[serde(flatten)]
    row: &'a Row,
}

/// Returns one JSON object per line.
pub(super) fn json(rows: &[Row]) -> Result<String, String> {
    let mut text = String::new();
    for row in rows {
        let line = Line { schema: "ledgerline/bench.v1", row };
        text += &serde_json::to_string(&line).map_err(|error| error.to_string())?;
        text.push('\n');
    }
    Ok(text)
}

/// Returns a table with a block for each mode and number of threads, in the order of the rows.
pub(super) fn table(
    machine: &str,
    rows: &[Row],
    remark: fn(&Row, Rows<'_>) -> String,
    style: Style,
) -> String {
    let first = rows.iter().map(|row| heading(row).len().max(row.case.len() + 2)).max();
    let first = first.unwrap_or(0);
    let mut text = format!("{machine}\n");
    for block in rows.chunk_by(|a, b| (a.threads, &a.mode) == (b.threads, &b.mode)) {
        let transfers = block.iter().any(|row| row.transfer_ns.is_some());
        text.push('\n');
        let mut line = |name: String, figure: &str, spread: &str, transfer: &str, remark: &str| {
            let mut cells =
                format!("{name}  {}", style.paint(Paint::Strong, &format!("{figure:>9}")));
            let mut rest = format!("  {spread:>20}");
            if transfers {
                rest += &format!("  {transfer:>16}");
            }
            cells += &style.paint(Paint::Faint, &rest);
            if !remark.is_empty() {
                cells += "  ";
                cells += remark;
            }
            text += cells.trim_end();
            text.push('\n');
        };
        line(
            style.paint(Paint::Strong, &format!("{:<first$}", heading(&block[0]))),
            "ns/op",
            "fastest .. slowest",
            "line transfer",
            "",
        );
        let waited = block.iter().map(|row| row.waited).fold(0.0, f64::max);
        for row in block {
            let transfer = match (row.transfer_ns_before, row.transfer_ns_after) {
                (Some(before), Some(after)) => format!("{before:.0} then {after:.0}"),
                _ => String::new(),
            };
            line(
                format!("{:<first$}", format!("  {}", row.case)),
                &figure(row.ns_per_op),
                &format!("{} .. {}", figure(row.min), figure(row.max)),
                &transfer,
                &remark(row, Rows(rows)),
            );
        }
        if waited >= BUSY && !block[0].oversubscribed {
            text += &format!(
                "  other programs had these CPUs for up to {:.0} % of the time, which is not \
                 counted but disturbs\n",
                waited * 100.0
            );
        }
    }
    text
}

fn heading(row: &Row) -> String {
    let plural = if row.threads == 1 { "" } else { "s" };
    let more = if row.oversubscribed { ", more than CPUs" } else { "" };
    format!("{}, {} thread{plural}{more}", row.mode, row.threads)
}

/// Returns a figure with a suitable number of decimals.
fn figure(ns: f64) -> String {
    let decimals = if ns < 99.995 { 2 } else { usize::from(ns < 999.95) };
    format!("{ns:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::super::row::Pass;
    use super::*;
    use crate::measure::harness::{Rounds, Transfer};

    fn rows() -> Vec<Row> {
        let row = |threads, name, ns: f64, transfer: Option<f64>| {
            let one = Rounds::of_one(name, vec![ns * 0.9, ns, ns * 1.25]);
            let pass = Pass {
                suite: "charge",
                mode: "rseq",
                threads,
                runs: 21,
                oversubscribed: threads > 2,
            };
            let transfer = transfer.map(|median| Transfer {
                median,
                before: median - 1.0,
                after: median + 1.0,
            });
            Row::new(pass, &Rounds { transfer, waited: ns / 1000.0, ..one })
        };
        let million = Row {
            groups: Some(1 << 20),
            seconds: Some(1.25),
            resident_bytes: Some(300 << 20),
            waited: 0.0,
            ..row(1, "create_million", 1192.0, None)
        };
        vec![
            row(1, "bare_add", 0.90049, None),
            row(1, "pair_depth1", 2.25, None),
            million,
            row(2, "atomics_depth3", 140.0, Some(71.0)),
            row(4, "bare_add", 1.8, Some(90.0)),
        ]
    }

    #[test]
    fn the_table_is_aligned_and_says_what_it_compares() {
        let table = table(
            "Some CPU, 2 CPUs, Linux 6.18, 2026-01-31",
            &rows(),
            |row, rows| match rows.beside(row, "bare_add") {
                Some(bare) if bare != row.ns_per_op => {
                    format!("{:.2}x bare_add", row.ns_per_op / bare)
                }
                _ => String::new(),
            },
            Style::plain(),
        );
        let expected = "\
Some CPU, 2 CPUs, Linux 6.18, 2026-01-31

rseq, 1 thread                       ns/op    fastest .. slowest
  bare_add                            0.90          0.81 .. 1.13
  pair_depth1                         2.25          2.02 .. 2.81  2.50x bare_add
  create_million                      1192          1073 .. 1490  1324.44x bare_add

rseq, 2 threads                      ns/op    fastest .. slowest     line transfer
  atomics_depth3                     140.0        126.0 .. 175.0        70 then 72
  other programs had these CPUs for up to 14 % of the time, which is not counted but disturbs

rseq, 4 threads, more than CPUs      ns/op    fastest .. slowest     line transfer
  bare_add                            1.80          1.62 .. 2.25        89 then 91
";
        assert_eq!(table, expected, "\n{table}");
    }

    #[test]
    fn colour_changes_nothing_but_the_colour() {
        let plain = table("m", &rows(), |_, _| "r".to_owned(), Style::plain());
        let coloured =
            table("m", &rows(), |_, _| "r".to_owned(), Style { colour: true, ..Style::plain() });
        assert!(!plain.contains('\x1b') && coloured.contains('\x1b'));
        let mut stripped = String::new();
        let mut rest = coloured.as_str();
        while let Some((before, after)) = rest.split_once('\x1b') {
            stripped += before;
            rest = after.split_once('m').unwrap().1;
        }
        stripped += rest;
        let trimmed = |text: &str| text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
        assert_eq!(trimmed(&stripped), trimmed(&plain));
    }

    #[test]
    fn json_is_one_object_a_line_and_reads_back() {
        let rows = rows();
        let text = json(&rows).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            r#"{"schema":"ledgerline/bench.v1","suite":"charge","case":"bare_add","mode":"rseq","threads":1,"oversubscribed":false,"ns_per_op":0.9,"min":0.81,"max":1.126,"runs":21,"waited":0.001}"#
        );
        assert!(
            lines[2].ends_with(r#","groups":1048576,"seconds":1.25,"resident_bytes":314572800}"#)
        );
        assert!(lines[3].ends_with(
            r#","transfer_ns":71.0,"transfer_ns_before":70.0,"transfer_ns_after":72.0}"#
        ));
        let back: Vec<Row> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(back, rows);
    }

    #[test]
    fn figures_have_the_decimals_they_deserve() {
        let texts = [0.004, 9.999, 99.99, 99.996, 140.04, 999.96, 123456.7].map(figure);
        assert_eq!(texts, ["0.00", "10.00", "99.99", "100.0", "140.0", "1000", "123457"]);
    }
}
