//! Whatever a ledger's words: see `ledgerline_view::watch::fuzz::look`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ledgerline_view::watch::fuzz::look(data));
