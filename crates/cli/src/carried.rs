//! The embedded library (`build.rs` builds it), in the form that `ledgerline_run::launch` takes.

use ledgerline_protocol::blind::Serves;
use ledgerline_run::launch::Library;

/// The library that charges allocations to a ledger.
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
