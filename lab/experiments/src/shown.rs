//! Tests that the text, the JSON and the page agree, since they come from the same tables.

use super::document::Document;
use super::measured::{Measured, Note};
use super::options::ReproduceArgs;
use super::table::{Line, Table};
use super::{json, page, table, text};
use clap::{Args, Command, FromArgMatches};
use ledgerline_coherence::experiments::Interval;
use ledgerline_view::terminal::progress::Progress;
use ledgerline_view::terminal::style::Style;
use serde_json::Value;

fn args(arguments: &[&str]) -> ReproduceArgs {
    let command = ReproduceArgs::augment_args(Command::new("reproduce"));
    let found = command.get_matches_from([&["reproduce"], arguments].concat());
    ReproduceArgs::from_arg_matches(&found).unwrap()
}

fn predicted(name: &str) -> Table {
    let args = args(&[name, "--no-measure", "--points", "1"]);
    let document = args.documents().next().unwrap();
    table::table(document, &args, &Progress::on_stderr()).unwrap()
}

fn objects(table: &Table) -> Vec<Value> {
    let lines = json::lines(table, false).unwrap();
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns the line of a text that begins with a word.
fn line<'a>(text: &'a str, word: &str) -> &'a str {
    let found = text.lines().find(|line| line.split_whitespace().next() == Some(word));
    found.unwrap_or_else(|| panic!("{word}: {text}"))
}

#[test]
fn floors_and_what_rests_on_them_are_no_predictions_wherever_they_are_shown() {
    let table = predicted("numa-threshold");
    let text = text::table(&table, Style::plain());
    let page = page::page(std::slice::from_ref(&table));
    let objects = objects(&table);
    for (row, sign, cell, basis) in [
        ("125", " = ", "calibrated on", "calibrated"),
        ("4096", " ~ ", "rests on a floor", "floor"),
        ("20000", " = ", "calibrated on", "calibrated"),
        ("30000", " ~ ", "rests on a floor", "floor"),
        ("65533", " = ", "calibrated on", "calibrated"),
    ] {
        assert!(line(&text, row).contains(sign), "{text}");
        let of_page = page.lines().find(|line| line.contains(&format!("<td>{row}</td>"))).unwrap();
        assert!(of_page.starts_with("<tr class=\"calibrated\">") && of_page.contains(cell));
        // The mark in the plot.
        assert!(page.contains(&format!("<title>{row}, {cell}: ")), "{row}");
        let object = objects.iter().find(|object| object["row"] == row).unwrap();
        assert_eq!((&object["basis"], &object["calibration"]), (&basis.into(), &true.into()));
    }
    for row in ["64", "256"] {
        assert!(!line(&text, row).contains(['=', '~']), "{text}");
        let object = objects.iter().find(|object| object["row"] == row).unwrap();
        assert_eq!(
            (&object["basis"], &object["calibration"]),
            (&"prediction".into(), &false.into())
        );
    }
    assert!(text.contains("= calibrated on: no prediction; ~ rests on a floor"), "{text}");
}

#[test]
fn the_published_throughput_stands_beside_what_the_cycles_make_it() {
    let table = predicted("numa-threshold");
    let text = text::table(&table, Style::plain());
    let first = table.lines[0].throughput.unwrap();
    let said = format!("242  {:>9.0}", first.predicted.median / 1e6);
    assert!(line(&text, "32").ends_with(&said), "{text}");
    assert!(text.contains("at 2.19 GHz; the document does not give the clock"), "{text}");
    let object = &objects(&table)[0];
    assert_eq!(object["published_throughput"], 241_760_478.0);
    assert_eq!(
        object["predicted_throughput"].as_f64().unwrap().round(),
        first.predicted.median.round()
    );
    let page = page::page(&[table]);
    assert!(page.contains("<th>M/s, published</th>") && page.contains("<td>242</td>"));
    // Other documents do not have the column.
    let other = predicted("memcg-layout");
    assert!(!text::table(&other, Style::plain()).contains("M/s"));
    assert!(objects_all(&other, "published_throughput").iter().all(Value::is_null));
    assert!(!page::page(&[other]).contains("M/s"));
}

fn objects_all(table: &Table, key: &str) -> Vec<Value> {
    objects(table).into_iter().map(|mut object| object[key].take()).collect()
}

#[test]
fn the_base_of_the_layouts_is_nowhere_called_calibrated_on() {
    let table = predicted("memcg-layout");
    let text = text::table(&table, Style::plain());
    assert!(line(&text, "before").contains(" 0  "), "{text}");
    assert!(text.contains("0 the base of the others") && !text.contains("= calibrated"), "{text}");
    assert!(text.contains("calibrated on: nothing of this document"), "{text}");
    let before = &objects(&table)[0];
    assert_eq!((&before["basis"], &before["calibration"]), (&"base".into(), &false.into()));
    let page = page::page(&[table]);
    let row = page.lines().find(|line| line.contains("<td>before</td>")).unwrap();
    assert!(row.contains("base of the others") && !row.contains("calibrated on"), "{row}");
    assert!(!page.contains("<title>before, calibrated"));
}

/// Returns the table of the document that is only measured, with these rows.
fn followed(rows: Vec<Measured>) -> Table {
    let document = Document::named("rss-cache").unwrap();
    let lines = rows.into_iter().map(|row| {
        let name = row.row.clone();
        Line { name, measured: Some(row), ..Line::default() }
    });
    Table {
        document,
        unit: "",
        predicted: None,
        lines: lines.collect(),
        measured: Ok(()),
        scaling: None,
    }
}

fn measured(row: &str, unit: &'static str) -> Measured {
    let figure = Some(Interval { median: 2.0, low: 1.0, high: 3.0 });
    Measured {
        row: row.to_owned(),
        unit,
        before: figure,
        after: figure,
        ours: figure,
        ..Measured::default()
    }
}

#[test]
fn what_a_document_reports_of_programs_is_shown_with_what_stands_in_or_why_nothing_does() {
    let table = followed(vec![measured("pgbench: time of the accounting", "% of CPU")]);
    let text = text::table(&table, Style::plain());
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    let page = page::page(std::slice::from_ref(&table));
    let objects = objects(&table);
    for one in table.document.reported {
        let object = objects
            .iter()
            .find(|object| object["row"] == one.what && object["unit"] == one.unit)
            .unwrap();
        assert_eq!(object["published_after"].as_f64(), one.after);
        assert_eq!(object["published_before"].as_f64(), one.before);
        assert!(
            object["stands_in_here"].is_string() != object["why_nothing_stands_in"].is_string()
        );
        for value in [one.before, one.after].into_iter().flatten() {
            assert!(text.contains(&format!(" {value}")), "{value}: {text}");
            assert!(page.contains(&format!("<td>{value}</td>")), "{value}");
        }
    }
    assert!(text.contains("1021027/567") && page.contains("<td>68327</td>"));
    let twice = objects.iter().filter(|object| object["hits_printed_twice"] == true);
    assert_eq!((twice.count(), page.matches(" (printed twice)").count()), (2, 2));
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for told in [
        "the document prints the same 35613357 hits",
        "boot and login: nothing stands in: a machine boots once",
    ] {
        assert!(flat.contains(told) && page.contains(told), "{told}: {text}");
    }
    let row = "the row \"pgbench: time of the accounting\" stands in here";
    assert!(flat.contains(row) && page.contains(&row.replace('"', "&quot;")), "{text}");
}

/// Returns the heights of the marks that begin with `begin`, from top to bottom: the second number of each.
fn heights(plot: &str, begin: &str, between: &str) -> Vec<f64> {
    let marks = plot.split(begin).skip(1);
    marks
        .map(|mark| {
            let rest = mark.split_once(between).unwrap().1;
            let end = rest.find(|letter: char| letter != '.' && !letter.is_ascii_digit()).unwrap();
            rest[..end].parse().unwrap()
        })
        .collect()
}

/// Returns the plots of a page, without those of a legend.
fn plots(page: &str) -> Vec<&str> {
    page.split("<div class=\"plot\">")
        .skip(1)
        .map(|rest| rest.split("</div>").next().unwrap())
        .collect()
}

#[test]
fn no_published_diamond_covers_a_dot() {
    let page = page::page(&[predicted("numa-threshold")]);
    let plots = plots(&page);
    let dots = heights(plots[0], "<circle", "cy=\"");
    let diamonds = heights(plots[0], "<path d=\"M", " ");
    assert_eq!((dots.len(), diamonds.len()), (19, 10));
    for diamond in diamonds {
        // A diamond begins at its upper end.
        let middle = diamond + 5.5;
        assert!(dots.iter().all(|dot| (dot - middle).abs() > 5.5 + 3.6), "{middle}: {dots:?}");
    }
    // Over the threshold the two marks overlap, so the diamond is hollow.
    assert!(plots[1].contains("class=\"published hollow\""));
    assert!(page.contains(".hollow { fill: none;"));
}

#[test]
fn every_axis_is_called_by_its_unit_and_has_ticks() {
    let page = page::page(&[predicted("numa-threshold")]);
    let plots = plots(&page);
    let titles = |plot: &str| -> Vec<String> {
        let titles = plot.split("class=\"title\">").skip(1);
        titles.map(|rest| rest.split('<').next().unwrap().to_owned()).collect()
    };
    assert_eq!(titles(plots[0]), ["cycles"]);
    assert_eq!(titles(plots[1]), ["cycles", "threshold (logarithmic)"]);
    for plot in &plots {
        let labels = plot.matches("class=\"tick\"").count();
        // Each tick has a line, and so does each axis.
        assert!(labels >= 4 && plot.matches("class=\"axis\"").count() >= labels, "{plot}");
    }
    // Labels with enough space are shown. A label beside another one is left out, but its tick stays.
    assert!(plots[1].contains(">20k<") && plots[1].contains(">65.5k<"), "{}", plots[1]);
}

#[test]
fn a_page_has_no_column_without_a_heading_and_no_table_of_dashes() {
    let empty =
        Measured { notes: vec![Note::Row("it is not here".to_owned())], ..Measured::default() };
    let empty = |row: &str| Measured { row: row.to_owned(), ..empty.clone() };
    let page = page::page(&[followed(vec![empty("make -j"), empty("pgbench")])]);
    let here = page.split("Measured here").nth(1).unwrap();
    assert!(!here.contains("<table>") && !here.contains("<svg"), "{here}");
    assert!(here.contains("it is not here"), "{here}");
    let text = text::table(&followed(vec![empty("make -j")]), Style::plain());
    assert!(text.contains("measured here: nothing") && text.contains("it is not here"), "{text}");
    assert!(!text.contains(" - "), "{text}");

    let after = Measured { before: None, ours: None, ..measured("a", "ns") };
    let page = page::page(&[followed(vec![after, empty("b")]), predicted("memcg-layout")]);
    assert!(!page.contains("<th></th>"), "{page}");
    let here = page.split("Measured here").nth(1).unwrap().split("<h2").next().unwrap();
    let heads = here.split("<thead>").nth(1).unwrap().split("</thead>").next().unwrap();
    assert!(heads.contains("<th>after</th><th class=\"range\">half lie in</th></tr>"), "{heads}");
    assert!(
        !heads.contains("before") && !here.contains("<td>-</td>") && !here.contains("<td>b</td>")
    );
}

#[test]
fn no_sentence_is_told_row_by_row() {
    let rows = ["a", "b", "c", "d", "e"].iter().zip([0.2, 0.3, 0.25, 0.4, 0.5]);
    let rows = rows.map(|(row, waited)| Measured {
        notes: vec![Note::Same, Note::Waited(waited)],
        ..measured(row, "ns")
    });
    let table = followed(rows.collect());
    let text = text::table(&table, Style::plain());
    let page = page::page(&[table]);
    for told in ["no difference between before and after", "others had the CPUs for up to 50 %"] {
        assert_eq!((text.matches(told).count(), page.matches(told).count()), (1, 1), "{text}");
    }
}
