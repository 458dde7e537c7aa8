//! Peers that live in a Java virtual machine, where there is one.

use super::options::Options;
use ledgerline_measure::harness::Measured;
use ledgerline_measure::stats::Summary;
use ledgerline_terminal::folder;
use ledgerline_terminal::output::say;
use std::process::{Command, Stdio};

const SOURCE: &str = include_str!("LongAdderBench.java");

/// Times increments of a `LongAdder`. `None`, with a word to the user, where no JVM can run it.
pub(super) fn long_adder(
    name: &'static str,
    threads: usize,
    options: &Options,
) -> Result<Option<Measured>, String> {
    let skip = |why: &str| {
        say(format_args!("ledgerline: bench: {name} was left out: {why}"));
        Ok(None)
    };
    let folder = match folder::make("bench") {
        Ok(folder) => folder,
        Err(error) => return skip(&format!("cannot make a folder for its source: {error}")),
    };
    // The launcher takes a program's source by its file name alone.
    let path = folder.path().join("LongAdderBench.java");
    if let Err(error) = std::fs::write(&path, SOURCE) {
        return skip(&format!("cannot write {}: {error}", path.display()));
    }
    let output = Command::new("java")
        .arg(&path)
        .args([threads.to_string(), options.runs.to_string()])
        .arg(options.round().as_millis().to_string())
        .stdin(Stdio::null())
        .output();
    drop(folder);
    let output = match output {
        Ok(output) if output.status.success() => output,
        Ok(output) => {
            let error = String::from_utf8_lossy(&output.stderr);
            return skip(error.lines().next().unwrap_or("java failed"));
        }
        Err(error) => return skip(&format!("java: {error}")),
    };
    let figures = String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| line.trim().parse())
        .collect::<Result<Vec<f64>, _>>()
        .map_err(|error| format!("{name}: not a figure: {error}"))?;
    if figures.is_empty() {
        return skip("java printed nothing");
    }
    let ns_per_op = Summary::of_threads(&[figures]);
    Ok(Some(Measured { name, ns_per_op, transfer: None, waited: 0.0 }))
}
