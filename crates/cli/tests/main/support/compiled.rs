//! Programs that are compiled for a test, and the accounts' entries about programs that are not accounted.

use super::{scratch, stderr};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

/// A compiled program in its own folder, which is removed with it.
pub struct Compiled(pub PathBuf);

impl Compiled {
    /// Compiles a source; prints a line and returns `None` without a compiler for that.
    pub fn new(source: &str, options: &[&str]) -> Option<Compiled> {
        let folder = scratch("compiled");
        std::fs::create_dir_all(&folder).unwrap();
        let program = folder.join("program");
        let input = folder.join("source.c");
        std::fs::write(&input, source).unwrap();
        let mut compiler = Command::new("cc");
        compiler.args(["-O1", "-o"]).arg(&program).arg(&input).args(options);
        match compiler.output() {
            Ok(output) if output.status.success() => Some(Compiled(program)),
            Ok(output) if options.is_empty() => panic!("{}", stderr(&output)),
            _ => {
                eprintln!("skipped: nothing is compiled by cc {options:?}");
                None
            }
        }
    }

    pub fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Compiled {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.0.parent().unwrap());
    }
}

pub const SMALL: &str = "#include <stdlib.h>
int main(void) { char *volatile p = malloc(5000000); if (!p) return 9; p[0] = 1; free(p); return 7; }";

/// Returns (program, reason, processes) of all that were not accounted.
pub fn told(account: &Value) -> Vec<(String, String, u64)> {
    let list = account["not_accounted"].as_array().expect("a list");
    let told = list.iter().map(|one| {
        let text = |field: &str| one[field].as_str().unwrap_or_default().to_owned();
        (text("program"), text("reason"), one["processes"].as_u64().unwrap())
    });
    told.collect()
}

pub fn one(program: &str, reason: &str, processes: u64) -> Vec<(String, String, u64)> {
    vec![(program.to_owned(), reason.to_owned(), processes)]
}
