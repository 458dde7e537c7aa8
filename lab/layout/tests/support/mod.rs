//! Helpers that the tests of reading share.
#![allow(dead_code, unused_imports, reason = "each test uses some of it")]

pub mod btf;
pub mod compare;
pub mod compile;
pub mod elf;
#[path = "../../../../tests/support/have.rs"]
mod have;
pub mod pahole;

pub use have::have;
use std::path::PathBuf;

/// A new empty folder, named for the test.
pub fn folder(test: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(test);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}
