//! A library that is only loaded at run time, built for the test that loads it.

use super::tested;
use std::path::PathBuf;
use std::process::Command;

/// Builds a package as a library to be loaded, in the tested profile and its directory, with these features in place of its
/// default ones: `cargo test` builds only what crates link.
pub fn built(package: &str, features: &[&str], file: &str) -> PathBuf {
    let directory = tested::directory();
    let profile = match directory.file_name().and_then(|name| name.to_str()) {
        Some("debug") => "dev",
        Some(profile) => profile,
        None => panic!("{directory:?} is no profile's directory"),
    };
    let above = directory.parent().expect("a profile's directory lies in a target directory");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(env!("CARGO_MANIFEST_DIR")).args(["rustc", "--quiet", "--package", package]);
    cargo.args(["--lib", "--crate-type", "cdylib", "--profile", profile]);
    if !features.is_empty() {
        cargo.args(["--no-default-features", "--features", &features.join(",")]);
    }
    // With --target there is one more level, named after it. Cargo marks a target directory only if it made it.
    if ["CACHEDIR.TAG", ".rustc_info.json"].iter().any(|mark| above.join(mark).exists()) {
        cargo.arg("--target-dir").arg(above);
    } else {
        cargo.arg("--target").arg(above.file_name().expect("the target's name"));
        cargo.arg("--target-dir").arg(above.parent().expect("a target directory above"));
    }
    assert!(cargo.status().expect("cargo runs").success(), "{package} does not build");
    let library = directory.join(file);
    assert!(library.is_file(), "no {library:?} after building it");
    library
}
