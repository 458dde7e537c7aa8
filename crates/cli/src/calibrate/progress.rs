//! One line on the terminal that says where a measurement stands.

use std::io::{IsTerminal, Write, stderr};

/// Writes over its own line on a terminal; anywhere else it writes nothing.
#[derive(Debug)]
pub(super) struct Progress {
    shown: bool,
}

impl Progress {
    pub(super) fn on_stderr() -> Progress {
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Progress { shown: stderr().is_terminal() && !dumb }
    }

    pub(super) fn show(&self, text: &str) {
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
