//! What a terminal can show, and how words are painted on it.

use std::io::IsTerminal;

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

impl Style {
    /// For a file or a pipe: everything in full, and nothing but ASCII of our
    /// own.
    pub fn plain() -> Style {
        Style { unicode: false, colour: false, width: None }
    }

    /// What standard error can show.
    pub fn of_stderr() -> Style {
        Style::of(std::io::stderr().is_terminal(), libc::STDERR_FILENO)
    }

    /// What standard output can show.
    pub fn of_stdout() -> Style {
        Style::of(std::io::stdout().is_terminal(), libc::STDOUT_FILENO)
    }

    fn of(terminal: bool, descriptor: libc::c_int) -> Style {
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        if !terminal {
            return Style::plain();
        }
        let dumb = set("TERM").is_none_or(|term| term == "dumb");
        let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG"));
        let utf8 = locale.is_some_and(|locale| {
            let locale = locale.to_ascii_lowercase();
            locale.contains("utf-8") || locale.contains("utf8")
        });
        Style {
            unicode: utf8 && !dumb,
            colour: !dumb && set("NO_COLOR").is_none(),
            width: terminal_width(descriptor),
        }
    }

    /// The text as this side can show it.
    pub fn paint(&self, paint: Paint, text: &str) -> String {
        let code = match paint {
            Paint::Strong => "1",
            Paint::Faint => "2",
            Paint::Bad => "1;31",
            Paint::Good => "32",
        };
        if self.colour && !text.is_empty() {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

fn terminal_width(descriptor: libc::c_int) -> Option<usize> {
    // SAFETY: a winsize is four integers, for which zeros are valid.
    let mut size: libc::winsize = unsafe { std::mem::zeroed() };
    // SAFETY: this request writes one winsize, and `size` is one that lives
    // across the call.
    let result = unsafe { libc::ioctl(descriptor, libc::TIOCGWINSZ, &mut size) };
    (result == 0 && size.ws_col > 0).then_some(size.ws_col.into())
}
