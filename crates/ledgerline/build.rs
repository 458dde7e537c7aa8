//! Sets `cfg(rseq)` where the library has restartable sections (`src/percpu/README.md`): the one place that says for
//! which machines. `cargo test` compiles for loom without them.

use std::env::var;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(rseq)");
    let is = |name: &str, values: &[&str]| {
        var(format!("CARGO_CFG_TARGET_{name}")).is_ok_and(|value| values.contains(&value.as_str()))
    };
    // (An abort's signature is stored in another byte order on big-endian machines.)
    let has_sections = is("ARCH", &["x86_64", "aarch64"])
        && is("ENDIAN", &["little"])
        && is("POINTER_WIDTH", &["64"])
        && is("OS", &["linux"])
        && is("ENV", &["gnu"]);
    if has_sections && var("CARGO_CFG_LOOM").is_err() {
        println!("cargo::rustc-cfg=rseq");
    }
}
