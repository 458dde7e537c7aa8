//! Ledgerline from the view of an outside crate: its tests check the promises of README and of the documentation, and
//! its command `timing` times the calls in them.

pub mod cache;
pub mod fast_path;
pub mod rounds;
pub mod serve;
