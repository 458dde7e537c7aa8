//! Tests that a block is not charged if its critical section wrote the label but was stopped before it took the
//! units.

use super::{Alloc, OWNERS, set_accounting};
use crate::percpu::inject::{ledgerline_inject_point, ledgerline_inject_reached, ran_alone};
use crate::{Ledger, Mistakes};
use std::alloc::{GlobalAlloc, Layout};
use std::hint::black_box;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering::SeqCst};

static ALLOC: Alloc = Alloc::system();
const LAYOUT: Layout = Layout::new::<[u64; 6]>();
/// Between the label and the commit (`take_from_thread_cache` in `percpu/instructions/`).
const LABELLED: u32 = 5;

/// Tries once. Returns `false` if another event of the machine aborted the section, which then restarted and took the
/// units.
fn hold() -> bool {
    let ledger = Ledger::builder().capacity(8).anonymous().unwrap().into_static();
    let group = ledger.root().create("group").unwrap();
    ledgerline_inject_reached.store(0, SeqCst);
    set_accounting(true);
    let made = AtomicPtr::new(null_mut());
    let reached = || ledgerline_inject_reached.load(SeqCst) == LABELLED;
    let ended = std::thread::scope(|scope| {
        scope.spawn(|| {
            let block = group.scope(|| {
                for _ in 0..1000 {
                    // SAFETY: the size is not zero; the block is freed once.
                    unsafe { ALLOC.dealloc(black_box(ALLOC.alloc(LAYOUT)), LAYOUT) };
                }
                ledgerline_inject_point.store(LABELLED, SeqCst);
                // SAFETY: as above.
                unsafe { ALLOC.alloc(LAYOUT) }
            });
            ledgerline_inject_point.store(0, SeqCst);
            made.store(block, SeqCst);
        });
        while !reached() && made.load(SeqCst).is_null() {
            std::thread::yield_now();
        }
        set_accounting(false);
        // Destroying the group takes the thread cache away. It waits for no critical section: it aborts them.
        group.destroy().unwrap()
    });
    let block = made.into_inner();
    let label = OWNERS.entry(block.addr()).unwrap().load(SeqCst);
    let charged = ended.charges - ended.uncharges;
    if charged == 0 {
        assert_eq!((label, ended.leftover), (0, 0), "nobody was charged");
    } else {
        assert_eq!((charged, ended.leftover), (1, LAYOUT.size() as u64));
        assert_ne!(label, 0, "a group was charged");
    }
    // SAFETY: as above.
    unsafe { ALLOC.dealloc(block, LAYOUT) };
    assert_eq!((ledger.root().precise(), ledger.mistakes()), (0, Mistakes::default()));
    reached() && charged == 0
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
