//! The integration tests of all views, as one program.

mod report;
#[path = "../../../../tests/support/seed.rs"]
mod seed;
mod serve;
mod watch;
