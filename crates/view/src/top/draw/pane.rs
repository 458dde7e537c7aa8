//! Details of the chosen group: limits, protection, events, stat.

use super::pen::{Pen, width_of};
use crate::terminal::text::counted;
use crate::top::state::State;
use crate::top::text::{limit, often};
use crate::top::theme::Theme;
use crate::watch::State as RowState;
use ledgerline::size;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// Columns of a name and its value.
const CELL: u16 = 26;

/// The most groups of a program that are looked up: more than fit on a screen.
const MEMBERS: usize = 200;

/// A name and its value; only the value if it holds for several groups.
type Fact = (String, String);

/// Returns the lines that the pane needs on a screen of this width.
pub fn height(state: &State, width: u16) -> u16 {
    let rows = facts(state).len().div_ceil(columns(width));
    1 + rows as u16
}

fn columns(width: u16) -> usize {
    usize::from(width / CELL).max(1)
}

/// Draws the pane.
pub fn draw(area: Rect, buffer: &mut Buffer, state: &State, theme: &Theme) {
    super::rule(area, buffer, &title(state), theme);
    let facts = facts(state);
    let lines = facts.len().div_ceil(columns(area.width)).max(1);
    for (place, (name, value)) in facts.iter().enumerate() {
        // In columns from top to bottom, so that related values are near each other.
        let (column, line) = ((place / lines) as u16, (place % lines) as u16);
        if line + 1 >= area.height {
            continue;
        }
        let x = area.x + column * CELL;
        let mut pen = Pen::new(buffer, area.y + 1 + line, theme.unicode);
        let room = CELL - 2;
        let value_width = (width_of(value) as u16).min(room);
        pen.left(x, room.saturating_sub(value_width + 1), name, theme.faint());
        pen.right(x, room, value, ratatui::style::Style::new());
    }
}

fn title(state: &State) -> String {
    let Some(line) = state.chosen() else { return "no group is shown".to_owned() };
    let entry = state.line(line);
    let row = &state.look().rows[entry.row];
    if !entry.members.is_empty() {
        return format!("program {}: {}", row.program, counted(entry.members.len(), "group"));
    }
    let life = match row.state {
        RowState::Live => "",
        RowState::Exited => ", its process ended",
        RowState::Damaged => ", damaged: a program wrote over it",
    };
    let process = if row.pid == 0 { String::new() } else { format!(", process {}", row.pid) };
    format!("{}{process}{life}", row.path)
}

fn facts(state: &State) -> Vec<Fact> {
    let Some(line) = state.chosen() else { return Vec::new() };
    let entry = state.line(line);
    let look = state.look();
    let row = &look.rows[entry.row];
    if row.state == RowState::Damaged {
        return Vec::new();
    }
    let fact = |name: &str, value: String| (name.to_owned(), value);
    if !entry.members.is_empty() {
        let member =
            |&row: &usize| fact(&look.rows[row].name, size::format(look.rows[row].current));
        return entry.members.iter().take(MEMBERS).map(member).collect();
    }
    let rates = state.rates(entry.row);
    let mut facts = vec![
        fact("memory.current", size::format(row.current)),
        fact("memory.peak", size::format(row.peak)),
        fact("memory.max", limit(row.max)),
        fact("memory.high", limit(row.high)),
        fact("memory.low", size::format(row.low)),
        fact("memory.min", size::format(row.min)),
        fact("events: max", row.counts.max_events.to_string()),
        fact("events: high", row.counts.high_events.to_string()),
        fact("refused", row.counts.refused.to_string()),
        fact("reclaimed", size::format(row.counts.reclaimed)),
        fact("reclaimed/s", size::format(rates.counts.reclaimed as u64)),
        fact("charges", row.counts.charges.to_string()),
        fact("charges/s", often(rates.counts.charges)),
        fact("uncharges", row.counts.uncharges.to_string()),
    ];
    facts.extend(row.items.iter().map(|(name, value)| fact(name, value.to_string())));
    facts
}
