//! Starting a program under a library of this project: what `run` and `layout record` have in common.
//!
//! ```text
//! program::find(name)                the program, as a shell would find it
//! Launch::new(program, words, …)     the library that is preloaded, and what keeps it out of the program
//! Target::check(option, file)        whether what is said afterwards can be written
//! Signals::hold()                    from here on signals are the program's
//! Launch::start(variables, signals)  the environment, LD_PRELOAD; fork and exec
//! Session::watch(period, tick)       passes signals on and collects what has ended, until the program has
//! Ended::exit(written)               signals act on this process again; the exit code
//! ```
//!
//! All that can be wrong with a command line is found before the program starts. A [`Failure`] is told in one line
//! and ends the command with a code that a shell knows.

mod closed;
mod failure;
pub mod library;
pub mod program;
mod signals;
mod status;
mod supervise;
mod target;

pub use failure::Failure;
pub use signals::Signals;
pub use status::Status;
pub use supervise::Session;
pub use target::Target;

use library::Library;
use program::{BlindSpot, Program};
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

/// A program that was found, its words, and the library that is preloaded into it.
pub struct Launch<'w> {
    pub program: Program,
    words: &'w [OsString],
    library: PathBuf,
    /// What keeps the library out of the program, if anything does.
    pub blind: Option<BlindSpot>,
}

impl<'w> Launch<'w> {
    /// Finds the library for a program; the first of `words` is what the user called the program.
    pub fn new(
        program: Program,
        words: &'w [OsString],
        library: &Library,
    ) -> Result<Launch<'w>, Failure> {
        let blind = program.blind_spot();
        Ok(Launch { program, words, library: library::find(library)?, blind })
    }

    /// Starts the program with these variables in its environment, under the library if that does not keep the
    /// program from starting.
    pub fn start<'a>(
        &self,
        variables: impl IntoIterator<Item = (&'a OsStr, &'a OsStr)>,
        signals: Signals,
    ) -> Result<Session, Failure> {
        let mut command = Command::new(&self.program.path);
        command.arg0(&self.words[0]).args(&self.words[1..]).envs(variables);
        if !self.blind.is_some_and(BlindSpot::breaks_preload) {
            let users = std::env::var_os("LD_PRELOAD");
            command.env("LD_PRELOAD", library::joined(&self.library, users));
        }
        closed::leave_to(&mut command);
        Session::start(&mut command, signals).map_err(|error| self.program.start_failed(&error))
    }
}
