//! Reports the place of this package to the command, which builds it as a library of its own, and links the unwinder
//! into that library.
//!
//! Rust's standard library asks for `libgcc_s.so.1`. Programs in C do not load that: each would load it at its start,
//! which costs a tenth of a small program's life, and would have one more library in its list. The compiler's static
//! library has the same functions, so a linker script with that name stands in a folder that the linker searches.

use std::path::PathBuf;

fn main() {
    println!("cargo::metadata=source={}", env!("CARGO_MANIFEST_DIR"));
    println!("cargo::rerun-if-changed=build.rs");
    let target = |what: &str| std::env::var(format!("CARGO_CFG_TARGET_{what}")).unwrap_or_default();
    if ["gnu", "musl"].contains(&target("ENV").as_str()) {
        let folder = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo names it"));
        let script = "INPUT(-lgcc_eh)\n";
        std::fs::write(folder.join("libgcc_s.so"), script).expect("the folder is ours");
        // glibc's own script also names its loader, for `__tls_get_addr`. Every C library has that function, but musl's
        // loader would look for glibc's by its name and refuse the program (src/libcs.rs).
        if target("ENV") == "gnu" && target("ARCH") == "x86_64" {
            let script = "INPUT(-l:libc.so.6 -l:libc_nonshared.a)\n";
            std::fs::write(folder.join("libc.so"), script).expect("the folder is ours");
        }
        println!("cargo::rustc-link-arg=-L{}", folder.display());
        // With this the variables that each process writes at its start lie on four pages, not on eight that another
        // call makes partly read-only. Behind them lie the addresses of called functions, as writable as before.
        println!("cargo::rustc-link-arg=-Wl,-z,norelro");
    }
}
