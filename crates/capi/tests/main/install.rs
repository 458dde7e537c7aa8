//! Tests that pkg-config finds the installations of `make install` and `cargo cinstall`, and that the programs of
//! README.md run with them.

use crate::support::{built, folder, have};
use std::path::Path;
use std::process::Command;

fn said(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the programs of README.md in a language, each with the text that follows up to the next heading.
fn programs(language: &str) -> Vec<(String, String)> {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let readme = std::fs::read_to_string(readme).unwrap();
    let start = format!("```{language}\n");
    let blocks = readme.split(&start).skip(1).filter_map(|rest| rest.split_once("```"));
    let text = |after: &str| after.split("\n## ").next().unwrap_or_default().to_owned();
    blocks.map(|(program, after)| (program.to_owned(), text(after))).collect()
}

/// Returns whether this machine lacks the tools to compile README's programs with pkg-config.
fn lacks_compilers() -> bool {
    ["cc", "c++", "pkg-config"].iter().any(|it| !have(it))
}

/// Compiles README's programs with the flags of pkg-config for libraries below a root, runs them, and compares their
/// output.
fn use_it(root: &Path) {
    let library = root.join("opt/here/lib");
    let shared = library.join("libledgerline.so").canonicalize().unwrap();
    assert!(shared.ends_with("libledgerline.so.1.0.0"));
    assert!(
        library.join("libledgerline.so.1").exists() && library.join("libledgerline.a").exists()
    );
    let query = || {
        let mut query = Command::new("pkg-config");
        query.env("PKG_CONFIG_PATH", library.join("pkgconfig"));
        query
    };
    let version = said(query().args(["--modversion", "ledgerline"]));
    assert_eq!(version.trim(), env!("CARGO_PKG_VERSION"));
    let mut below = query();
    below.env("PKG_CONFIG_SYSROOT_DIR", root).args(["--cflags", "--libs", "ledgerline"]);
    let flags = said(&mut below);

    let mut found = 0;
    for (language, compiler, standard) in [("c", "cc", "-std=c11"), ("cpp", "c++", "-std=c++17")] {
        for (at, (program, text)) in programs(language).into_iter().enumerate() {
            let source = root.join(format!("readme-{at}.{language}"));
            std::fs::write(&source, program).unwrap();
            let out = source.with_extension(format!("{language}.out"));
            let mut compile = Command::new(compiler);
            compile.args([standard, "-Wall", "-Wextra", "-Werror"]).arg(&source);
            said(compile.args(flags.split_whitespace()).arg("-o").arg(&out));
            let printed = said(Command::new(&out).env("LD_LIBRARY_PATH", &library));
            assert!(!printed.is_empty());
            for line in printed.lines() {
                assert!(text.contains(&format!("`{line}`")), "README.md does not say {line:?}");
            }
            found += 1;
        }
    }
    assert_eq!(found, 2, "programs in README.md");
}

#[test]
fn what_make_installs_is_found_runs_the_programs_of_the_readme_and_goes_again() {
    if !have("make") || lacks_compilers() {
        return;
    }
    // Like a build by `make`, but for the profile.
    let libraries = folder().join("built");
    std::fs::create_dir_all(&libraries).unwrap();
    for name in ["libledgerline_c.so", "libledgerline_c.a"] {
        std::fs::copy(built(name), libraries.join(name)).unwrap();
    }
    let root = folder().join("root");
    let make = |what: &str| {
        let mut make = Command::new("make");
        make.arg("-C").arg(env!("CARGO_MANIFEST_DIR")).args(["--silent", what, "CARGO=true"]);
        make.arg("PREFIX=/opt/here").arg(format!("DESTDIR={}", root.display()));
        said(make.arg(format!("OUT={}", libraries.display())));
    };
    make("install");
    use_it(&root);
    make("uninstall");
    let left = std::fs::read_dir(root.join("opt/here/lib")).unwrap().count();
    assert_eq!(left, 1, "the folder for pkg-config");
}

#[test]
fn what_cargo_c_installs_is_found_and_runs_the_programs_of_the_readme() {
    if !have("cargo-cinstall") || lacks_compilers() {
        return;
    }
    let root = folder().join("by-cargo-c");
    let mut install = Command::new("cargo");
    install.current_dir(env!("CARGO_MANIFEST_DIR"));
    install.args([
        "cinstall",
        "--offline",
        "--profile",
        "dev",
        "--prefix=/opt/here",
        "--libdir=lib",
    ]);
    install.arg("--target-dir").arg(folder().join("cargo-c-target"));
    said(install.arg(format!("--destdir={}", root.display())));
    use_it(&root);
}
