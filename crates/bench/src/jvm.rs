//! Peers in a Java virtual machine, if there is one.

use super::options::Options;
use crate::measure::harness::Rounds;
use ledgerline_view::terminal::folder;
use ledgerline_view::terminal::output::say;
use std::process::{Command, Stdio};

const SOURCE: &str = include_str!("LongAdderBench.java");

/// Times increments of a `LongAdder`. Returns `None`, with a message to the user, if no JVM can run it.
pub(super) fn long_adder(
    name: &'static str,
    threads: usize,
    options: &Options,
) -> Result<Option<Rounds>, String> {
    let told = match run(threads, options) {
        Ok(told) => told,
        Err(why) => {
            say(format_args!("ledgerline: bench: {name} was left out: {why}"));
            return Ok(None);
        }
    };
    let figures = told
        .lines()
        .map(|line| line.trim().parse())
        .collect::<Result<Vec<f64>, _>>()
        .map_err(|error| format!("{name}: not a figure: {error}"))?;
    Ok(Some(Rounds::of_one(name, figures)))
}

/// Returns the program's output, or the reason why it cannot be run here.
fn run(threads: usize, options: &Options) -> Result<String, String> {
    let folder = folder::make("bench")
        .map_err(|error| format!("cannot make a folder for its source: {error}"))?;
    // The launcher takes a program's source by its file name alone.
    let path = folder.path().join("LongAdderBench.java");
    std::fs::write(&path, SOURCE)
        .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    let output = Command::new("java")
        .arg(&path)
        .args([threads.to_string(), options.runs.to_string()])
        .arg(options.round().as_millis().to_string())
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("java: {error}"))?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        return Err(error.lines().next().unwrap_or("java failed").to_owned());
    }
    if output.stdout.is_empty() {
        return Err("java printed nothing".to_owned());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
