//! A group can be created while there is a row for it, whichever threads create others at the same time.

use crate::common::unique;
use ledgerline::Ledger;
use std::sync::Barrier;

#[test]
fn groups_made_at_once_are_never_refused_while_there_is_room() {
    const THREADS: usize = 4;
    const EACH: usize = 63;
    for round in 0..300 {
        // The root has a row, too.
        let ledger = Ledger::builder().capacity((THREADS * EACH + 1) as u32).anonymous().unwrap();
        let start = Barrier::new(THREADS);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    start.wait();
                    for group in 0..EACH {
                        let made = ledger.root().create(&unique("group"));
                        assert!(made.is_ok(), "round {round}, group {group}: {made:?}");
                    }
                });
            }
        });
        assert!(ledger.root().create("one more").is_err(), "each row has a group");
    }
}
