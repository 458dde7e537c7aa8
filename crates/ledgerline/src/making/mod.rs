//! How a program comes to a ledger: it makes one, opens one that another process made, takes part in it as a process, or
//! only looks on.

pub(crate) mod builder;
pub(crate) mod open;
mod process;
pub(crate) mod view;
