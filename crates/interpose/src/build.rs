//! Builds a preloaded library from a build script, so that a command can embed it.
//!
//! ```text
//! [`carry`]:
//!     where its package lies         from that package's own build script (`links`)
//!     cargo rustc --crate-type cdylib    in a target folder below OUT_DIR; the same flags and lock; whole-program LTO in release; for the same
//!                                    target, and for this machine's where the command is static and this one has glibc
//!     copy to OUT_DIR                the command includes it
//!     rerun-if-changed               cargo's list of sources, and the manifests of those packages
//! ```
//!
//! Cargo has no stable way to depend on a file that another package builds, and does not document the place of a
//! dependency's build output. This module therefore calls cargo once more, through documented options only.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

/// Packages of this project that the libraries depend on.
const BELOW: [&str; 3] = ["ledgerline", "ledgerline-interpose", "ledgerline-protocol"];

/// Builds the library of the package `ledgerline-NAME` and copies it to `libledgerline_NAME.so` in `OUT_DIR`.
///
/// The package must be a dependency with `links = "ledgerline_NAME"` whose build script reports the place of its
/// source. The file is empty if the command does not depend on the package, or if the command will not be run.
/// `features` replace the package's default ones. Sets `cfg(library_for_glibc)` if the library is for glibc.
///
/// # Panics
///
/// Panics if the library cannot be built. Cargo prints the text, which names the cause.
pub fn carry(name: &str, features: &[&str]) {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=RUSTC_WORKSPACE_WRAPPER");
    println!("cargo::rustc-check-cfg=cfg(library_for_glibc)");
    let out = PathBuf::from(variable("OUT_DIR"));
    let target = Target::of_libraries();
    if target.is_glibc() {
        println!("cargo::rustc-cfg=library_for_glibc");
    }
    let file = out.join(format!("libledgerline_{name}.so"));
    // The variable is missing on machines for which the command does not depend on the package.
    let source = env::var_os(format!("DEP_LEDGERLINE_{}_SOURCE", name.to_uppercase()));
    let done = match source.filter(|_| is_run() && target.has(name)) {
        Some(source) => build(name, features, Path::new(&source), &target, &out)
            .and_then(|built| fs::copy(built, &file).map(drop)),
        None => fs::write(&file, ""),
    };
    done.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
}

/// Returns whether the command will be run: false under clippy and for loom's models.
fn is_run() -> bool {
    let wrapper = env::var_os("RUSTC_WORKSPACE_WRAPPER").unwrap_or_default();
    let clippy = Path::new(&wrapper).file_stem().is_some_and(|stem| stem == "clippy-driver");
    !clippy && env::var_os("CARGO_CFG_LOOM").is_none()
}

/// The target that the libraries are built for.
struct Target(String);

impl Target {
    /// Returns the command's own target. A static command (musl) is the exception: it serves programs of glibc too, so
    /// its libraries are built for glibc if the building machine has that. A library for glibc serves both.
    fn of_libraries() -> Target {
        let (host, target) = (variable("HOST"), variable("TARGET"));
        let machine = |of: &str| of.split('-').next().map(str::to_owned);
        let host = Target(host);
        let is_static = variable("CARGO_CFG_TARGET_OS") == "linux"
            && env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|environment| environment == "musl");
        if is_static && host.is_glibc() && machine(&host.0) == machine(&target) {
            return host;
        }
        Target(target)
    }

    fn is_glibc(&self) -> bool {
        self.0.ends_with("-linux-gnu")
    }

    /// Returns whether a library can be built for the target. The recorder's is for glibc alone.
    fn has(&self, name: &str) -> bool {
        self.is_glibc() || name == "preload"
    }

    /// Sets the target on `cargo`, with the command's linker and flags if they are for the same target.
    fn set(&self, cargo: &mut Command) {
        let Target(target) = self;
        cargo.args(["--target", target]);
        if *target != variable("TARGET") {
            cargo.env_remove("CARGO_ENCODED_RUSTFLAGS");
            return;
        }
        if let Some(linker) = env::var_os("RUSTC_LINKER") {
            let target = target.to_uppercase().replace('-', "_");
            cargo.env(format!("CARGO_TARGET_{target}_LINKER"), linker);
        }
        if !self.is_glibc() {
            // The library links to musl dynamically. It is always loaded at program start, so initial-exec access to
            // thread-local variables is safe, and threads can be registered (`percpu/own_area.rs` of the library).
            let given = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
            let ours = ["-Ctarget-feature=-crt-static", "--cfg", "ledgerline_initial_exec"];
            let all = given.split('\x1f').filter(|flag| !flag.is_empty()).chain(ours);
            cargo.env("CARGO_ENCODED_RUSTFLAGS", all.collect::<Vec<_>>().join("\x1f"));
        }
    }
}

/// Builds a library and returns its path.
fn build(
    name: &str,
    features: &[&str],
    source: &Path,
    target: &Target,
    out: &Path,
) -> io::Result<PathBuf> {
    // Cargo sets PROFILE to "release" for each profile that inherits from it.
    let (profile, folder) = match variable("PROFILE").as_str() {
        "release" => ("release", "release"),
        _ => ("dev", "debug"),
    };
    let below = out.join("target");
    let mut cargo = Command::new(variable("CARGO"));
    cargo.args(["rustc", "--quiet", "--offline", "--lib", "--crate-type", "cdylib"]);
    cargo.args(["--profile", profile]).arg("--target-dir").arg(&below);
    target.set(&mut cargo);
    if profile == "release" {
        // Each malloc of a program runs this code, so it is optimized whatever the profile of the command.
        cargo.args(["--config", "profile.release.lto='fat'"]);
        cargo.args(["--config", "profile.release.codegen-units=1"]);
    }
    if !features.is_empty() {
        cargo.args(["--no-default-features", "--features", &features.join(",")]);
    }
    // The embedded library is not debugged.
    cargo.args(["--config", &format!("profile.{profile}.debug=0")]);
    cargo.args(["--config", &format!("profile.{profile}.strip='debuginfo'")]);
    // The waiting cargo holds the lock of the configured folder for intermediate files.
    cargo.env("CARGO_BUILD_BUILD_DIR", &below);
    if source.join("Cargo.toml.orig").exists() {
        packaged(&mut cargo, source, &out.join(name))?;
    } else {
        cargo.arg("--manifest-path").arg(source.join("Cargo.toml"));
    }
    if !cargo.status()?.success() {
        return Err(io::Error::other(format!("{cargo:?} failed")));
    }
    let library = below.join(&target.0).join(folder).join(format!("libledgerline_{name}.so"));
    depends_on(source, &fs::read_to_string(library.with_extension("d"))?);
    Ok(library)
}

/// Builds a published package as a copy without a lock. In a registry a package has neither this project's profiles
/// nor, while it is being published, its neighbours, and its lock may name packages that were not downloaded.
fn packaged(cargo: &mut Command, source: &Path, copy: &Path) -> io::Result<()> {
    copy_files(&source.join("src"), &copy.join("src"))?;
    let manifest = fs::read_to_string(source.join("Cargo.toml"))?;
    // An empty workspace, so that one further up does not claim it.
    fs::write(copy.join("Cargo.toml"), manifest + "\n[workspace]\n")?;
    fs::copy(source.join("build.rs"), copy.join("build.rs"))?;
    cargo.arg("--manifest-path").arg(copy.join("Cargo.toml"));
    for name in BELOW {
        let beside = [format!("{name}-{}", variable("CARGO_PKG_VERSION")), name.to_owned()];
        let found = beside.map(|name| source.with_file_name(name));
        if let Some(found) = found.iter().find(|path| path.join("Cargo.toml").exists()) {
            cargo.args(["--config", &format!("patch.crates-io.{name}.path={found:?}")]);
        }
    }
    Ok(())
}

fn copy_files(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_files(&entry.path(), &to)?;
        } else {
            fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}

/// Makes cargo run this script again when an input of the library changes: a file that `rule` names, a line for make, a
/// manifest of one of the packages, or that of the workspace.
fn depends_on(source: &Path, rule: &str) {
    let mut files = BTreeSet::new();
    let (_, names) = rule.split_once(": ").unwrap_or_default();
    for name in names.replace("\\ ", "\0").split_whitespace() {
        let file = PathBuf::from(name.replace('\0', " "));
        let package = file.ancestors().map(|folder| folder.join("Cargo.toml"));
        files.extend(package.filter(|manifest| manifest.exists()).take(1));
        files.insert(file);
    }
    if let Some(top) = source.ancestors().find(|folder| folder.join("Cargo.lock").exists()) {
        files.extend(["Cargo.lock", "Cargo.toml"].map(|name| top.join(name)));
    }
    for file in files {
        println!("cargo::rerun-if-changed={}", file.display());
    }
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|error| panic!("{name}: {error}"))
}
