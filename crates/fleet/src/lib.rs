//! One budget for a tenant on many machines. `README.md` of this crate says what its budgets promise.

pub mod book;
pub mod fleet;
pub mod message;
pub mod node;
pub mod store;

/// Compiles the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
