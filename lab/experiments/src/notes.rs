//! Collects the notes of measured rows, each once.

use super::measured::{Measured, Note};
use super::table::{Line, group};
use super::words::each_once;

/// Returns each note once, with the rows that it is about unless it is about all of them.
pub(super) fn notes(lines: &[Line]) -> Vec<String> {
    let rows: Vec<(&str, &Measured)> = lines
        .iter()
        .filter_map(|line| Some((line.name.as_str(), line.measured.as_ref()?)))
        .collect();
    let mut told: Vec<(Note, Vec<&str>)> = Vec::new();
    for &(name, measured) in &rows {
        for note in &measured.notes {
            let known = told.iter_mut().find_map(|known| Some((known.0.and(note)?, known)));
            match known {
                Some((both, known)) => {
                    known.0 = both;
                    known.1.push(name);
                }
                None => told.push((note.clone(), vec![name])),
            }
        }
    }
    told.iter().map(|(note, about)| with_rows(note, about, &rows)).collect()
}

fn with_rows(note: &Note, about: &[&str], rows: &[(&str, &Measured)]) -> String {
    let grouped = rows.iter().any(|(name, _)| group(name).0.is_some());
    let could: Vec<&str> = rows
        .iter()
        .filter(|(_, measured)| match note {
            Note::Same => measured.before.is_some() && measured.after.is_some(),
            _ => true,
        })
        .map(|(name, _)| *name)
        .collect();
    let says = note.says();
    if about == could || matches!(note, Note::Table(_)) && !grouped {
        return says;
    }
    // A group of rows is named by the group.
    let names = each_once(about.iter().map(|name| group(name).0.unwrap_or(name)));
    // Names that contain commas are separated by semicolons.
    let between = if names.iter().any(|name| name.contains(',')) { "; " } else { ", " };
    format!("{}: {says}", names.join(between))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledgerline_coherence::experiments::Interval;

    fn line(row: &str, notes: &[Note]) -> Line {
        let figure = Some(Interval { median: 1.0, low: 1.0, high: 1.0 });
        let notes = notes.to_vec();
        let row = row.to_owned();
        let measured = Measured {
            row: row.clone(),
            before: figure,
            after: figure,
            notes,
            ..Measured::default()
        };
        Line { name: row, measured: Some(measured), ..Line::default() }
    }

    fn row(text: &str) -> Note {
        Note::Row(text.to_owned())
    }

    fn table(text: &str) -> Note {
        Note::Table(text.to_owned())
    }

    #[test]
    fn a_note_is_told_once_with_the_rows_that_it_is_about() {
        let lines = [line("a", &[row("x")]), line("b", &[row("x")]), line("c", &[])];
        assert_eq!(notes(&lines), ["a, b: x"]);
        assert_eq!(notes(&lines[..2]), ["x"]);
        let lines = [line("a", &[]), line("b", &[table("x")])];
        assert_eq!(notes(&lines), ["x"]);
        let lines = [
            line("make: hits", &[table("x"), table("y")]),
            line("make: error", &[table("x")]),
            line("messages: hits", &[table("y")]),
            line("asleep: size", &[]),
        ];
        assert_eq!(notes(&lines), ["make: x", "make, messages: y"]);
        let lines = [line("a, 1", &[row("x")]), line("b", &[row("x")]), line("c", &[])];
        assert_eq!(notes(&lines), ["a, 1; b: x"]);
    }

    #[test]
    fn what_differs_by_a_number_alone_is_told_once_with_the_worst() {
        let lines = [
            line("a", &[table("about"), Note::Same, Note::Waited(0.2)]),
            line("b", &[Note::Same, Note::Moved { low: 20.0, high: 40.0 }, Note::Waited(0.41)]),
            line("c", &[Note::Moved { low: 30.0, high: 90.0 }, Note::Waited(0.3)]),
        ];
        assert_eq!(
            notes(&lines),
            [
                "about",
                "a, b: no difference between before and after can be told",
                "others had the CPUs for up to 41 % of the time",
                "b, c: a line took 20 to 90 ns to move: the machine changed meanwhile",
            ]
        );
    }

    #[test]
    fn rows_without_before_and_after_cannot_differ() {
        let mut lines = [line("a", &[]), line("b", &[Note::Same]), line("c", &[Note::Same])];
        if let Some(measured) = &mut lines[0].measured {
            measured.after = None;
        }
        assert_eq!(notes(&lines), ["no difference between before and after can be told"]);
    }
}
