//! One budget on many machines, as a crate outside sees it: its tests hold what the README of `ledgerline-fleet` promises,
//! its examples measure what stands there.

pub mod charge;
pub mod load;
pub mod server;
pub mod stage;
pub mod syncs;
