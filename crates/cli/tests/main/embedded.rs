//! Programs that embed the library, under `ledgerline run`: their tables are address space, not memory.

use crate::support::{account, binary, check, groups, number, stderr};

/// The command's own benches embed ledgers with the default capacity, each of which reserves most of a gigabyte, and
/// the allocator with its shadow.
#[test]
fn the_tables_of_a_ledger_that_a_program_embeds_are_not_charged_to_it() {
    for suite in ["charge", "alloc"] {
        let program = [binary(), "bench", suite, "--quick", "--json", "--threads", "1"];
        let (output, account) = account(&["--max", "64M", "--by", "process"], &program);
        assert!(output.status.success(), "bench {suite}: {}", stderr(&output));
        check(&account);
        let root = &groups(&account)[0];
        assert_eq!(number(root, "refused"), 0, "bench {suite}: {account:#}");
        assert!(number(root, "charges") > 100, "its blocks are charged as ever");
    }
}
