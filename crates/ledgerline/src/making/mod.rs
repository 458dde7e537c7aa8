//! The ways to get a ledger: create one, open one of another process, take part in it as a process, or only read it.

pub(crate) mod builder;
pub(crate) mod open;
mod process;
pub(crate) mod view;
