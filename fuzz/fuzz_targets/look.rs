//! Whatever a ledger's words: see `ledgerline_watch::fuzz::look`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ledgerline_watch::fuzz::look(data));
