//! A run within a run: each has its own account and its own limits.

use crate::support::compiled::{Compiled, SMALL, one, told};
use crate::support::*;
use serde_json::Value;

/// Neither run touches the other's ledger, even if the outer one keeps its library in each environment.
#[test]
fn a_run_within_a_run_has_its_account_and_limit_and_the_outer_one_names_its_program() {
    let Some(program) = Compiled::new(SMALL, &[]) else { return };
    for (options, status) in [(&[][..], 0), (&["--strict"], 125)] {
        let inner = scratch("inner.json");
        let words = [binary(), "run", "--max", "16M", "--json", inner.to_str().unwrap(), "--"];
        let words = [&words[..], &["sh", "-c", "\"$0\"; \"$0\"; exit 0", program.path()]].concat();
        let (output, outer) = account(options, &words);
        let errors = stderr(&output);
        assert_eq!(output.status.code(), Some(status), "{errors}");
        assert!(!errors.contains("damaged"), "{errors}");
        // The inner run executes the shell. Its children are not seen from outside.
        assert_eq!(told(&outer), one("sh", "a run of its own", 1), "{options:?}");
        let document = std::fs::read_to_string(&inner).unwrap();
        std::fs::remove_file(&inner).unwrap();
        let inner: Value = serde_json::from_str(&document).unwrap();
        assert_eq!(told(&inner), vec![], "{inner:#}");
        let programs = groups(&inner)
            .iter()
            .filter(|row| {
                row["path"].as_str().unwrap().rsplit('/').next().unwrap().starts_with("program.")
            })
            .count();
        assert!(programs >= 1, "{inner:#}");
        let peak = |account: &Value| account["groups"][0]["peak"].as_u64().unwrap();
        assert!(peak(&inner) >= 5_000_000, "{inner:#}");
        assert!(peak(&outer) < 5_000_000, "{outer:#}");
    }
}

#[test]
fn the_limit_of_the_run_within_holds_for_its_program_and_that_of_the_outer_one_does_not() {
    let Some(program) = Compiled::new(SMALL, &[]) else { return };
    // The program ends with 9 if it is refused five million bytes.
    for (outer, inner, status) in [("64M", "4M", 9), ("4M", "64M", 7)] {
        let words = ["--max", outer, "--", binary(), "run", "--max", inner, "--", program.path()];
        let output = run(&words);
        assert_eq!(output.status.code(), Some(status), "{outer}, {inner}: {}", stderr(&output));
    }
}
