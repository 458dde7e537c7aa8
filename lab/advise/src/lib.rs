//! What a type's layout costs the program that uses it, and what order would cost less.
//!
//! A [`profile`] says who reads and writes which field how often. `ledgerline_layout` knows the types, and
//! `ledgerline_coherence` the price of moving lines. This crate brings the three together.
//!
//! [`recording`] makes a profile of a program that runs; [`trial`] replays one on real CPUs, on both layouts.

#![deny(unsafe_code)]

pub mod advice;
#[cfg(test)]
#[path = "../../../tests/support/cases.rs"]
mod cases;
pub mod cost;
pub mod given;
#[cfg(test)]
#[path = "../../../tests/support/golden.rs"]
mod golden;
pub mod heat;
mod order;
pub mod pieces;
pub mod print;
pub mod profile;
mod proxy;
pub mod ranking;
mod reason;
pub mod recording;
mod search;
#[cfg(test)]
#[path = "../../../tests/support/seed.rs"]
mod seed;
pub mod trial;
pub mod uses;
