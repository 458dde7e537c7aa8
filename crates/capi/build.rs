//! Names the shared library, and keeps it loaded.
//!
//! The soname has the number of the ABI. The library is never unloaded: it has registered handlers with `fork`, and
//! threads may be inside. The exports need no list: the compiler exports the functions of a `cdylib` that have a C
//! name, and `tests/main/symbols.rs` compares them with a golden file.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libledgerline.so.1");
        println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
