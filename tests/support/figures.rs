//! Figures of benchmarks, as the commands print them in JSON.

use crate::held;
use serde_json::Value;
use std::process::{Command, Output};

/// Every row that was printed, each as its schema says.
pub fn rows(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::str::from_utf8(&output.stdout)
        .expect("the output is text")
        .lines()
        .map(|line| serde_json::from_str(line).expect("each line is an object"))
        .inspect(|row| held::held("bench", row))
        .collect()
}

/// A suite's quick figures, in both modes.
pub fn suite(command: &mut Command, name: &str, arguments: &[&str]) -> Vec<Value> {
    let output = command
        .args(["bench", name, "--quick", "--json", "--runs", "3"])
        .args(arguments)
        .output()
        .expect("the command runs");
    let rows = rows(&output);
    for row in &rows {
        assert_eq!(row["suite"], name, "{row}");
        let number = |key: &str| row[key].as_f64().unwrap_or_else(|| panic!("{key} of {row}"));
        assert!(number("min") <= number("ns_per_op") && number("ns_per_op") <= number("max"));
    }
    rows
}

/// The rows of a case, by any of its modes.
pub fn of<'r>(rows: &'r [Value], case: &str) -> Vec<&'r Value> {
    let found: Vec<&Value> = rows.iter().filter(|row| row["case"] == case).collect();
    assert!(!found.is_empty(), "no row for {case}");
    found
}
