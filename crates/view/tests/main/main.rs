//! The integration tests of all views, as one program.

mod report;
mod serve;
mod watch;
