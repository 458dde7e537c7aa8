//! The libraries that the command carries (`build.rs` builds them), as `ledgerline-launch` takes them.

use ledgerline_launch::Library;
use ledgerline_protocol::blind::Serves;

/// Charges allocations to a ledger.
pub static ACCOUNT: Library = Library::new(
    "preload",
    include_bytes!(concat!(env!("OUT_DIR"), "/libledgerline_preload.so")),
    "LEDGERLINE_PRELOAD",
    Serves::built_for(cfg!(library_for_glibc)),
);

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
    fn the_libraries_lie_in_the_command() {
        for library in [&ACCOUNT, &RECORDER] {
            if cfg!(all(library_for_glibc, target_arch = "x86_64")) {
                assert!(library.bytes().unwrap().starts_with(b"\x7fELF"));
            }
        }
    }
}
