//! The global allocator at limits: live memory never exceeds a limit, and a refusal is reported and undone. The first tests
//! cover those of the crate `cap`, and its open issue about a large request that fails.

use ledgerline::alloc::Policy;
use ledgerline::{Group, Ledger, Limit, Mistakes, alloc};
use std::alloc::Layout;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

fn group(max: u64) -> Group<'static> {
    let ledger = Ledger::builder().capacity(8).anonymous().unwrap().into_static();
    ledger.set_alloc_policy(Policy::NULL);
    let group = ledger.root().create("query").unwrap();
    group.set_max(Limit::units(max)).unwrap();
    group
}

#[test]
fn a_limit_is_reached_to_the_byte_and_not_passed_again_and_again() {
    const MAX: usize = 30 << 20;
    let group = group(MAX as u64);
    for _ in 0..10 {
        group.scope(|| {
            let mut all = Vec::<u8>::new();
            assert!(all.try_reserve_exact(MAX + 1).is_err());
            assert_eq!(alloc::last_refusal().unwrap().requested, MAX as u64 + 1);
            all.try_reserve_exact(MAX).unwrap();
            assert!(Vec::<u8>::new().try_reserve_exact(1).is_err());
            assert_eq!(alloc::last_refusal().unwrap().usage, MAX as u64);
        });
        assert_eq!(group.precise(), 0);
    }
    assert_eq!(group.peak().value, MAX as u64);
}

#[test]
fn threads_that_come_and_go_leave_nothing_charged() {
    let group = group(1 << 30);
    for _ in 0..5 {
        let threads: Vec<_> = (0..20)
            .map(|_| {
                std::thread::spawn(move || {
                    let _entered = group.enter();
                    for length in 0..200 {
                        let _ = (0..length).collect::<Vec<u32>>();
                        let _ = (0..length).flat_map(std::iter::once).collect::<Vec<u32>>();
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(group.precise(), 0);
    }
    assert_eq!(group.ledger().mistakes(), Mistakes::default());
}

/// One thread asks for an impossible size, while others fill the group with small blocks. Their live memory, as each counts
/// it around its own calls, never exceeds the limit, and no small request that fits is refused.
#[test]
fn a_failing_large_request_neither_lets_small_ones_over_the_limit_nor_locks_them_out() {
    const MAX: u64 = 4 << 20;
    const SMALL: u64 = 4096;
    let group = group(MAX);
    let live = AtomicU64::new(0);
    let highest = AtomicU64::new(0);
    let done = AtomicBool::new(false);
    let layout = Layout::from_size_align(SMALL as usize, 8).unwrap();
    let begin = Barrier::new(4);
    std::thread::scope(|scope| {
        let (live, highest, done, begin) = (&live, &highest, &done, &begin);
        let large = scope.spawn(move || {
            let _entered = group.enter();
            begin.wait();
            let mut refused = 0u64;
            while !done.load(SeqCst) {
                let layout = Layout::from_size_align(MAX as usize + 1, 8).unwrap();
                // SAFETY: not empty; it is never granted.
                refused += u64::from(unsafe { std::alloc::alloc(layout) }.is_null());
                refused += u64::from(Vec::<u8>::new().try_reserve_exact(1 << 40).is_err());
            }
            refused
        });
        let small: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(move || {
                    let mut blocks = Vec::with_capacity((MAX / SMALL) as usize + 1);
                    let _entered = group.enter();
                    begin.wait();
                    for round in 0..60 {
                        loop {
                            // SAFETY: not empty.
                            let block = unsafe { std::alloc::alloc(layout) };
                            if block.is_null() {
                                break;
                            }
                            let now = live.fetch_add(SMALL, SeqCst) + SMALL;
                            highest.fetch_max(now, SeqCst);
                            blocks.push(block);
                        }
                        let keep = if round % 3 == 0 { 0 } else { blocks.len() / 2 };
                        for block in blocks.drain(keep..) {
                            live.fetch_sub(SMALL, SeqCst);
                            // SAFETY: it was made above, in that layout.
                            unsafe { std::alloc::dealloc(block, layout) };
                        }
                    }
                    for block in blocks {
                        live.fetch_sub(SMALL, SeqCst);
                        // SAFETY: as above.
                        unsafe { std::alloc::dealloc(block, layout) };
                    }
                })
            })
            .collect();
        small.into_iter().for_each(|thread| thread.join().unwrap());
        done.store(true, SeqCst);
        assert!(large.join().unwrap() > 0);
    });
    let highest = highest.load(SeqCst);
    assert!(highest <= MAX, "{highest} bytes were live, of {MAX}");
    assert_eq!(highest, MAX, "the whole of it could be had");
    assert_eq!(group.precise(), 0);
    assert_eq!(group.ledger().mistakes(), Mistakes::default());
}

#[test]
fn a_refusal_is_counted_names_the_full_group_and_asks_no_reclaimer() {
    let ledger = Ledger::builder().capacity(8).anonymous().unwrap().into_static();
    ledger.set_alloc_policy(Policy::NULL);
    let tenant = ledger.root().create("tenant").unwrap();
    tenant.set_max(Limit::units(1000)).unwrap();
    let query = tenant.create("query").unwrap();
    static ASKED: AtomicBool = AtomicBool::new(false);
    let _reclaimer = tenant.add_reclaimer(0, |_| {
        ASKED.store(true, SeqCst);
        0
    });
    query.scope(|| assert!(Vec::<u8>::new().try_reserve_exact(1001).is_err()));
    assert_eq!(tenant.events().max, 1);
    let refusal = alloc::last_refusal().unwrap();
    assert_eq!((refusal.group, refusal.charged), (tenant.id(), query.id()));
    assert!(!ASKED.load(SeqCst));
    let here = std::thread::spawn(alloc::last_refusal).join().unwrap();
    assert_eq!(here, None, "it is the thread's that was refused");
}
