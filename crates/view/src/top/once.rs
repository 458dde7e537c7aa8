//! One look as a plain table, for scripts and for terminals that can only show lines.

use crate::terminal::output::printable;
use crate::terminal::text::aligned;
use crate::top::column::Column;
use crate::top::entry::Entry;
use crate::top::follow::Followed;
use crate::top::order::Options;
use crate::top::state::State;
use crate::top::text;
use crate::watch::{Source, State as RowState};
use std::fmt::Write as _;

/// The deepest level with an indentation of its own.
const DEEPEST: u32 = 200;

/// Looks twice, an interval apart, so that there are rates; once if the interval is zero. The second value is whether
/// there are rates.
pub(crate) fn state(source: &Source, options: &Options) -> Result<(State, bool), String> {
    let mut followed = Followed::new(source, options)?;
    let rates = !options.interval.is_zero();
    if rates {
        std::thread::sleep(options.interval);
        followed.look()?;
        // A program that ended meanwhile counts as ended in the last look.
        followed.ask_whether_it_ended();
    }
    Ok((followed.state, rates))
}

/// Returns one look as a table, with a newline at its end. Takes an interval's time, for the rates. With an interval of
/// zero it takes no time, and the table has no rates.
///
/// # Errors
/// A sentence: the ledger cannot be read.
pub fn once(source: &Source, options: &Options) -> Result<String, String> {
    let (state, rates) = state(source, options)?;
    Ok(table(&state, rates, options.rows))
}

fn table(state: &State, rates: bool, rows: Option<usize>) -> String {
    let of_rates = |column: &Column| {
        matches!(column, Column::Growth | Column::Limits | Column::Refused | Column::Charges)
    };
    let columns = Column::ALL.into_iter().filter(|column| rates || !of_rates(column));
    let columns: Vec<Column> = columns.collect();
    let mut titles: Vec<String> = columns.iter().map(|column| column.title().to_owned()).collect();
    titles.push("max".to_owned());
    let shown = rows.unwrap_or(usize::MAX).min(state.lines().len());
    let mut lines = vec![(titles, "")];
    let shown_lines = state.lines().take(shown);
    lines.extend(shown_lines.map(|entry| (cells(state, entry, &columns), note(state, entry))));
    let mut out = String::new();
    let aligned = aligned(lines.iter().map(|(cells, _)| &cells[..]), true);
    for (line, (_, note)) in aligned.iter().zip(&lines) {
        let _ = writeln!(out, "{}", format!("{line}  {note}").trim_end());
    }
    let hidden = state.lines().len() - shown;
    if hidden > 0 {
        let _ = writeln!(out, "... {hidden} more; --rows shows more");
    }
    if state.look().damaged {
        let _ = writeln!(out, "A program wrote over this ledger: its numbers may be wrong.");
    }
    if state.ended {
        let _ = writeln!(out, "The program has ended.");
    }
    out
}

/// Returns the problem or the state of a row.
fn note(state: &State, entry: &Entry) -> &'static str {
    match state.look().rows[entry.row].state {
        _ if entry.members.len() > 1 => "",
        RowState::Damaged => "damaged",
        RowState::Exited => "exited",
        RowState::Live => "",
    }
}

fn cells(state: &State, entry: &Entry, columns: &[Column]) -> Vec<String> {
    let look = state.look();
    let row = &look.rows[entry.row];
    let indent = if state.choice.flat { 0 } else { 2 * entry.depth.min(DEEPEST) as usize };
    let name = format!("{:indent$}{}", "", printable(&entry.label(look, state.choice.flat)));
    if row.state == RowState::Damaged && entry.members.len() <= 1 {
        // Its numbers are meaningless.
        let mut cells = vec![name];
        cells.resize(columns.len() + 1, "-".to_owned());
        return cells;
    }
    let cell = |column: &Column| match column {
        Column::Name => name.clone(),
        &column => text::figure(&entry.figures, column),
    };
    let mut cells: Vec<String> = columns.iter().map(cell).collect();
    cells.push(if entry.members.len() > 1 { "-".to_owned() } else { text::limit(row.max) });
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::same as golden;
    use crate::top::order::Choice;
    use crate::top::sample::{look, row, tenants};
    use std::time::Duration;

    fn state(choice: Choice) -> State {
        let mut state = State::new("x", choice, Duration::from_secs(1), tenants());
        let mut later = tenants();
        later.clock = Duration::from_secs(2);
        later.rows[1].current += 3 << 20;
        later.rows[4].counts.refused += 5;
        later.rows[6].state = RowState::Exited;
        state.looked(later);
        state
    }

    #[test]
    fn a_table_is_as_it_was() {
        golden("top/once.txt", &table(&state(Choice::default()), true, None));
        let flat = Choice { flat: true, ..Choice::default() };
        golden("top/once-flat.txt", &table(&state(flat), false, Some(3)));
    }

    #[test]
    fn names_steer_no_terminal_and_a_damaged_row_has_no_numbers() {
        let mut bad = look(vec![row("/", 1), row("/a\x1b[2J\n", 2)]);
        bad.rows[1].state = RowState::Damaged;
        bad.damaged = true;
        let state = State::new("x", Choice::default(), Duration::ZERO, bad);
        let text = table(&state, true, None);
        assert!(text.contains(r"a\u{1b}[2J\u{a}"), "{text}");
        assert!(text.lines().nth(2).unwrap().ends_with("-  damaged"), "{text}");
        assert!(text.ends_with("its numbers may be wrong.\n"), "{text}");
        assert!(text.chars().all(|letter| letter == '\n' || !letter.is_control()), "{text:?}");
    }
}
