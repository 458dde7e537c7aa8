//! The manual's pages and the completions agree with `--help`, and the programs that read them accept them.

use crate::pages::{Pages, examples, options};
use crate::support;

const PAGES: Pages = Pages { command: support::lab, name: "ledgerline-lab", elsewhere: &[] };

#[test]
fn each_subcommand_has_a_page_with_the_options_and_examples_of_its_help() {
    let names = PAGES.check();
    assert!(names.contains("ledgerline-lab-layout-show.1"));
    let record = PAGES.help(&["layout", "record"].map(str::to_owned));
    assert!(
        options(&record).contains("--save-library")
            && examples(&record).contains("ledgerline layout record --type item --build"),
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
        &["ledgerline-lab", "calibrate", "save-library", "sleepers"],
        &[
            (&["ledgerline-lab", "ca"], &["calibrate"]),
            (&["ledgerline-lab", "layout", "ad"], &["advise"]),
        ],
    );
}
