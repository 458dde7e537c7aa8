//! `run` accounts programs for musl like those for glibc, in whatever order they start each other.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use crate::support::*;
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

const MIB: u64 = 1 << 20;

/// A program that allocates some MiB, prints whether it got them, and then executes its arguments.
const HOLDS: &str = "#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int n, char **words) {
    size_t size = strtoul(words[1], 0, 10) << 20;
    char *volatile block = malloc(size);
    if (block) memset(block, 1, size);
    puts(block ? \"got it\" : \"refused\");
    fflush(stdout);
    if (n > 2) return execvp(words[2], words + 2);
    return block ? 7 : 8;
}";

/// The program, compiled for musl with its shared library, in its own folder, which is removed with it.
struct ForMusl(PathBuf);

impl ForMusl {
    /// Compiles it; prints a line and returns `None` without a compiler for that.
    fn new() -> Option<ForMusl> {
        if !have("musl-gcc") {
            return None;
        }
        let folder = scratch("musl");
        std::fs::create_dir_all(&folder).unwrap();
        let (source, program) = (folder.join("holds.c"), folder.join("holds"));
        std::fs::write(&source, HOLDS).unwrap();
        let mut compiler = Command::new("musl-gcc");
        compiler.args(["-O1", "-fno-builtin", "-o"]).arg(&program).arg(&source);
        assert!(compiler.status().unwrap().success());
        Some(ForMusl(program))
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for ForMusl {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.0.parent().unwrap());
    }
}

/// Returns the names of the rows right below the root, without their ids, with their peaks in MiB.
fn rows(account: &Value) -> Vec<(String, u64)> {
    let groups = account["groups"].as_array().expect("a list");
    let own = groups.iter().filter_map(|group| {
        let name = group["path"].as_str()?.strip_prefix('/')?;
        let (name, _) = name.rsplit_once('.').filter(|_| !name.contains('/'))?;
        Some((name.to_owned(), group["peak"].as_u64()? / MIB))
    });
    let mut rows: Vec<_> = own.collect();
    rows.sort();
    rows
}

fn names(of: &[(&str, u64)]) -> Vec<(String, u64)> {
    of.iter().map(|&(name, peak)| (name.to_owned(), peak)).collect()
}

#[test]
fn a_program_for_musl_has_its_row_and_its_own_status() {
    let Some(program) = ForMusl::new() else { return };
    let (output, account) = account(&["--strict"], &[program.path(), "5"]);
    assert_eq!(output.status.code(), Some(7), "{}", stderr(&output));
    assert_eq!(output.stdout, b"got it\n");
    assert_eq!(rows(&account), names(&[("holds", 5)]));
    assert!(!stderr(&output).contains("warning"), "{}", stderr(&output));
}

#[test]
fn nobody_is_left_out_whoever_starts_whom() {
    let Some(program) = ForMusl::new() else { return };
    let path = program.path();
    // From glibc to musl, by a fork and by an exec; from musl to glibc and back.
    for (words, code, expected) in [
        (
            vec!["sh", "-c", "\"$0\" 5; \"$0\" 6; :", path],
            0,
            &[("holds", 5), ("holds", 6), ("sh", 0)][..],
        ),
        (vec!["sh", "-c", "exec \"$0\" 5", path], 7, &[("holds", 5), ("sh", 0)]),
        (
            vec![path, "5", "sh", "-c", "\"$0\" 6; exit 3", path],
            3,
            &[("holds", 5), ("holds", 6), ("sh", 0)],
        ),
        (
            vec!["env", path, "5", path, "6", "env", path, "7"],
            7,
            &[("env", 0), ("env", 0), ("holds", 5), ("holds", 6), ("holds", 7)],
        ),
    ] {
        let (output, account) = account(&["--strict", "--by", "process"], &words);
        assert_eq!(output.status.code(), Some(code), "{words:?} {}", stderr(&output));
        assert_eq!(account["not_accounted"].as_array().map(Vec::len), Some(0), "{account}");
        assert_eq!(rows(&account), names(expected), "{words:?}");
    }
}

#[test]
fn a_script_is_accounted_by_its_interpreter() {
    let Some(program) = ForMusl::new() else { return };
    let script = program.0.with_file_name("script");
    executable(&script, format!("#!{}\n", program.path()).as_bytes());
    // The kernel passes the script's name to the interpreter, which ignores it.
    let (output, account) = account(&["--strict"], &[script.to_str().unwrap()]);
    assert_eq!((output.status.code(), &*output.stdout), (Some(7), &b"got it\n"[..]));
    assert_eq!(rows(&account).len(), 1, "{account}");
}

#[test]
fn at_the_limit_a_program_for_musl_is_refused_and_goes_on() {
    let Some(program) = ForMusl::new() else { return };
    let (output, account) = account(&["--max", "8M"], &[program.path(), "20"]);
    assert_eq!((output.status.code(), &*output.stdout), (Some(8), &b"refused\n"[..]));
    let root = &account["groups"][0];
    assert!(root["peak"].as_u64().unwrap() <= 8 * MIB && root["refused"] == 1, "{account}");
}
