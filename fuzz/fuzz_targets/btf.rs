//! Whatever the bytes: see `ledgerline_layout::fuzz::btf`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ledgerline_layout::fuzz::btf(data));
