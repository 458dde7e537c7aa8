//! `ledgerline-lab bench` prints every figure in the documented form. The values depend on the machine.

use crate::figures::{of, suite};
use crate::support::lab;
use ledgerline_experiments::bench::cases;
use serde_json::Value;

#[test]
fn the_sweep_of_thresholds_stands_beside_the_source_documents_columns() {
    let rows = suite(&mut lab(), "numa", &["--threads", "1"]);
    let row = of(&rows, "threshold_125")[0];
    let number = |row: &Value, key: &str| row[key].as_u64();
    assert_eq!(number(row, "threshold"), Some(125));
    assert_eq!(number(row, "published_cycles"), Some(537));
    assert_eq!(number(row, "published_allocations"), Some(358_906_028));
    let none = of(&rows, "none")[0];
    assert_eq!((number(none, "threshold"), number(none, "published_cycles")), (None, Some(342)));
}

#[test]
fn pages_are_counted_four_ways_and_ours_misses_none() {
    let rows = suite(&mut lab(), "rss", &["--threads", "1", "--sleepers", "150"]);
    for case in cases("rss") {
        for row in of(&rows, case) {
            assert_eq!(row["sleepers"], 150, "{row}");
            assert_eq!(row["counted_pages"], 150 * 32, "{row}");
            let error = row["error_pages"].as_i64().unwrap();
            assert!(-error <= row["bound_pages"].as_i64().unwrap() && error <= 0, "{row}");
        }
    }
    assert!(of(&rows, "ours").iter().all(|row| row["error_pages"] == 0));
    assert!(of(&rows, "per_task").iter().all(|row| row["shown_pages"] == 0));
    let output = lab().args(["bench", "rss", "--sleepers", "0"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("'0' for '--sleepers <N>'"));
}
