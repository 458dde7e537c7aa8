//! What a type's layout costs the program that uses it, and what order would cost less.
//!
//! A [`profile`] says who reads and writes which field how often. `ledgerline_layout` knows the types, and
//! `ledgerline_coherence` the price of moving lines. This crate brings the three together.

#![deny(unsafe_code)]

pub mod advice;
#[cfg(test)]
#[path = "../../../tests/support/cases.rs"]
mod cases;
pub mod cost;
pub mod given;
pub mod heat;
mod order;
pub mod pieces;
pub mod print;
pub mod profile;
mod proxy;
pub mod ranking;
mod reason;
mod search;
#[cfg(test)]
#[path = "../../../tests/support/seed.rs"]
mod seed;
pub mod uses;
