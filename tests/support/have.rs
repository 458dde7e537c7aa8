//! Programs that a test can do without.

/// Whether a program is installed; says so where it is not.
pub fn have(program: &str) -> bool {
    let found = std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|entry| entry.join(program).is_file())
    });
    if !found {
        eprintln!("skipped: {program} is not installed");
    }
    found
}
