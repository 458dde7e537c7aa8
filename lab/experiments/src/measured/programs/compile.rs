//! A compile: `make -j` over generated C files.

use super::super::trace::{Recorder, Trace};
use super::running::{Running, Size};
use super::scratch::Scratch;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Files of a pass, and functions of a file.
const FILES: usize = 10;
const FUNCTIONS: usize = 60;

const MAKEFILE: &str = "\
SOURCES := $(wildcard *.c)
$(OUT)/program: $(SOURCES:%.c=$(OUT)/%.o)
\t$(CC) -o $@ $^
$(OUT)/%.o: %.c
\t$(CC) -O1 -c -o $@ $<
";

pub(super) fn record(cpus: &[usize], size: Size) -> Result<Trace, String> {
    for needed in ["make", "cc"] {
        Running::start(Command::new(needed).arg("--version"), None)?.succeed()?;
    }
    let scratch = Scratch::new().map_err(|error| format!("no directory to work in: {error}"))?;
    let files = if size.quick { 3 } else { FILES };
    write(scratch.path(), files)
        .map_err(|error| format!("cannot write what to compile: {error}"))?;
    let mut recorder = Recorder::begin(cpus)?;
    for pass in 0..size.passes {
        recorder.pass(|| make(scratch.path(), &format!("pass{pass}"), cpus.len()))?;
    }
    Ok(recorder.end())
}

fn make(directory: &Path, out: &str, jobs: usize) -> Result<(), String> {
    fs::create_dir(directory.join(out)).map_err(|error| format!("cannot make {out}: {error}"))?;
    let mut make = Command::new("make");
    make.current_dir(directory)
        .arg(format!("-j{jobs}"))
        .args(["-s", "CC=cc", &format!("OUT={out}")])
        // This make must not be a part of one that started this process.
        .env_remove("MAKEFLAGS")
        .env_remove("MAKELEVEL");
    Running::start(&mut make, None)?.succeed()
}

fn write(directory: &Path, files: usize) -> std::io::Result<()> {
    fs::write(directory.join("Makefile"), MAKEFILE)?;
    let mut main = String::from("#include <stdio.h>\n");
    for file in 0..files {
        fs::write(directory.join(format!("part{file}.c")), source(file))?;
        let _ = writeln!(main, "long part{file}(long);");
    }
    main.push_str("int main(void) {\n    long sum = 0;\n");
    for file in 0..files {
        let _ = writeln!(main, "    sum += part{file}(sum);");
    }
    main.push_str("    printf(\"%ld\\n\", sum);\n    return 0;\n}\n");
    fs::write(directory.join("main.c"), main)
}

/// Returns a file with small functions that all differ.
fn source(file: usize) -> String {
    let mut text = String::from("#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n");
    text.push_str("struct item { struct item *next; long key; char name[24]; };\n");
    for function in 0..FUNCTIONS {
        let (odd, shift) = (2 * (file * FUNCTIONS + function) + 1, function % 13 + 1);
        let _ = writeln!(
            text,
            "static long f{function}(struct item *item, long sum) {{\n    \
             for (; item; item = item->next) {{\n        \
             sum += (item->key * {odd}) ^ (sum >> {shift});\n        \
             if (sum & {odd}) sum -= (long)strlen(item->name);\n        \
             else snprintf(item->name, sizeof item->name, \"%ld\", sum);\n    }}\n    \
             return sum;\n}}"
        );
    }
    let _ = writeln!(text, "long part{file}(long sum) {{");
    text.push_str("    struct item last = { 0, 3, \"last\" }, first = { &last, 5, \"first\" };\n");
    for function in 0..FUNCTIONS {
        let _ = writeln!(text, "    sum = f{function}(&first, sum);");
    }
    text.push_str("    return sum;\n}\n");
    text
}
