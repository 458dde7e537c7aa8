//! What a terminal can show, and how words are painted on it.

use anstyle::AnsiColor;
use std::io::{IsTerminal, stderr, stdout};
use std::os::fd::AsFd;

/// What the reader's side can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Box-drawing lines and bars, as opposed to ASCII.
    pub unicode: bool,
    /// Colours.
    pub colour: bool,
    /// The width to fit names into; `None` is no limit.
    pub width: Option<usize>,
}

/// What a word means to the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    /// A title or a name.
    Strong,
    /// What a reader may pass over.
    Faint,
    /// What went wrong.
    Bad,
    /// What went well.
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
    /// For a file or a pipe: everything in full, and nothing but ASCII of our
    /// own.
    pub fn plain() -> Style {
        Style { unicode: false, colour: false, width: None }
    }

    /// What standard error can show.
    pub fn of_stderr() -> Style {
        Style::of(stderr())
    }

    /// What standard output can show.
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
            // Colour is for those who did not decline it (no-color.org).
            colour: able && !anstyle_query::no_color(),
            width: size.map(|(width, _)| width.0.into()),
        }
    }

    /// The text as this side can show it; the end of a line stays as it is.
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
