//! Sets `cfg(rseq)` where the library has restartable sections (`src/percpu/README.md`), and `cfg(own_area)` where it
//! registers threads for them itself: the one place that says for which machines. `cargo test` compiles for loom without them.

use std::env::var;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(rseq, own_area, owned_windows, ledgerline_initial_exec)");
    let is = |name: &str, values: &[&str]| {
        var(format!("CARGO_CFG_TARGET_{name}")).is_ok_and(|value| values.contains(&value.as_str()))
    };
    // An abort's signature is stored in another byte order on big-endian machines.
    let could = is("ENDIAN", &["little"]) && is("POINTER_WIDTH", &["64"]) && is("OS", &["linux"]);
    let glibc = is("ARCH", &["x86_64", "aarch64"]) && is("ENV", &["gnu"]);
    // musl registers no area, so the library does (`src/percpu/own_area.rs`): in static programs, and in dynamic ones and
    // libraries that are there when the program starts, which the build must say.
    let own_area = is("ARCH", &["x86_64"])
        && is("ENV", &["musl"])
        && (programs_are_static() || var("CARGO_CFG_LEDGERLINE_INITIAL_EXEC").is_ok());
    // Assembly makes the windows of owned columns where the compiler cannot (`src/percpu/windows.rs`).
    if could && is("ARCH", &["x86_64"]) && var("CARGO_CFG_LOOM").is_err() {
        println!("cargo::rustc-cfg=owned_windows");
    }
    let has_sections = could && (glibc || own_area);
    if has_sections && var("CARGO_CFG_LOOM").is_err() {
        println!("cargo::rustc-cfg=rseq");
        if own_area {
            println!("cargo::rustc-cfg=own_area");
        }
    }
}

/// Whether the compiler makes static programs for the target, by its default or the user's flags. Cargo leaves that out of
/// the features that it tells.
fn programs_are_static() -> bool {
    let flags = var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let asked = Command::new(var("RUSTC").expect("cargo sets it"))
        .args(["--print", "cfg", "--target", &var("TARGET").expect("cargo sets it")])
        .args(flags.split('\x1f').filter(|flag| !flag.is_empty()))
        .output();
    asked.is_ok_and(|asked| {
        String::from_utf8_lossy(&asked.stdout).contains("target_feature=\"crt-static\"")
    })
}
