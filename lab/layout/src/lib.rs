//! The places of types' fields on cache lines.
//!
//! The readers (`dwarf`, `btf`) turn a file's debug information into [`model::Types`]. Printing, rules and
//! differences use that model alone and do not know its source.

#![deny(unsafe_code)]

pub mod align;
pub mod btf;
#[cfg(test)]
#[path = "../../../tests/support/cases.rs"]
mod cases;
pub mod diff;
pub mod dwarf;
mod error;
pub mod fuzz;
pub mod holders;
pub mod image;
pub mod leaf;
pub mod lines;
pub mod model;
mod open;
pub mod pick;
pub mod rules;
#[cfg(test)]
#[path = "../../../tests/support/seed.rs"]
mod seed;
pub mod show;
#[cfg(test)]
mod sketch;
pub mod spell;
pub mod symbols;
pub mod variants;

pub use error::Error;
pub use open::{Opened, Options, Prefer, Source, open, open_named, open_with};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
