//! A block whose section had written the label and was then stopped from taking the units.

use super::{Alloc, OWNERS, set_accounting};
use crate::percpu::inject::{ledgerline_inject_point, ledgerline_inject_reached, ran_alone};
use crate::{Ledger, Mistakes};
use std::alloc::{GlobalAlloc, Layout};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

static ALLOC: Alloc = Alloc::system();
const LAYOUT: Layout = Layout::new::<[u64; 6]>();
/// Between the label and the commit (`take_from_purse` in `percpu/instructions/`).
const LABELLED: u32 = 5;

/// One try: `false` if something else of the machine aborted the section on its way there.
fn hold() -> bool {
    let ledger = Ledger::builder().capacity(8).anonymous().unwrap().into_static();
    let group = ledger.root().create("group").unwrap();
    ledgerline_inject_reached.store(0, SeqCst);
    set_accounting(true);
    let done = AtomicBool::new(false);
    let held = std::thread::scope(|scope| {
        scope.spawn(|| {
            // SAFETY: the size is not zero; what is made is freed once.
            unsafe {
                let block = group.scope(|| {
                    for _ in 0..1000 {
                        ALLOC.dealloc(black_box(ALLOC.alloc(LAYOUT)), LAYOUT);
                    }
                    ledgerline_inject_point.store(LABELLED, SeqCst);
                    ALLOC.alloc(LAYOUT)
                });
                ledgerline_inject_point.store(0, SeqCst);
                done.store(true, SeqCst);
                let label = OWNERS.entry(block.addr()).unwrap().load(SeqCst);
                let held = ledgerline_inject_reached.load(SeqCst) == LABELLED;
                assert!(label == 0 || !held, "nobody was charged, and {label} is the owner");
                ALLOC.dealloc(block, LAYOUT);
            }
        });
        let reached = || ledgerline_inject_reached.load(SeqCst) == LABELLED;
        while !reached() && !done.load(SeqCst) {
            std::thread::yield_now();
        }
        set_accounting(false);
        // Its end takes the purse away, and waits for no section: it aborts them.
        let ended = group.destroy().unwrap();
        assert_eq!((ended.charges, ended.leftover), (ended.uncharges, 0));
        reached()
    });
    assert_eq!((ledger.root().precise(), ledger.mistakes()), (0, Mistakes::default()));
    held
}

#[test]
fn a_block_that_a_section_labelled_and_did_not_charge_is_nobodys() {
    if crate::percpu::grounds().mode != crate::percpu::Mode::Rseq {
        eprintln!("skipped: no restartable sequences here");
        return;
    }
    if ran_alone("alloc::held::a_block_that_a_section_labelled_and_did_not_charge_is_nobodys") {
        return;
    }
    assert!((0..30).any(|_| hold()), "the section was never held there");
}
