//! Gives the library its name: a program that was linked with it finds the copy that is preloaded by that. And tells
//! the command, which builds this package as a library of its own, where it lies.

fn main() {
    println!("cargo::rustc-link-arg=-Wl,-soname,libledgerline_record.so");
    println!("cargo::metadata=source={}", env!("CARGO_MANIFEST_DIR"));
    println!("cargo::rerun-if-changed=build.rs");
}
