//! Looks as JSON.

use crate::terminal::output::plain_json;
use crate::top::entry::Entry;
use crate::top::follow::Followed;
use crate::top::once;
use crate::top::order::Options;
use crate::top::state::State;
use crate::watch::{Source, State as RowState};
use serde::Serialize;
use serde_json::Value;
use std::time::UNIX_EPOCH;

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    ledger: &'a str,
    /// Seconds since 1970.
    time: f64,
    unit: &'a str,
    steady: bool,
    damaged: bool,
    ended: bool,
    /// The number of groups that `--rows` left out.
    left_out: usize,
    groups: Vec<Group<'a>>,
}

/// A group, or a program. The numbers of a damaged row are not facts, and are null.
#[derive(Serialize)]
struct Group<'a> {
    path: Option<&'a str>,
    name: &'a str,
    program: &'a str,
    /// The number of groups that it stands for.
    groups: usize,
    depth: u32,
    state: &'static str,
    pid: Option<u32>,
    current: Option<u64>,
    peak: Option<u64>,
    share_of_max: Option<f64>,
    growth_per_second: Option<f64>,
    limits_per_second: Option<f64>,
    refused_per_second: Option<f64>,
    charges_per_second: Option<f64>,
    max: Option<Value>,
    high: Option<Value>,
    low: Option<u64>,
    min: Option<u64>,
    charges: Option<u64>,
    uncharges: Option<u64>,
    refused: Option<u64>,
    max_events: Option<u64>,
    high_events: Option<u64>,
    reclaimed: Option<u64>,
}

/// Returns one look as one line of JSON, with a newline at its end. Takes an interval's time, like
/// [`crate::top::once`].
///
/// # Errors
/// A sentence: the ledger cannot be read.
pub fn once_json(source: &Source, options: &Options) -> Result<String, String> {
    let (state, rates) = once::state(source, options)?;
    Ok(line(&state, rates, options.rows))
}

/// Writes a line of JSON for each interval, until the program ends; the last line has that fact. `write` returns
/// whether the reader is still there.
///
/// # Errors
/// Any error of `write`, or a sentence: the ledger cannot be read any more.
pub fn stream(
    source: &Source,
    options: &Options,
    mut write: impl FnMut(&str) -> Result<bool, String>,
) -> Result<(), String> {
    let mut followed = Followed::new(source, options)?;
    loop {
        std::thread::sleep(options.interval);
        followed.look()?;
        if !write(&line(&followed.state, true, options.rows))? || followed.state.ended {
            return Ok(());
        }
    }
}

fn line(state: &State, rates: bool, rows: Option<usize>) -> String {
    let look = state.look();
    let shown = rows.unwrap_or(usize::MAX).min(state.lines().len());
    let document = Document {
        schema: "ledgerline/top.v1",
        ledger: &state.title,
        time: look.at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64(),
        unit: look.unit,
        steady: look.steady,
        damaged: look.damaged,
        ended: state.ended,
        left_out: state.lines().len() - shown,
        groups: state.lines().take(shown).map(|entry| group(state, entry, rates)).collect(),
    };
    let text = serde_json::to_string(&document)
        .expect("strings, numbers and lists of them always make a document");
    plain_json(&text) + "\n"
}

fn group<'a>(state: &'a State, entry: &Entry, rates: bool) -> Group<'a> {
    let look = state.look();
    let rows = || entry.rows().iter().map(|&row| &look.rows[row]);
    let row = &look.rows[entry.row];
    let figures = entry.figures;
    let merged = !entry.members.is_empty();
    let one = entry.rows().len() == 1;
    let damaged = row.state == RowState::Damaged && one;
    let fact = |number: u64| (!damaged).then_some(number);
    // Counts that include the groups below cannot be added up.
    let own = |number: u64| (!damaged && one).then_some(number);
    // A number, or the word that a cgroup's files have for no limit.
    let limit = |limit: Option<u64>| limit.map_or("max".into(), Value::from);
    let rate = |rate: f64| (rates && !damaged).then_some(rate);
    Group {
        path: (!merged).then_some(&*row.path),
        name: if merged { &row.program } else { &row.name },
        program: &row.program,
        groups: entry.rows().len(),
        depth: entry.depth,
        state: match row.state {
            RowState::Damaged if one => "damaged",
            _ if rows().any(|row| row.state == RowState::Live) => "live",
            _ => "exited",
        },
        pid: own(row.pid.into()).map(|_| row.pid),
        current: fact(figures.current),
        peak: fact(figures.peak),
        share_of_max: figures.share,
        growth_per_second: rate(figures.growth),
        limits_per_second: rate(figures.limits),
        refused_per_second: rate(figures.refused),
        charges_per_second: rate(figures.charges),
        max: own(0).map(|_| limit(row.max)),
        high: own(0).map(|_| limit(row.high)),
        low: own(row.low),
        min: own(row.min),
        charges: own(row.counts.charges),
        uncharges: own(row.counts.uncharges),
        refused: own(row.counts.refused),
        max_events: own(row.counts.max_events),
        high_events: own(row.counts.high_events),
        reclaimed: own(row.counts.reclaimed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::order::Choice;
    use crate::top::sample::{look, row, tenants};
    use serde_json::{Value, json};
    use std::time::Duration;

    fn read(state: &State, rates: bool, rows: Option<usize>) -> Value {
        let text = line(state, rates, rows);
        assert_eq!(text.matches('\n').count(), 1, "{text}");
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn a_look_is_one_line_with_facts_and_rates() {
        let mut state = State::new("x", Choice::default(), Duration::from_secs(1), tenants());
        let mut later = tenants();
        later.clock = Duration::from_secs(2);
        later.rows[4].counts.refused += 5;
        state.looked(later);
        let read = read(&state, true, Some(2));
        assert_eq!(
            (&read["unit"], &read["left_out"], &read["time"]),
            (&json!("bytes"), &json!(5), &json!(0.0))
        );
        let bolt = &read["groups"][1];
        let expected = json!({
            "path": "/bolt", "name": "bolt", "program": "bolt", "groups": 1, "depth": 1, "state": "live", "pid": 0,
            "current": 400 << 20, "peak": 409 << 20, "share_of_max": 400.0 / 410.0, "growth_per_second": 0.0,
            "limits_per_second": 2.5, "refused_per_second": 2.5, "charges_per_second": 0.0, "max": 410 << 20,
            "high": 350 << 20, "low": 16 << 20, "min": 0, "charges": 10, "uncharges": 4, "refused": 12,
            "max_events": 7, "high_events": 0, "reclaimed": 0,
        });
        assert_eq!(bolt, &expected);
        assert_eq!(read["groups"][0]["high"], "max");
    }

    #[test]
    fn rates_that_no_second_look_gave_and_numbers_of_damaged_rows_are_null() {
        let mut bad = look(vec![row("/", 1), row("/a\x1b[2J\u{202e}", 2)]);
        bad.rows[1].state = RowState::Damaged;
        let state = State::new("x", Choice::default(), Duration::ZERO, bad);
        assert!(
            line(&state, true, None)
                .chars()
                .all(|it| it == '\n' || !(it.is_control() || it == '\u{202e}'))
        );
        let read = read(&state, false, None);
        assert_eq!(read["groups"][0]["growth_per_second"], Value::Null);
        let group = read["groups"][1].as_object().unwrap();
        let facts =
            group.iter().filter(|(_, value)| !value.is_null()).map(|(name, _)| name.as_str());
        assert_eq!(
            facts.collect::<Vec<_>>(),
            ["depth", "groups", "name", "path", "program", "state"]
        );
        assert_eq!(group["name"], "a\x1b[2J\u{202e}", "it reads back as it was");
    }

    #[test]
    fn merged_programs_have_sums_and_nothing_that_cannot_be_added_up() {
        let rows = vec![row("/", 9), row("/sh.1", 3), row("/sh.3", 2)];
        let choice = Choice { merge: true, ..Choice::default() };
        let state = State::new("x", choice, Duration::ZERO, look(rows));
        let read = read(&state, true, None);
        let sh = &read["groups"][1];
        assert_eq!(
            (&sh["name"], &sh["groups"], &sh["current"]),
            (&json!("sh"), &json!(2), &json!(5))
        );
        assert_eq!([&sh["path"], &sh["max"], &sh["pid"], &sh["refused"]], [&Value::Null; 4]);
    }
}
