//! What `make install` installs is found by pkg-config, and runs the programs of README.md.

#[path = "../../../tests/support/have.rs"]
mod have;
mod support;

use std::path::Path;
use std::process::Command;
use support::{built, folder};

fn said(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// The programs of README.md in a language, each with the text that follows up to the next heading.
fn programs(language: &str) -> Vec<(String, String)> {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let readme = std::fs::read_to_string(readme).unwrap();
    let start = format!("```{language}\n");
    let blocks = readme.split(&start).skip(1).filter_map(|rest| rest.split_once("```"));
    let text = |after: &str| after.split("\n## ").next().unwrap_or_default().to_owned();
    blocks.map(|(program, after)| (program.to_owned(), text(after))).collect()
}

#[test]
fn what_is_installed_is_found_and_runs_the_programs_of_the_readme() {
    if ["make", "cc", "c++", "pkg-config"].iter().any(|it| !have::have(it)) {
        return;
    }
    // As `make` would build it, but for the profile.
    let libraries = folder().join("built");
    std::fs::create_dir_all(&libraries).unwrap();
    for name in ["libledgerline_c.so", "libledgerline_c.a"] {
        std::fs::copy(built(name), libraries.join(name)).unwrap();
    }
    let root = folder().join("root");
    let mut make = Command::new("make");
    make.arg("-C").arg(env!("CARGO_MANIFEST_DIR")).args(["--silent", "install", "CARGO=true"]);
    make.arg("PREFIX=/opt/here").arg(format!("DESTDIR={}", root.display()));
    make.arg(format!("OUT={}", libraries.display()));
    said(&mut make);
    let library = root.join("opt/here/lib");
    assert!(
        library
            .join("libledgerline.so")
            .canonicalize()
            .unwrap()
            .ends_with("libledgerline.so.1.0.0")
    );

    let mut query = Command::new("pkg-config");
    query.env("PKG_CONFIG_PATH", library.join("pkgconfig")).env("PKG_CONFIG_SYSROOT_DIR", &root);
    let version = said(
        Command::new("pkg-config")
            .env("PKG_CONFIG_PATH", library.join("pkgconfig"))
            .args(["--modversion", "ledgerline"]),
    );
    assert_eq!(version.trim(), env!("CARGO_PKG_VERSION"));
    let flags = said(query.args(["--cflags", "--libs", "ledgerline"]));

    let mut found = 0;
    for (language, compiler, standard) in [("c", "cc", "-std=c11"), ("cpp", "c++", "-std=c++17")] {
        for (at, (program, text)) in programs(language).into_iter().enumerate() {
            let source = folder().join(format!("readme-{at}.{language}"));
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

    let mut make = Command::new("make");
    make.arg("-C").arg(env!("CARGO_MANIFEST_DIR")).args(["--silent", "uninstall"]);
    make.arg("PREFIX=/opt/here").arg(format!("DESTDIR={}", root.display()));
    said(&mut make);
    assert_eq!(std::fs::read_dir(&library).unwrap().count(), 1, "the folder for pkg-config");
}
