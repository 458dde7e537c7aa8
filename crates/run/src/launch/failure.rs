//! Why a program was not run: one line, and an exit code that a shell knows.

use std::process::ExitCode;

use ledgerline_view::terminal::output::{printable, say};

/// A reason to stop, as the user reads it.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    code: u8,
    message: String,
}

impl Failure {
    /// The command line is wrong: 2, as with every other usage error.
    pub fn usage(message: String) -> Failure {
        Failure { code: 2, message }
    }

    /// The program exists and cannot be executed: 126, as in a shell.
    pub fn not_executable(message: String) -> Failure {
        Failure { code: 126, message }
    }

    /// There is no such program: 127, as in a shell.
    pub fn not_found(message: String) -> Failure {
        Failure { code: 127, message }
    }

    /// Ledgerline itself could not do its part: 125, as with `timeout` and
    /// `env`, so that it cannot be taken for the program's own code.
    pub fn internal(message: String) -> Failure {
        Failure { code: 125, message }
    }

    /// Whether a search may go on to the next place.
    pub fn means_not_found(&self) -> bool {
        self.code == 127
    }

    /// What a user reads.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Tells the user and gives the exit code.
    pub fn report(&self) -> ExitCode {
        say(format_args!("ledgerline: {}", printable(&self.message)));
        ExitCode::from(self.code)
    }
}

#[cfg(test)]
impl Failure {
    pub(crate) fn code(&self) -> u8 {
        self.code
    }
}
