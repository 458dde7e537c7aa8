//! An allocator charges its blocks to an audited ledger.

use crate::{CHARGED, LEDGER};
use ledgerline::{Ledger, Mistakes};
use std::sync::atomic::Ordering::Relaxed;

#[test]
fn an_allocator_that_charges_itself_is_followed_without_a_false_alarm() {
    let ledger = LEDGER.get_or_init(|| Ledger::builder().audit(true).anonymous().unwrap());
    let heap = ledger.root().create("heap").unwrap();
    CHARGED.store(u64::from(heap.id().generation()) << 32 | u64::from(heap.id().index()), Relaxed);
    let kept: Vec<String> = (0..100).map(|n| format!("{n:100}")).collect();
    std::thread::scope(|scope| {
        for seed in 0..4usize {
            scope.spawn(move || {
                for turn in 0..3_000 {
                    // Each a size of its own, so that the audit's records grow and are swept.
                    let block = vec![1u8; 1 + (turn * 7 + seed * 1_000) % 5_000];
                    let more: Vec<String> = (0..turn % 5).map(|n| n.to_string()).collect();
                    if turn % 500 == 0 {
                        let ledger = LEDGER.get().unwrap();
                        assert!(!ledger.outstanding().is_empty());
                        assert!(ledger.audit_report().wrong.is_empty());
                    }
                    drop((block, more));
                }
            });
        }
    });
    assert_eq!(ledger.mistakes(), Mistakes::default(), "{}", ledger.audit_report());
    assert!(
        ledger.outstanding().iter().any(|held| held.units >= 100 * 100),
        "the strings are held"
    );
    // A double free by the program would be an uncharge too many. Here a wrong uncharge imitates it.
    heap.uncharge_units(123_457);
    let line = line!() - 1;
    let report = ledger.audit_report();
    let told: Vec<_> = report.wrong.iter().map(|w| (&*w.path, w.units, w.site.line())).collect();
    assert_eq!(told, [("/heap", 123_457, line)]);
    drop(report);
    drop(kept);
    assert_eq!(ledger.mistakes().audited, 1, "{}", ledger.audit_report());
}
