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

/// How a program is run and recorded.
type Record = fn(&[usize], Size) -> Result<Trace, String>;

/// The programs, by what they are called.
pub(super) const PROGRAMS: [(&str, Record); 3] =
    [("make -j", compile::record), ("pgbench", database::record), ("messages", messages::record)];
