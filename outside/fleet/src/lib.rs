//! One budget on many machines, from the view of an outside crate. The tests check the promises in the README of
//! `ledgerline-fleet`, and the examples measure its figures.

pub mod charge;
pub mod load;
pub mod server;
pub mod stage;
pub mod syncs;
