//! Runs the laboratory's command like a user: the built binary and nothing beside it.

#![allow(dead_code, unused_imports, reason = "each program of tests uses a part of this")]

#[path = "../../../../../tests/support/command.rs"]
mod command;
#[path = "../../../../../tests/support/compile.rs"]
mod compile;
#[path = "../../../../../tests/support/have.rs"]
mod have;
#[path = "../../../../../tests/support/tested.rs"]
mod tested;

pub use command::{check_unread, copy_executable, executable, said, scratch, stderr};
pub use have::have;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Returns the path of the command.
pub fn binary() -> &'static str {
    tested::command(env!("CARGO_BIN_EXE_ledgerline-lab"))
}

/// Returns the command with a neutral environment.
pub fn lab() -> Command {
    command::undisturbed(binary())
}

/// Returns the path of the recorder's library for linking, as the command saves it.
pub fn recorder() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let folder = scratch("recorder");
        std::fs::create_dir(&folder).expect("a folder");
        let library = folder.join("libledgerline_record.so");
        said(lab().args(["layout", "record", "--save-library"]).arg(&library));
        library
    })
}

/// Compiles C source with types; `None` if there is no compiler.
pub fn object(text: &str) -> Option<PathBuf> {
    let source = scratch("source.c");
    std::fs::write(&source, text).expect("the source can be written");
    compile::object(&source, &[])
}
