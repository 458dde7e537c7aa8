//! The command ends normally if its output is not read.

use crate::support::{check_unread, lab};

#[test]
fn who_reads_no_more_of_what_a_command_says_gets_its_exit_status_and_no_panic() {
    let failing: [&[&str]; 2] =
        [&["layout", "show", "/no/such/file"], &["layout", "record", "--", "/no/such/program"]];
    for words in failing {
        check_unread(|| {
            let mut command = lab();
            command.args(words);
            command
        });
    }
}
