//! The global allocator: which group is charged, which is credited, and the fate of blocks whose group ends.

use ledgerline::alloc::Policy;
use ledgerline::current::{self, future::ChargeTo};
use ledgerline::{Alloc, ControlMode, Group, Ledger, Limit, Mistakes, alloc};
use std::alloc::{GlobalAlloc, Layout, System};
use std::future::Future;
use std::pin::pin;
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};

fn ledger() -> &'static Ledger {
    let ledger = Ledger::builder().capacity(64).anonymous().unwrap().into_static();
    ledger.set_alloc_policy(Policy::NULL);
    ledger
}

fn group() -> Group<'static> {
    ledger().root().create("tenant").unwrap().create("query").unwrap()
}

#[test]
fn a_block_is_charged_with_what_was_asked_for_at_every_size_and_alignment() {
    let group = group();
    group.scope(|| {
        for align in (0..=12).map(|power| 1usize << power) {
            for size in [1, 2, 7, 8, 15, 16, 17, 24, 31, 32, 33, 100, 4096, 70_000, 1 << 20] {
                let layout = Layout::from_size_align(size, align).unwrap();
                // SAFETY: the size is not zero; each block is freed in its layout.
                unsafe {
                    let block = std::alloc::alloc(layout);
                    assert!(block.addr().is_multiple_of(align));
                    assert_eq!(group.precise(), size as u64, "{layout:?}");
                    block.write_bytes(1, size);
                    let zeroed = std::alloc::alloc_zeroed(layout);
                    assert!(std::slice::from_raw_parts(zeroed, size).iter().all(|&byte| byte == 0));
                    assert_eq!(group.precise(), 2 * size as u64, "{layout:?}");
                    std::alloc::dealloc(zeroed, layout);
                    std::alloc::dealloc(block, layout);
                }
                assert_eq!(group.precise(), 0, "{layout:?}");
            }
        }
    });
}

#[test]
fn a_block_is_credited_to_its_owner_from_any_thread_and_under_any_group() {
    let [a, b] = [group(), group()];
    let block = a.scope(|| vec![0u8; 1000]);
    assert_eq!((a.precise(), b.precise()), (1000, 0));
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || b.scope(|| drop::<Vec<u8>>(receive.recv().unwrap())));
    current::unattributed(|| send.send(block).unwrap());
    while a.precise() != 0 {
        std::thread::yield_now();
    }
}

#[test]
fn realloc_charges_the_owner_the_difference_whoever_is_current() {
    let [a, b] = [group(), group()];
    let mut block = a.scope(|| Vec::<u8>::with_capacity(100));
    let before = (a.stat().blocks_live(), b.precise());
    for capacity in [101, 5000, 200_000, 3000, 64, 1 << 20, 1, 17] {
        b.scope(|| {
            if capacity > block.capacity() {
                block.reserve_exact(capacity);
            } else {
                block.shrink_to(capacity);
            }
        });
        assert_eq!(block.capacity(), capacity);
        assert_eq!((a.precise(), b.precise()), (capacity as u64, 0));
    }
    assert_eq!(
        (a.stat().blocks_live(), b.precise()),
        before,
        "it is one block, however often it grew"
    );
    drop(block);
    assert_eq!(a.precise(), 0);
}

trait Blocks {
    fn blocks_live(&self) -> i64;
}

impl Blocks for ledgerline::MemoryStat {
    fn blocks_live(&self) -> i64 {
        self.lines.iter().find(|line| line.name == "blocks_live").unwrap().own
    }
}

#[test]
fn a_realloc_that_a_limit_refuses_leaves_all_as_it_was() {
    let group = group();
    group.set_max(Limit::units(1000)).unwrap();
    let mut block = group.scope(|| vec![7u8; 600]);
    let error = block.try_reserve_exact(401);
    assert!(error.is_err());
    let refusal = alloc::last_refusal().unwrap();
    assert_eq!((refusal.requested, refusal.usage, refusal.group), (401, 600, group.id()));
    assert_eq!((block.capacity(), &block[..], group.precise()), (600, &[7u8; 600][..], 600));
    // It may grow up to the limit.
    block.try_reserve_exact(400).unwrap();
    assert_eq!((block.capacity(), group.precise()), (1000, 1000));
    block.shrink_to(600);
    assert_eq!((block, group.precise()), (vec![7u8; 600], 600));
    assert_eq!(group.precise(), 0);
}

/// An allocator that sometimes has no memory.
struct Failing;

thread_local! {
    static FAILS: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

// SAFETY: the system's allocator, or null.
unsafe impl GlobalAlloc for Failing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller guarantees.
        if FAILS.get() { std::ptr::null_mut() } else { unsafe { System.alloc(layout) } }
    }
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as the caller guarantees.
        unsafe { System.dealloc(block, layout) }
    }
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if FAILS.get() {
            std::ptr::null_mut()
        } else {
            // SAFETY: as the caller guarantees.
            unsafe { System.realloc(block, layout, size) }
        }
    }
}

#[test]
fn nothing_is_charged_where_the_allocator_beneath_has_no_memory() {
    static OVER: Alloc<Failing> = Alloc::new(Failing);
    let group = group();
    let _entered = group.enter();
    let layout = Layout::from_size_align(500, 8).unwrap();
    // SAFETY: sizes are not zero; the block is freed in its layout.
    unsafe {
        let block = OVER.alloc(layout);
        FAILS.set(true);
        assert!(OVER.alloc(layout).is_null() && OVER.alloc_zeroed(layout).is_null());
        assert!(OVER.realloc(block, layout, 5000).is_null());
        assert!(OVER.realloc(block, layout, 5).is_null());
        FAILS.set(false);
        assert_eq!(alloc::last_refusal(), None, "no limit was in the way");
        assert_eq!(group.precise(), 500);
        OVER.dealloc(block, layout);
    }
    assert_eq!(group.precise(), 0);
}

#[test]
fn a_destroyed_groups_blocks_are_leaks_until_they_are_freed() {
    let ledger = ledger();
    let tenant = ledger.root().create("tenant").unwrap();
    let query = tenant.create("query").unwrap();
    let [a, b] = query.scope(|| [vec![1u8; 1000], vec![2u8; 500]]);
    assert_eq!(query.destroy().unwrap().leftover, 1500);
    let leaks = || ledger.leaks().iter().map(|leak| leak.units).sum::<u64>();
    assert_eq!((leaks(), tenant.precise()), (1500, 1500));
    std::thread::spawn(move || drop(a)).join().unwrap();
    assert_eq!((leaks(), tenant.precise()), (500, 500));
    drop(b);
    assert_eq!((leaks(), tenant.precise()), (0, 0));
    assert_eq!(ledger.mistakes(), Mistakes::default());
    // The row is free again.
    let next = tenant.create("next").unwrap();
    assert_eq!(next.id().index(), query.id().index());
}

#[test]
fn a_destroyed_groups_block_that_grows_or_shrinks_goes_to_who_is_above() {
    for audit in [false, true] {
        let ledger = Ledger::builder().capacity(8).audit(audit).anonymous().unwrap().into_static();
        ledger.set_alloc_policy(Policy::NULL);
        let tenant = ledger.root().create("tenant").unwrap();
        tenant.set_max(Limit::units(3000)).unwrap();
        let query = tenant.create("query").unwrap();
        let [mut a, mut b] =
            query.scope(|| [Vec::<u8>::with_capacity(1000), Vec::with_capacity(500)]);
        query.destroy().unwrap();
        b.shrink_to(100);
        assert_eq!((tenant.precise(), ledger.leaks()[0].units), (1100, 1000));
        // With an audit the whole block is requested, since it is followed as one charge.
        if !audit {
            a.reserve_exact(2900);
            assert_eq!(tenant.precise(), 3000);
            assert!(a.try_reserve_exact(2901).is_err());
            a.shrink_to(1001);
        } else {
            a.reserve_exact(1001);
        }
        assert_eq!((tenant.precise(), ledger.leaks().len()), (1101, 0));
        drop(a);
        drop(b);
        assert_eq!(tenant.precise(), 0);
        assert_eq!(ledger.mistakes(), Mistakes::default(), "{}", ledger.audit_report());
    }
}

#[test]
fn a_task_whose_group_is_gone_charges_the_nearest_ancestor_that_exists() {
    let ledger = ledger();
    let tenant = ledger.root().create("tenant").unwrap();
    let query = tenant.create("query").unwrap();
    let sort = query.create("sort").unwrap();
    let _entered = sort.enter();
    let kept = vec![0u8; 10];
    sort.destroy().unwrap();
    // Its row still holds the block, so the ancestors are known.
    let block = vec![0u8; 100];
    assert_eq!((query.precise(), tenant.precise()), (110, 110));
    query.destroy().unwrap();
    let second = vec![0u8; 1000];
    assert_eq!(tenant.precise(), 1110);
    drop((kept, block, second));
    assert_eq!(tenant.precise(), 0);
    // Nothing holds the row now, so another group gets it.
    let other = tenant.create("other").unwrap();
    let another = tenant.create("another").unwrap();
    assert!([other, another].iter().any(|group| group.id().index() == sort.id().index()));
    let third = vec![0u8; 64];
    assert_eq!((tenant.precise(), ledger.root().precise()), (64, 64), "the tenant's still");
    assert_eq!([other, another].map(|group| group.precise()), [0, 0]);
    drop(third);
    // Another group gets its number as soon as that group has a block. Then the ancestors are no longer known.
    let theirs = [other, another].map(|group| group.scope(|| Box::new([0u8; 32])));
    let fourth = vec![0u8; 64];
    assert_eq!((tenant.precise(), ledger.root().precise()), (64, 128), "the root's, not another's");
    drop((fourth, theirs));
    assert_eq!(ledger.root().precise(), 0);
    assert_eq!(ledger.mistakes(), Mistakes::default());
}

#[test]
fn a_row_that_is_used_again_takes_its_number_over_and_no_block_changes_hands() {
    let ledger = Ledger::builder().capacity(3).anonymous().unwrap().into_static();
    ledger.set_alloc_policy(Policy::NULL);
    let mut blocks = Vec::new();
    for turn in 0..1000 {
        let group = ledger.root().create("turn").unwrap();
        let block = group.scope(|| Box::new([0u8; 200]));
        assert_eq!(group.precise(), 200, "{turn}");
        group.destroy().unwrap();
        if turn % 3 == 0 {
            // The row is kept, so the next group has the other one.
            blocks.push(block);
            if blocks.len() == 2 {
                drop(blocks.remove(0));
            }
        }
    }
    drop(blocks);
    assert_eq!(ledger.root().precise(), 0);
    assert_eq!(ledger.mistakes(), Mistakes::default());
}

#[test]
fn a_group_that_only_measures_refuses_nothing_and_counts_all() {
    let group = group();
    group.set_max(Limit::units(100)).unwrap();
    for mode in [ControlMode::Measure, ControlMode::Off] {
        group.set_mode(mode);
        let block = group.scope(|| vec![0u8; 1000]);
        assert_eq!(group.precise(), 1000, "{mode:?}");
        // A block from before is credited in any mode.
        group.set_mode(ControlMode::Enforce);
        drop(block);
        assert_eq!(group.precise(), 0, "{mode:?}");
    }
    assert!(group.events().max >= 1);
    group.scope(|| assert!(Vec::<u8>::new().try_reserve_exact(1000).is_err()));
}

#[test]
fn a_task_charges_its_group_on_whichever_thread_it_is_polled_and_dropped() {
    let group = group();
    let task = async {
        let mut rows = Vec::new();
        for row in 0..4u8 {
            rows.push(vec![row; 1000]);
            let mut pending = true;
            std::future::poll_fn(|_| {
                if std::mem::take(&mut pending) { Poll::Pending } else { Poll::Ready(()) }
            })
            .await;
        }
        std::future::pending::<()>().await;
        drop(rows);
    };
    let mut task = Box::pin(task.charged_to(group));
    for _ in 0..4 {
        task = std::thread::spawn(move || {
            let mut context = Context::from_waker(Waker::noop());
            assert!(task.as_mut().poll(&mut context).is_pending());
            let _own = vec![0u8; 12_345];
            task
        })
        .join()
        .unwrap();
    }
    assert!((4000..5000).contains(&group.precise()), "{}", group.precise());
    drop(task);
    assert_eq!(group.precise(), 0);
}

#[test]
fn an_audited_ledger_finds_nothing_wrong() {
    let ledger = Ledger::builder().audit(true).anonymous().unwrap().into_static();
    ledger.set_alloc_policy(Policy::NULL);
    let group = ledger.root().create("audited").unwrap();
    std::thread::scope(|scope| {
        for seed in 0..3usize {
            scope.spawn(move || {
                let _entered = group.enter();
                let mut kept: Vec<String> = Vec::new();
                for turn in 0..2000 {
                    kept.push(format!("{:width$}", turn, width = 1 + (turn * 7 + seed) % 300));
                    if turn % 5 == 0 {
                        kept.swap_remove(turn % kept.len());
                    }
                }
            });
        }
    });
    assert_eq!(group.precise(), 0);
    assert_eq!(ledger.mistakes(), Mistakes::default(), "{}", ledger.audit_report());
    assert!(ledger.audit_report().wrong.is_empty());
}

#[test]
fn a_pinned_future_on_the_stack_is_dropped_in_its_group() {
    let group = group();
    {
        let mut task = pin!(async { vec![0u8; 100].len() }.charged_to(group));
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(task.as_mut().poll(&mut context), Poll::Ready(100));
    }
    assert_eq!(group.precise(), 0);
}
