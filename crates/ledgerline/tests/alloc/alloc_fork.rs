//! The global allocator and `fork`: the state that a child inherits, and the account that its frees affect.

use crate::common::{fork, memfd, own_pid, ran_alone, unique, wait};
use ledgerline::{Ledger, Mistakes, alloc};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// In a child: exits with the line's number if a condition fails. A panic would allocate, and print.
macro_rules! so {
    ($claim:expr) => {
        if !$claim {
            return (line!() % 90 + 1) as i32;
        }
    };
}

#[test]
fn of_a_ledger_in_memory_a_child_has_its_own_copy_with_blocks_and_owners() {
    if ran_alone("of_a_ledger_in_memory_a_child_has_its_own_copy_with_blocks_and_owners") {
        return;
    }
    let ledger = Ledger::builder().capacity(16).anonymous().unwrap().into_static();
    let group = ledger.root().create("query").unwrap();
    let block = group.scope(|| vec![0u8; 1000]);
    let _entered = group.enter();
    let mut block = Some(block);
    let child = fork(|| {
        so!(group.precise() == 1000);
        drop(block.take());
        so!(group.precise() == 0);
        let own = vec![0u8; 300];
        so!(group.precise() == 300);
        let Ok(sub) = group.create("sub") else { return 99 };
        let of_sub = sub.scope(|| vec![0u8; 50]);
        so!(sub.precise() == 50);
        drop((own, of_sub));
        so!(group.precise() == 0 && ledger.mistakes() == Mistakes::default());
        0
    });
    assert_eq!(wait(child), 0);
    assert_eq!(group.precise(), 1000);
    drop(block);
    assert_eq!((group.precise(), ledger.mistakes()), (0, Mistakes::default()));
}

#[test]
fn of_a_shared_ledger_a_childs_frees_touch_no_account_and_it_is_charged_when_it_attaches() {
    if ran_alone(
        "of_a_shared_ledger_a_childs_frees_touch_no_account_and_it_is_charged_when_it_attaches",
    ) {
        return;
    }
    let file = memfd();
    let ledger = Ledger::builder().capacity(64).create_in(&file).unwrap().into_static();
    let own = ledger.attach_process("parent", own_pid()).unwrap();
    let group = own.create("query").unwrap();
    let mut blocks: Vec<Vec<u8>> = Vec::with_capacity(64);
    group.scope(|| blocks.extend((0..64).map(|_| vec![0u8; 1000])));
    assert_eq!(group.precise(), 64_000);
    let _entered = group.enter();
    let kept = vec![0u8; 10];
    let granted = group.approximate().value;
    let child = fork(|| {
        // Before the child attaches it is not charged, though the parent's group is current here.
        let unattached = vec![0u8; 500];
        blocks.truncate(60);
        let Some(mut grown) = blocks.pop() else { return 99 };
        grown.reserve_exact(5000);
        so!(alloc::counts().unowned > 0);
        so!(group.approximate().value == granted);
        let Ok(mine) = ledger.attach_process("child", own_pid()) else { return 98 };
        let Ok(task) = mine.create("task") else { return 97 };
        let charged = task.scope(|| [vec![0u8; 70], vec![0u8; 7]]);
        so!(task.precise() == 77);
        // Inherited blocks have no owner, whatever their number and whichever group has that number here.
        task.scope(|| blocks.truncate(30));
        so!(task.precise() == 77);
        grown.shrink_to(1);
        let growing = task.scope(|| {
            let Some(mut block) = blocks.pop() else { return Vec::new() };
            block.reserve_exact(9000);
            block
        });
        so!(growing.capacity() == 10_000 && task.precise() == 77);
        drop((charged, grown, growing, unattached));
        so!(task.precise() == 0);
        // The parent's group is still current, but does not belong to this process.
        let before = alloc::counts().unowned;
        let foreign = vec![0u8; 5];
        so!(alloc::counts().unowned == before + 1);
        drop(foreign);
        // The child of a child inherits nothing, either.
        let mut inner = Some(task.scope(|| vec![0u8; 40]));
        let grandchild = fork(|| {
            drop(inner.take());
            0
        });
        so!(wait(grandchild) == 0 && inner.is_some() && task.precise() == 40);
        0
    });
    assert_eq!(wait(child), 0);
    assert_eq!(group.precise(), 64_010);
    drop(blocks);
    assert_eq!(group.precise(), 10);
    drop(kept);
    assert_eq!(group.precise(), 0);
    assert_eq!(ledger.mistakes(), Mistakes::default());
}

#[test]
fn a_child_that_is_forked_while_threads_allocate_has_a_whole_account() {
    if ran_alone("a_child_that_is_forked_while_threads_allocate_has_a_whole_account") {
        return;
    }
    let ledger = Ledger::builder().batch(64).capacity(256).anonymous().unwrap().into_static();
    let tenant = ledger.root().create("tenant").unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let done = &done;
        for seed in 0..3usize {
            scope.spawn(move || {
                let mut kept: Vec<Vec<u8>> = Vec::with_capacity(50);
                for turn in 0usize.. {
                    if done.load(Relaxed) {
                        break;
                    }
                    let group = tenant.create(&unique("short")).unwrap();
                    group.scope(|| {
                        kept.extend(
                            (0..10).map(|n| vec![0; (turn * 31 + n * 977 + seed) % 9000 + 1]),
                        );
                    });
                    kept.truncate(turn % 40);
                    group.destroy().unwrap();
                }
            });
        }
        for _ in 0..40 {
            let child = fork(|| {
                // `precise` allocates nothing. glibc has released malloc's own locks, whichever thread held them.
                let held = tenant.precise();
                let Ok(group) = tenant.create("child") else { return 99 };
                let block = group.scope(|| vec![0u8; 777]);
                so!(group.precise() == 777);
                so!(tenant.precise() == held + 777);
                drop(block);
                so!(tenant.precise() == held);
                0
            });
            assert_eq!(wait(child), 0);
        }
        done.store(true, Relaxed);
    });
    assert_eq!((tenant.precise(), ledger.mistakes()), (0, Mistakes::default()));
}
