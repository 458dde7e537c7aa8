//! The help: all keys, and the meanings of columns and marks.

use super::pen::Pen;
use crate::top::keys::Help;
use crate::top::theme::Theme;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

/// The parts of the help that are not keys.
pub const WORDS: [Help; 5] = [
    ("growth/s", "units that it grew by, a second, from look to look"),
    ("limits/s", "refusals, and times that its max and its high were met, a second, added up"),
    ("history", "current in the last looks, from nothing to the most of them"),
    ("! x ?", "near its max (from 90 %) or above its high, or refused; ended; damaged"),
    ("(3)", "so many groups of one program, merged"),
];

/// Draws a help: keys, and then words.
pub fn draw(area: Rect, buffer: &mut Buffer, keys: &[Help], words: &[Help], theme: &Theme) {
    for (y, (keys, what)) in (area.y..area.bottom()).zip(keys.iter().chain(words)) {
        let mut pen = Pen::new(buffer, y, theme.unicode);
        pen.left(area.x + 1, 12, keys, theme.strong());
        pen.left(area.x + 14, area.width.saturating_sub(14), what, Style::new());
    }
}
