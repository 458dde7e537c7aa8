//! What the tests of reading share.
#![allow(dead_code, reason = "each test uses some of it")]

pub mod btf;
pub mod compare;
pub mod compile;
pub mod elf;
pub mod pahole;

use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Whether a program can be run; says so in one line if not.
pub fn have(program: &str) -> bool {
    let found = Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok();
    if !found {
        println!("skipped: there is no {program} here");
    }
    found
}

/// A new empty folder, named for the test.
pub fn folder(test: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(test);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}
