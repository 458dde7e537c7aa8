//! Starting a program under a library of this project: the common part of `run` and `layout record`.
//!
//! ```text
//! program::find(name)                the program, as a shell would find it
//! Launch::new(program, words, …)     the library that is preloaded (a [`Library`]), as a file; what keeps it out
//! Target::check(option, file)        whether the file for the later output can be written
//! Signals::hold()                    from here on signals are the program's
//! Launch::start(variables, signals)  the environment, LD_PRELOAD; fork and exec
//! Session::watch(period, tick)       passes signals on and collects ended processes, until the program ends
//! Ended::exit(written)               signals act on this process again; the exit code
//! Launch::drop                       removes the library's file, unless processes of the run live on
//! ```
//!
//! Every mistake in a command line is found before the program starts. A [`Failure`] is printed as one line and ends
//! the command with a code that has a meaning in shells.

mod closed;
mod failure;
mod library;
mod place;
pub mod program;
mod signals;
mod supervise;
mod target;

pub use crate::account::Status;
pub use failure::Failure;
pub use library::Library;
pub use signals::{Arrived, Signals};
pub use supervise::{Ended, Session};
pub use target::{Target, is_one};

use ledgerline_protocol::blind::Blind;
use library::Ready;
use program::Program;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// A program that was found, its words, and the library that is preloaded into it.
pub struct Launch<'w> {
    /// The program.
    pub program: Program,
    words: &'w [OsString],
    library: &'static Library,
    ready: Ready,
    /// The reason why the program cannot load the library, if there is one.
    pub blind: Option<Blind>,
}

impl<'w> Launch<'w> {
    /// Makes the library ready for a program; the first of `words` is the user's name for the program.
    pub fn new(
        program: Program,
        words: &'w [OsString],
        library: &'static Library,
    ) -> Result<Launch<'w>, Failure> {
        let blind = program.blind_spot(library.serves);
        Ok(Launch { program, words, library, ready: library.ready()?, blind })
    }

    /// Returns the library's file.
    pub fn library(&self) -> &Path {
        self.ready.path()
    }

    /// Returns the library's folder if it is closed to other users. Programs that run as another user cannot load it
    /// then.
    pub fn closed(&self) -> Option<&Path> {
        match &self.ready {
            Ready::Placed(placed) if !placed.for_all => placed.file.path().parent(),
            _ => None,
        }
    }

    /// Starts the program with these variables in its environment, under the library unless that would keep the program
    /// from starting.
    pub fn start<'a>(
        &self,
        variables: impl IntoIterator<Item = (&'a OsStr, &'a OsStr)>,
        signals: Signals,
    ) -> Result<Session, Failure> {
        let mut command = Command::new(&self.program.path);
        command.arg0(&self.words[0]).args(&self.words[1..]).envs(variables);
        if !self.blind.is_some_and(Blind::breaks_preload) {
            let users = std::env::var_os("LD_PRELOAD");
            command.env("LD_PRELOAD", self.library.before(&self.ready, users));
        }
        closed::leave_to(&mut command);
        Session::start(&mut command, signals).map_err(|error| self.program.start_failed(&error))
    }
}

/// Starts a program without the library: one that prepares the program to run. It handles signals itself, so this
/// process lives to clean up after it.
pub fn start_plain(command: &mut Command, signals: Signals) -> Result<Session, Failure> {
    closed::leave_to(command);
    Session::start(command, signals).map_err(|error| {
        Failure::not_executable(format!("{:?} cannot be executed: {error}", command.get_program()))
    })
}

impl Drop for Launch<'_> {
    fn drop(&mut self) {
        // Programs that remaining processes execute look for the library, and print a message if it is gone. A later
        // run of this user removes it when no process uses it any more.
        if let Ready::Placed(placed) = &mut self.ready
            && !supervise::alone()
        {
            placed.file.disable_cleanup(true);
        }
    }
}
