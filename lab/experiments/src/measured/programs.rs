//! Real programs whose resident pages are followed: a compile, a database, a storm of messages.
//!
//! Each runs in a directory of its own that is removed afterwards. Each ends in bounded time, even if this process is
//! killed.

mod compile;
mod database;
mod messages;
mod running;
mod scratch;
mod user;

use super::trace::Trace;

pub(super) use self::running::Size;

/// Runs and records a program.
type Record = fn(&[usize], Size) -> Result<Trace, String>;

/// The programs, by name.
pub(super) const PROGRAMS: [(&str, Record); 3] =
    [("make -j", compile::record), ("pgbench", database::record), ("messages", messages::record)];
