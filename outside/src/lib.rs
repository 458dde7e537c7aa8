//! Ledgerline as a crate outside sees it: its tests hold the promises of README and of the documentation,
//! its command `timing` times the calls that stand there.

pub mod cache;
pub mod fast_path;
pub mod rounds;
pub mod serve;
