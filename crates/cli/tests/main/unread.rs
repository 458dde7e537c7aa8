//! Without a reader of its output the command ends normally.

use crate::support::{check_unread, ledgerline};

#[test]
fn who_reads_no_more_of_what_a_command_says_gets_its_exit_status_and_no_panic() {
    let failing: [&[&str]; 5] = [
        &["layout", "show", "/no/such/file"],
        &["show", "/no/such/ledger"],
        &["set", "/no/such/ledger", "/", "max=1M"],
        &["report", "/no/such/file"],
        &["run", "--", "/no/such/program"],
    ];
    for words in failing {
        check_unread(|| {
            let mut command = ledgerline();
            command.args(words);
            command
        });
    }
}
