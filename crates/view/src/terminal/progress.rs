//! One line on the terminal that says where a long measurement stands.

use std::fmt::Display;
use std::io::{IsTerminal, Write, stderr};

/// Writes over its own line on a terminal; anywhere else it writes nothing.
#[derive(Debug)]
pub struct Progress {
    shown: bool,
}

impl Progress {
    /// For a measurement that a person waits for; its line goes when this value does.
    pub fn on_stderr() -> Progress {
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Progress { shown: stderr().is_terminal() && !dumb }
    }

    /// Shows where the measurement stands.
    pub fn show(&self, text: impl Display) {
        if self.shown {
            // Whoever cannot see the progress misses nothing else.
            let _ = write!(stderr(), "\r\x1b[K{text}");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.show("");
    }
}
