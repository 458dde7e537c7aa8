//! `ledgerline run` and seccomp filters: the run's own, and those of its programs.

use crate::support::*;

const MIB: u64 = 1 << 20;

/// Puts itself under a filter that allows everything, and executes its arguments.
const FILTER: &str = "\
import ctypes, os, struct, sys\n\
libc = ctypes.CDLL(None)\n\
allow = ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 0x7fff0000), 8)\n\
program = ctypes.create_string_buffer(struct.pack('HxxxxxxP', 1, ctypes.addressof(allow)), 16)\n\
assert libc.prctl(38, 1, 0, 0, 0) == 0\n\
assert libc.prctl(22, 2, program, 0, 0) == 0\n\
os.execv(sys.argv[1], sys.argv[1:])\n";
const HOLD: &str = "held = bytearray(50 << 20); import sys; print(len(held)); sys.stdout.flush()";

#[test]
fn under_a_filter_of_the_runs_own_everything_is_accounted() {
    let Some(python) = python() else { return };
    let file = scratch("account.json");
    let mut run = std::process::Command::new(python);
    run.args(["-c", FILTER]).arg(ledgerline().get_program()).args(["run", "--json"]).arg(&file);
    let output = run.args(["--", python, "-c", HOLD]).output().expect("it starts");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "52428800\n", "{}", stderr(&output));
    let text = std::fs::read_to_string(&file).expect("the account");
    std::fs::remove_file(&file).expect("the account can be removed");
    let account = serde_json::from_str(&text).expect("the account is JSON");
    check(&account);
    assert!(number(&groups(&account)[0], "peak") > 50 * MIB, "{account:#}");
}

#[test]
fn a_program_that_starts_under_a_filter_of_its_parents_runs_unaccounted_without_a_word() {
    let Some(python) = python() else { return };
    let (output, account) = account(&[], &[python, "-c", FILTER, python, "-c", HOLD]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "52428800\n");
    assert!(output.status.success(), "{}", stderr(&output));
    let said = stderr(&output);
    assert_eq!(said.matches("ledgerline: ").count(), 1, "more than the account: {said}");
    check(&account);
    // The process that installed the filter is accounted.
    let peak = number(&groups(&account)[0], "peak");
    assert!(peak > 100_000 && peak < 50 * MIB, "{account:#}");
}
