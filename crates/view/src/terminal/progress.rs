//! One line on the terminal with the progress of a long measurement.

use std::fmt::Display;
use std::io::{IsTerminal, Write, stderr};

/// A line that is overwritten in place on a terminal; anywhere else nothing is written.
#[derive(Debug)]
pub struct Progress {
    shown: bool,
}

impl Progress {
    /// Makes a progress line for a measurement that a person waits for; the line is removed when this value is dropped.
    pub fn on_stderr() -> Progress {
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Progress { shown: stderr().is_terminal() && !dumb }
    }

    /// Shows the progress.
    pub fn show(&self, text: impl Display) {
        if self.shown {
            // An error loses only the progress line.
            let _ = write!(stderr(), "\r\x1b[K{text}");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.show("");
    }
}
