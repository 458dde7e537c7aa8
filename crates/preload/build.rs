//! Tells the command, which builds this package as a library of its own, where it lies; and links the unwinder into
//! that library.
//!
//! Rust's standard library asks for `libgcc_s.so.1`. Programs in C do not have that loaded: each would load it at its
//! start, which costs a tenth of a small program's life, and would have one more library in its list. The same functions
//! are in the compiler's static library, so a linker script of that name stands in a folder that the linker searches.

use std::path::PathBuf;

fn main() {
    println!("cargo::metadata=source={}", env!("CARGO_MANIFEST_DIR"));
    println!("cargo::rerun-if-changed=build.rs");
    let target = |what: &str| std::env::var(format!("CARGO_CFG_TARGET_{what}")).unwrap_or_default();
    if ["gnu", "musl"].contains(&target("ENV").as_str()) {
        let folder = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo names it"));
        let script = "INPUT(-lgcc_eh)\n";
        std::fs::write(folder.join("libgcc_s.so"), script).expect("the folder is ours");
        // glibc's own script names its loader as well, for `__tls_get_addr`, which every C library has: musl's loader
        // would look for that by its name, and refuse the program (src/libcs.rs).
        if target("ENV") == "gnu" && target("ARCH") == "x86_64" {
            let script = "INPUT(-l:libc.so.6 -l:libc_nonshared.a)\n";
            std::fs::write(folder.join("libc.so"), script).expect("the folder is ours");
        }
        println!("cargo::rustc-link-arg=-L{}", folder.display());
        // What is written at the start of each process lies on four pages then, and not on eight that another call makes
        // partly read-only. (Behind them lie the addresses of functions that are called, as writable as ever.)
        println!("cargo::rustc-link-arg=-Wl,-z,norelro");
    }
}
