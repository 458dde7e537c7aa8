//! The answers at the address of a fleet's Redis are read, and never believed.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| ledgerline_fleet::store::redis::read_anything(bytes));
