//! The reason why a program was not run: one line, and an exit code with a meaning in shells.

use std::process::ExitCode;

use ledgerline_view::terminal::output::{printable, say};

/// A reason to stop, as the user reads it.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    code: u8,
    message: String,
}

impl Failure {
    /// Makes the failure for a wrong command line: 2, as for every other usage error.
    pub fn usage(message: String) -> Failure {
        Failure { code: 2, message }
    }

    /// Makes the failure for a program that exists and cannot be executed: 126, as in a shell.
    pub fn not_executable(message: String) -> Failure {
        Failure { code: 126, message }
    }

    /// Makes the failure for a program that does not exist: 127, as in a shell.
    pub fn not_found(message: String) -> Failure {
        Failure { code: 127, message }
    }

    /// Makes the failure for an error of Ledgerline itself: 125, as in `timeout` and `env`, so that it cannot be taken
    /// for the program's own code.
    pub fn internal(message: String) -> Failure {
        Failure { code: 125, message }
    }

    /// Returns whether a search may continue at the next place.
    pub fn means_not_found(&self) -> bool {
        self.code == 127
    }

    /// Returns the text for the user.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Prints the message and returns the exit code.
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
