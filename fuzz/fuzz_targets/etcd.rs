//! The answers at the address of a fleet's etcd are read, and never believed.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| ledgerline_fleet::store::etcd::read_anything(bytes));
