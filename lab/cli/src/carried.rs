//! The library that the command carries, in the form that `ledgerline_run::launch` takes. `build.rs` builds it.

use ledgerline_protocol::blind::Serves;
use ledgerline_run::launch::Library;

/// Counts accesses to fields.
pub static RECORDER: Library = Library::new(
    "record",
    include_bytes!(concat!(env!("OUT_DIR"), "/libledgerline_record.so")),
    "LEDGERLINE_RECORD_LIBRARY",
    Serves::Glibc,
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_lies_in_the_command() {
        if cfg!(all(library_for_glibc, target_arch = "x86_64")) {
            assert!(RECORDER.bytes().unwrap().starts_with(b"\x7fELF"));
        }
    }
}
