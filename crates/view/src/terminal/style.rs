//! The abilities of a terminal, and styles of words.

use anstyle::AnsiColor;
use std::io::{IsTerminal, stderr, stdout};
use std::os::fd::AsFd;

/// The abilities of the reader's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Box-drawing lines and bars, as opposed to ASCII.
    pub unicode: bool,
    /// Colours.
    pub colour: bool,
    /// The width to fit names into; `None` is no limit.
    pub width: Option<usize>,
}

/// The meaning of a word for the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    /// A title or a name.
    Strong,
    /// A detail that a reader may skip.
    Faint,
    /// A failure.
    Bad,
    /// A success.
    Good,
}

impl Paint {
    fn look(self) -> anstyle::Style {
        let plain = anstyle::Style::new();
        match self {
            Paint::Strong => plain.bold(),
            Paint::Faint => plain.dimmed(),
            Paint::Bad => AnsiColor::Red.on_default().bold(),
            Paint::Good => AnsiColor::Green.on_default(),
        }
    }
}

impl Style {
    /// Returns the style for a file or a pipe: everything in full, and only ASCII in this program's own words.
    pub fn plain() -> Style {
        Style { unicode: false, colour: false, width: None }
    }

    /// Returns the style for standard error.
    pub fn of_stderr() -> Style {
        Style::of(stderr())
    }

    /// Returns the style for standard output.
    pub fn of_stdout() -> Style {
        Style::of(stdout())
    }

    fn of(stream: impl IsTerminal + AsFd) -> Style {
        if !stream.is_terminal() {
            return Style::plain();
        }
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG"));
        let utf8 = locale.is_some_and(|locale| {
            let locale = locale.to_ascii_lowercase();
            locale.contains("utf-8") || locale.contains("utf8")
        });
        let able = anstyle_query::term_supports_color();
        let size = terminal_size::terminal_size_of(stream);
        Style {
            unicode: utf8 && able,
            // Colour is off for users who declined it (no-color.org).
            colour: able && !anstyle_query::no_color(),
            width: size.map(|(width, _)| width.0.into()),
        }
    }

    /// Returns the text in a style that this side can show; the end of a line is unchanged.
    pub fn paint(&self, paint: Paint, text: &str) -> String {
        let line = text.trim_end_matches('\n');
        if !self.colour || line.is_empty() {
            return text.to_owned();
        }
        let look = paint.look();
        format!("{look}{line}{look:#}{}", &text[line.len()..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paint_ends_before_the_line_does_and_only_where_there_is_colour() {
        let colour = Style { colour: true, ..Style::plain() };
        assert_eq!(colour.paint(Paint::Faint, "a b\n"), "\x1b[2ma b\x1b[0m\n");
        assert_eq!(colour.paint(Paint::Bad, "\n"), "\n");
        assert_eq!(Style::plain().paint(Paint::Bad, "a"), "a");
    }
}
