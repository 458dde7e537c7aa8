//! Compiles programs for a test.

use std::path::Path;
use std::process::Command;

/// Runs a compiler. If it is missing, lacks a requested feature, or crashes, like some versions of dwp, this prints a
/// line that says so and returns `None`.
pub fn compile(compiler: &str, folder: &Path, arguments: &[&str]) -> Option<()> {
    let run = Command::new(compiler).current_dir(folder).args(arguments).output();
    match run {
        Err(error) => eprintln!("skipped: {compiler} cannot be run ({error})"),
        Ok(output) if output.status.code().is_none() => eprintln!("skipped: {compiler} crashes"),
        Ok(output) if !output.status.success() => {
            let said = String::from_utf8_lossy(&output.stderr);
            let reason = said.lines().find(|line| line.contains("error")).unwrap_or("no reason");
            // An option that a compiler does not know is skipped; a source that it refuses is a fault of the fixture.
            let lacks = [
                "unrecognized",
                "unknown",
                "not supported",
                "not enabled",
                "No such file",
                "cannot find",
            ];
            assert!(
                lacks.iter().any(|word| said.contains(word)),
                "{compiler} {arguments:?}: {said}"
            );
            eprintln!("skipped: {compiler} {arguments:?}: {reason}");
        }
        Ok(_) => return Some(()),
    }
    None
}
