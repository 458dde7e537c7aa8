//! Writes untrusted and own words to their place on the screen, and never beyond it.

use crate::terminal::output::printable;
use ratatui::buffer::Buffer;
use ratatui::style::Style;
use ratatui::text::Span;

/// Writes to one line of the screen.
pub struct Pen<'b> {
    buffer: &'b mut Buffer,
    y: u16,
    unicode: bool,
}

impl<'b> Pen<'b> {
    /// Makes a pen for a line of the screen.
    pub fn new(buffer: &'b mut Buffer, y: u16, unicode: bool) -> Pen<'b> {
        Pen { buffer, y, unicode }
    }

    /// Writes a text, from the left, with dots if it is too long. Returns the place after it.
    pub fn left(&mut self, x: u16, width: u16, text: &str, style: Style) -> u16 {
        let end = self.end(x, width);
        let room = end.saturating_sub(x);
        if room == 0 {
            return x;
        }
        // Control characters are shown, not sent. Text without any is not copied.
        let text = printable(text);
        if width_of(&text) <= usize::from(room) {
            return self.buffer.set_stringn(x, self.y, &text, room.into(), style).0;
        }
        let dots = if self.unicode { "…" } else { "~" };
        let (next, y) = self.buffer.set_stringn(x, self.y, &text, (room - 1).into(), style);
        self.buffer.set_stringn(next, y, dots, 1, style).0
    }

    /// Writes the end of a text, with dots before it if it is too long: the end of a path distinguishes it from others.
    pub fn tail(&mut self, x: u16, width: u16, text: &str, style: Style) {
        let text = printable(text);
        let room = usize::from(self.end(x, width).saturating_sub(x));
        if width_of(&text) <= room {
            self.left(x, width, &text, style);
            return;
        }
        let fits = |&(at, _): &(usize, char)| width_of(&text[at..]) < room;
        let start = text.char_indices().find(fits).map_or(text.len(), |(at, _)| at);
        let dots = if self.unicode { "…" } else { "~" };
        let x = self.left(x, room.min(1) as u16, dots, style);
        self.left(x, room.saturating_sub(1) as u16, &text[start..], style);
    }

    /// Writes a text that ends at the right end of its place.
    pub fn right(&mut self, x: u16, width: u16, text: &str, style: Style) {
        let missing = usize::from(width).saturating_sub(width_of(text)) as u16;
        self.left(x + missing, width - missing, text, style);
    }

    /// Gives a whole stretch of the line a style.
    pub fn over(&mut self, x: u16, width: u16, style: Style) {
        let end = self.end(x, width);
        for x in x..end {
            self.buffer[(x, self.y)].set_style(style);
        }
    }

    fn end(&self, x: u16, width: u16) -> u16 {
        let area = self.buffer.area;
        if (area.top()..area.bottom()).contains(&self.y) {
            x.saturating_add(width).min(area.right())
        } else {
            x
        }
    }
}

/// Returns the columns of a text on the screen.
pub fn width_of(text: &str) -> usize {
    Span::raw(text).width()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::layout::Rect;

    fn shown<R>(write: impl FnOnce(&mut Pen) -> R) -> String {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 12, 1));
        write(&mut Pen::new(&mut buffer, 0, false));
        (0..12).map(|x| buffer[(x, 0)].symbol().to_owned()).collect()
    }

    #[test]
    fn a_text_is_cut_to_its_place_whatever_it_is() {
        let style = Style::new();
        let left = |text: &str| shown(|pen| pen.left(2, 6, text, style));
        assert_eq!(left("abc"), "  abc       ");
        assert_eq!(left("abcdefgh"), "  abcde~    ");
        assert_eq!(left("\x1b[2J"), "  \\u{1b~    ");
        assert_eq!(shown(|pen| pen.right(2, 6, "abc", style)), "     abc    ");
        assert_eq!(shown(|pen| pen.tail(2, 6, "/abc", style)), "  /abc      ");
        assert_eq!(shown(|pen| pen.tail(2, 6, "/abc/def", style)), "  ~c/def    ");
        assert_eq!(shown(|pen| pen.tail(2, 1, "/abc/def", style)), "  ~         ");
        assert_eq!(shown(|pen| pen.tail(2, 0, "/abc/def", style)), " ".repeat(12));
        assert_eq!(shown(|pen| pen.tail(2, 4, "漢字漢字", style)).trim(), "~字");
        assert_eq!(shown(|pen| pen.left(10, 60, "abcdef", style)), "          a~");
        assert_eq!(shown(|pen| pen.left(40, 6, "abc", style)), " ".repeat(12));
        assert_eq!(shown(|pen| pen.over(10, 60, style)), " ".repeat(12));
        let mut buffer = Buffer::empty(Rect::new(0, 0, 4, 1));
        Pen::new(&mut buffer, 7, false).left(0, 4, "abc", style);
        assert_eq!(buffer, Buffer::empty(Rect::new(0, 0, 4, 1)));
    }

    #[test]
    fn a_wide_letter_is_not_cut_in_halves() {
        let shown = shown(|pen| pen.left(0, 4, "漢字漢字", Style::new()));
        assert!(shown.starts_with("漢"), "{shown:?}");
        assert!(shown.contains('~') && !shown.contains('字'), "{shown:?}");
    }
}
