//! Every JSON output of the laboratory follows its schema in `docs/schemas`. `calibrate.rs`, `reproduce.rs` and
//! `bench.rs` check theirs, because those runs take longer.

mod laboratory;

use crate::{held, support};

/// The subcommands that have `--json`, and the schemas of what they print.
const JSON: [(&str, &[&str]); 10] = [
    ("layout show", &["layout-show"]),
    ("layout find", &["layout-find"]),
    ("layout check", &["layout-check"]),
    ("layout advise", &["layout-advise"]),
    ("layout trial", &["layout-trial"]),
    ("layout diff", &["layout-diff"]),
    ("layout record", &["layout-record"]),
    ("bench", &["bench"]),
    (
        "reproduce",
        &["reproduce-row", "reproduce-reported", "reproduce-curve", "reproduce-published"],
    ),
    ("calibrate", &["calibrate"]),
];

#[test]
fn every_option_json_has_a_schema_and_every_schema_an_output() {
    held::check_options(support::lab, &[], &JSON, held::of_laboratory);
}
