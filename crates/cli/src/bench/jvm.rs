//! Peers that live in a Java virtual machine, where there is one.

use super::options::Options;
use crate::timing::harness::Measured;
use crate::timing::stats::Summary;
use std::fs::DirBuilder;
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const SOURCE: &str = include_str!("LongAdderBench.java");

/// Increments of a `LongAdder`; `None`, with a word to the user, where no JVM can run it.
pub(super) fn long_adder(
    name: &'static str,
    threads: usize,
    options: &Options,
) -> Result<Option<Measured>, String> {
    let skip = |why: &str| {
        eprintln!("ledgerline: bench: {name} was left out: {why}");
        Ok(None)
    };
    let folder = match own_folder(&std::env::temp_dir(), std::process::id()) {
        Ok(folder) => folder,
        Err(error) => return skip(&format!("cannot make a folder for its source: {error}")),
    };
    // The launcher takes a program's source by its file name alone.
    let path = folder.join("LongAdderBench.java");
    if let Err(error) = std::fs::write(&path, SOURCE) {
        let _ = std::fs::remove_dir_all(&folder);
        return skip(&format!("cannot write its source to {}: {error}", folder.display()));
    }
    let output = Command::new("java")
        .arg(&path)
        .args([threads.to_string(), options.runs.to_string()])
        .arg(options.round().as_millis().to_string())
        .stdin(Stdio::null())
        .output();
    let _ = std::fs::remove_dir_all(&folder);
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

/// Names that are tried for a folder, at most.
const NAMES: u32 = 100;

/// Makes a folder that was not there before, for this user alone: in one that somebody else had waiting
/// under this name, the source could be exchanged before it is run.
fn own_folder(parent: &Path, process: u32) -> io::Result<PathBuf> {
    for number in 0..NAMES {
        let folder = parent.join(format!("ledgerline-bench-{process}-{number}"));
        match DirBuilder::new().mode(0o700).create(&folder) {
            Ok(()) => return Ok(folder),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(ErrorKind::AlreadyExists.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_folder_that_was_there_before_is_not_used() {
        let parent = own_folder(&std::env::temp_dir(), std::process::id()).unwrap();
        let first = own_folder(&parent, 7).unwrap();
        let second = own_folder(&parent, 7).unwrap();
        assert_ne!(first, second);
        assert_eq!(second.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        for number in 2..NAMES {
            std::fs::create_dir(parent.join(format!("ledgerline-bench-7-{number}"))).unwrap();
        }
        assert_eq!(own_folder(&parent, 7).unwrap_err().kind(), ErrorKind::AlreadyExists);
        std::fs::remove_dir_all(&parent).unwrap();
    }
}
