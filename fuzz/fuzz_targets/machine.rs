//! Whatever the text: a machine file is read or refused in one line, and what is read can be simulated on.

#![no_main]

use ledgerline_coherence::machine::Machine;

libfuzzer_sys::fuzz_target!(|text: &str| {
    match Machine::parse("fuzz", text) {
        Ok(machine) => drop(machine.design(3)),
        Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
    }
});
