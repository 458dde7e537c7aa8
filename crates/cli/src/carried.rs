//! The library that the command carries (`build.rs` builds it), as `ledgerline_run::launch` takes it.

use ledgerline_protocol::blind::Serves;
use ledgerline_run::launch::Library;

/// Charges allocations to a ledger.
pub static ACCOUNT: Library = Library::new(
    "preload",
    include_bytes!(concat!(env!("OUT_DIR"), "/libledgerline_preload.so")),
    "LEDGERLINE_PRELOAD",
    Serves::built_for(cfg!(library_for_glibc)),
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_lies_in_the_command() {
        if cfg!(all(library_for_glibc, target_arch = "x86_64")) {
            assert!(ACCOUNT.bytes().unwrap().starts_with(b"\x7fELF"));
        }
    }
}
