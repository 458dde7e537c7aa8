//! The pages of the manual and the completions agree with --help, and their readers accept them.

use crate::pages::{Pages, examples, options};
use crate::support;

const PAGES: Pages =
    Pages { command: support::ledgerline, name: "ledgerline", elsewhere: &support::ELSEWHERE };

#[test]
fn each_subcommand_has_a_page_with_the_options_and_examples_of_its_help() {
    let names = PAGES.check();
    assert!(names.contains("ledgerline-run.1") && names.contains("ledgerline-fleet-show.1"));
    let run = PAGES.help(&["run".to_owned()]);
    assert!(
        options(&run).contains("--max-heap")
            && examples(&run).contains("ledgerline run -- make -j8"),
        "what help was read for"
    );
}

#[test]
fn who_cannot_write_pages_is_told_where() {
    PAGES.check_unwritable();
}

#[test]
fn shells_complete_subcommands_options_and_values() {
    PAGES.check_completions(
        &["ledgerline", "calibrate", "max-heap", "library"],
        &[
            (&["ledgerline", "ca"], &["calibrate"]),
            (&["ledgerline", "run", "--max"], &["--max", "--max-heap"]),
            (&["ledgerline", "run", "--by", ""], &["thread", "process", "library"]),
            (&["ledgerline", "fleet", "to"], &["top"]),
        ],
    );
}
