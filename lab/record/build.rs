//! Gives the library its name: a program that was linked with it finds the copy that is preloaded by that.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libledgerline_record.so");
    println!("cargo::rerun-if-changed=build.rs");
}
