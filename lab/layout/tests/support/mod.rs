//! Helpers that the tests of reading share.

pub mod btf;
pub mod compare;
pub mod compile;
pub mod elf;
mod folder;
#[path = "../../../../tests/support/have.rs"]
mod have;
pub mod image;
pub mod pahole;
pub mod truth;

pub use folder::folder;
pub use have::have;
