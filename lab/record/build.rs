//! Gives the library its name, by which a program that was linked with it finds the preloaded copy. Also passes the
//! place of the sources to the command, which builds this package as a library of its own.

fn main() {
    println!("cargo::rustc-link-arg=-Wl,-soname,libledgerline_record.so");
    println!("cargo::metadata=source={}", env!("CARGO_MANIFEST_DIR"));
    println!("cargo::rerun-if-changed=build.rs");
}
