//! Real programs whose resident pages are followed: a compile, a database, a storm of messages.
//!
//! Each runs in a directory of its own that is removed afterwards, and ends in bounded time, also when this
//! process is killed meanwhile.

mod compile;
mod database;
mod messages;
mod running;
mod scratch;
mod user;

use super::trace::Trace;

pub(super) use self::running::Size;

/// A program: what it is called, and how it is run and recorded.
pub(super) struct Program {
    pub(super) name: &'static str,
    pub(super) record: fn(&[usize], Size) -> Result<Trace, String>,
}

pub(super) const PROGRAMS: [Program; 3] = [
    Program { name: "make -j", record: compile::record },
    Program { name: "pgbench", record: database::record },
    Program { name: "messages", record: messages::record },
];
