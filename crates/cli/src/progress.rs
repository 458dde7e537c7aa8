//! One line on the terminal that says where a long measurement stands.

use crate::timing::harness::Step;
use std::io::{IsTerminal, Write, stderr};

/// Writes over its own line on a terminal; anywhere else it writes nothing.
#[derive(Debug)]
pub(crate) struct Progress {
    shown: bool,
}

impl Progress {
    pub(crate) fn on_stderr() -> Progress {
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Progress { shown: stderr().is_terminal() && !dumb }
    }

    /// Shows the step of a measurement.
    pub(crate) fn step(&self, what: &str, runs: usize, step: Step) {
        if self.shown {
            self.show(&step_line(what, runs, step));
        }
    }

    pub(crate) fn show(&self, text: &str) {
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

fn step_line(what: &str, runs: usize, step: Step) -> String {
    match step.round {
        0 => format!("{what}: warming up: {}", step.case),
        round => format!("{what}: round {round} of {runs}: {}", step.case),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_names_round_and_case() {
        let line = |round| step_line("rseq, 2 threads", 21, Step { case: "bare_add", round });
        assert_eq!(line(0), "rseq, 2 threads: warming up: bare_add");
        assert_eq!(line(3), "rseq, 2 threads: round 3 of 21: bare_add");
    }
}
