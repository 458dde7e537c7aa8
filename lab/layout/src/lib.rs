//! Where the fields of types fall on cache lines.
//!
//! The readers (`dwarf`, `btf`) turn a file's debug information into [`model::Types`]. Everything else
//! (printing, rules, differences) reads that model alone and does not know where it came from.

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
