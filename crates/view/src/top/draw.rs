//! The screen: a title, the rows, the pane of the chosen group, and always the keys in the last line.

pub mod help;
pub mod list;
mod pane;
pub mod pen;
mod table;

use crate::top::keys::{HELP, Help, LINE};
use crate::top::state::State;
use crate::top::theme::Theme;
use pen::{Pen, width_of};
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::Style;
use std::time::Duration;

/// Draws everything that has room.
pub fn screen(frame: &mut Frame<'_>, state: &mut State, theme: &Theme) {
    let area = frame.area();
    let Some(last) = area.height.checked_sub(1) else { return };
    let buffer = frame.buffer_mut();
    let line = |y: u16| Rect { y: area.y + y, height: 1, ..area };
    let cursor = keys(line(last), buffer, state, theme);
    // Lines for rows are dropped last.
    let head = last.saturating_sub(1).min(3);
    if head > 0 {
        title(line(0), buffer, state, theme);
    }
    let rest = |from: u16, to: u16| Rect { y: area.y + from, height: to - from, ..area };
    if state.help {
        help::draw(rest(head.min(1), last), buffer, &HELP, &help::WORDS, theme);
    } else {
        if head > 1 {
            choices(line(1), buffer, state, theme);
        }
        if head > 2 {
            table::titles(line(2), buffer, state, theme);
        }
        let room = last - head;
        let pane = if state.pane { pane::height(state, area.width).min(room / 2) } else { 0 };
        table::rows(rest(head, last - pane), buffer, state, theme);
        if pane > 0 {
            pane::draw(rest(last - pane, last), buffer, state, theme);
        }
    }
    if let Some(cursor) = cursor {
        frame.set_cursor_position(cursor);
    }
}

/// Draws the ledger's title, and the problems.
fn title(area: Rect, buffer: &mut Buffer, state: &State, theme: &Theme) {
    let mut pen = Pen::new(buffer, area.y, theme.unicode);
    let mut told: Vec<&str> = Vec::new();
    if let Some(why) = &state.lost {
        told.push("LOST: this is the last look");
        told.push(why);
    } else if state.ended {
        told.push("ENDED: this is the last look");
    } else if state.paused {
        told.push("PAUSED");
    }
    if state.look().damaged {
        told.push("DAMAGED: a program wrote over this ledger");
    }
    let told = told.join("; ");
    let room = area.width.saturating_sub(width_of(&told) as u16 + 2).max(area.width / 4);
    let next = pen.left(area.x, room, "ledgerline top ", theme.strong());
    pen.left(next, room.saturating_sub(next - area.x), &state.title, Style::new());
    pen.right(area.x + room, area.width - room, &told, theme.alarming());
}

/// Draws the reader's choices.
fn choices(area: Rect, buffer: &mut Buffer, state: &State, theme: &Theme) {
    let shown = state.lines().len();
    let count = if shown == state.count() {
        shown.to_string()
    } else {
        format!("{shown} of {}", state.count())
    };
    let mut text = format!("{count} {}; every {}", state.sorted(), seconds(state.interval));
    if !state.choice.filter.is_empty() && !state.typing {
        text.push_str(&format!("; only /{}", state.choice.filter));
    }
    Pen::new(buffer, area.y, theme.unicode).left(area.x, area.width, &text, Style::new());
}

/// Returns a time for people.
fn seconds(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds.fract() == 0.0 { format!("{seconds:.0} s") } else { format!("{seconds:.1} s") }
}

/// Draws the last line. Returns the place of the cursor.
fn keys(area: Rect, buffer: &mut Buffer, state: &State, theme: &Theme) -> Option<Position> {
    if state.typing {
        let mut pen = Pen::new(buffer, area.y, theme.unicode);
        let filter = format!("/{}", state.choice.filter);
        let after = pen.left(area.x, area.width.saturating_sub(1), &filter, theme.strong());
        pen.left(after + 3, area.width, "Enter keeps the filter, Esc ends it", theme.faint());
        return Some(Position { x: after, y: area.y });
    }
    line_of_keys(area, buffer, &LINE, theme);
    None
}

/// Draws as many keys as fit.
pub fn line_of_keys(area: Rect, buffer: &mut Buffer, keys: &[Help], theme: &Theme) {
    let mut pen = Pen::new(buffer, area.y, theme.unicode);
    let mut x = area.x;
    for (key, what) in keys {
        let width = (width_of(key) + 1 + width_of(what)) as u16;
        if x + width > area.right() {
            break;
        }
        x = pen.left(x, area.width, key, theme.strong());
        x = pen.left(x + 1, area.width, what, Style::new()) + 2;
    }
}

/// Draws a line across the screen, with a heading in it.
pub fn rule(area: Rect, buffer: &mut Buffer, heading: &str, theme: &Theme) {
    let mut pen = Pen::new(buffer, area.y, theme.unicode);
    let rule = if theme.unicode { "─" } else { "-" };
    pen.left(area.x, area.width, &rule.repeat(area.width.into()), theme.faint());
    let room = area.width.saturating_sub(4);
    pen.left(area.x + 2, room, &format!(" {heading} "), theme.strong());
}

#[cfg(test)]
mod tests;
