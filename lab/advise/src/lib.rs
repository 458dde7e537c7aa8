//! Predicts what a type's layout costs the program that uses it, and finds an order that costs less.
//!
//! A [`profile`] holds how often each role reads and writes each field. `ledgerline_layout` knows the types, and
//! `ledgerline_coherence` the price of moving lines. This crate combines the three.
//!
//! [`recording`] makes a profile of a running program. [`trial`] replays a profile on real CPUs, on both layouts.

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
