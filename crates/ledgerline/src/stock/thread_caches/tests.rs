use super::*;
use crate::{Alloc, Group, Ledger};
use std::alloc::{GlobalAlloc, Layout};
use std::hint::black_box;
use std::time::{Duration, Instant};

static ALLOC: Alloc = Alloc::system();
const LONG: Duration = Duration::from_secs(60);

fn group() -> Group<'static> {
    let ledger = Ledger::builder().capacity(8).anonymous().unwrap().into_static();
    ledger.root().create("query").unwrap()
}

/// Makes and frees blocks in a group.
fn pairs(group: Group<'static>, count: u32) {
    let layout = Layout::new::<[u64; 8]>();
    group.scope(|| {
        for _ in 0..count {
            // SAFETY: the size is not zero, and the block is freed at once.
            unsafe { ALLOC.dealloc(black_box(ALLOC.alloc(layout)), layout) };
        }
    });
}

/// Returns the open thread caches of a group's ledger.
fn open_in(group: Group<'_>) -> Vec<&'static ThreadCache> {
    let mut open = Vec::new();
    thread_caches::each(group.table(), |_, thread_cache| open.push(thread_cache));
    open
}

/// Returns whether threads may have thread caches here. If so, the calling thread has one afterwards.
fn carries(group: Group<'static>) -> bool {
    // Another test's thread may have the lock when this one asks for it.
    let start = Instant::now();
    while are_for(group.table()) {
        pairs(group, 300);
        if !open_in(group).is_empty() {
            return true;
        }
        assert!(start.elapsed() < LONG, "no thread cache was opened");
        std::thread::yield_now();
    }
    false
}

/// Opening a thread cache takes as long as a hundred allocations: tasks of a few blocks each must not pay for one.
#[test]
fn tasks_of_a_few_blocks_leave_the_thread_cache_as_it_is() {
    let group = group();
    let other = group.ledger().root().create("other").unwrap();
    if !carries(group) {
        return;
    }
    let (mut opened, mut had) = (0, places::mine().group());
    for turn in 0..2000 {
        pairs(if turn % 2 == 0 { other } else { group }, 3);
        let has = places::mine().group();
        opened += u32::from(has != had);
        had = has;
    }
    // The thread cache is opened after 128, 256, 512, 1024 and 2048 of the 3000 blocks that it did not serve.
    assert!(opened <= 5, "{opened} times");
    assert_eq!([group.precise(), other.precise()], [0, 0]);
}

/// This holds even in the scope that begins while another thread has the lock.
#[test]
fn a_thread_that_does_not_get_the_lock_asks_again_some_blocks_later() {
    let group = group();
    if !are_for(group.table()) {
        return;
    }
    let layout = Layout::new::<[u64; 8]>();
    let pairs = |count| {
        for _ in 0..count {
            // SAFETY: as in `pairs`.
            unsafe { ALLOC.dealloc(black_box(ALLOC.alloc(layout)), layout) };
        }
    };
    group.scope(|| {
        let (held, done) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _inside = lock::pass();
                let _lock = lock::lock();
                held.store(true, Ordering::SeqCst);
                while !done.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
            });
            while !held.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            pairs(2 * EVERY);
            assert!(open_in(group).is_empty(), "the lock is another's");
            done.store(true, Ordering::SeqCst);
        });
        let start = Instant::now();
        while open_in(group).is_empty() {
            pairs(AGAIN);
            assert!(start.elapsed() < LONG, "no thread cache was opened");
        }
    });
}

#[test]
fn a_thread_carries_units_of_its_group_until_a_drain_wants_them_and_then_again() {
    let group = group();
    for _ in 0..3 {
        if !carries(group) {
            return;
        }
        let [thread_cache] = open_in(group)[..] else { panic!("one thread, one thread cache") };
        let before = thread_cache::counts(thread_cache.word());
        pairs(group, 5);
        let after = thread_cache::counts(thread_cache.word());
        assert_eq!((after.0 - before.0, after.1 - before.1), (5, 5), "the cell was not asked");
        assert!(thread_cache::units(thread_cache.word()) > 0 && thread_cache.is_of(lock::thread()));
        assert!(group.drain() > 0 && open_in(group).is_empty());
        assert_eq!(group.precise(), 0);
        let track = &group.row().counter.track;
        assert_eq!((track.prepaid.units(), group.row().counter.usage()), (0, 0));
    }
}

#[test]
fn a_thread_carries_units_of_one_group_at_a_time() {
    let [one, other] = [group(), group()];
    if carries(one) && carries(other) {
        assert!(open_in(one).is_empty());
        one.destroy().unwrap();
        assert_eq!(open_in(other).len(), 1);
    }
}

#[test]
fn a_thread_cache_closes_when_its_thread_ends() {
    let group = group();
    if std::thread::spawn(move || carries(group)).join().unwrap() {
        assert!(open_in(group).is_empty());
    }
    assert_eq!((group.precise(), group.destroy().unwrap().leftover), (0, 0));
}

#[test]
fn a_ledger_that_keeps_flows_has_no_thread_caches() {
    let ledger = Ledger::builder().capacity(8).flows(true).anonymous().unwrap().into_static();
    let group = ledger.root().create("query").unwrap();
    pairs(group, 1000);
    assert!(!are_for(group.table()) && open_in(group).is_empty());
}

/// If no thread cache is available, the thread asks only now and then: in between the cell serves in one step.
#[test]
fn a_ledger_in_a_file_is_not_asked_for_a_thread_cache_at_each_block() {
    let file = tempfile::tempfile().unwrap();
    let ledger = Ledger::builder().capacity(8).create_in(&file).unwrap().into_static();
    let group = ledger.root().create("query").unwrap();
    assert!(!are_for(group.table()));
    let mut due = 0;
    for _ in 0..20 {
        pairs(group, 100);
        due += u32::from(DUE.get().left <= 1);
    }
    assert_eq!(due, 0);
}

/// Simulates a thread that was preempted in the middle of a fetch: units have left the cell, and are not in the thread cache.
#[test]
fn a_peak_counts_no_units_that_are_on_their_way_to_a_thread_cache() {
    let layout = |size| Layout::from_size_align(size, 8).unwrap();
    let (start, more) = (Instant::now(), 4000);
    // A large block would leave whole blocks of its size in the cell, and so nothing.
    let (small, many) = (layout(8000), 12);
    // If the thread has moved to another CPU, or another test had the lock, the cell has too few units. The loop then
    // starts anew.
    let (group, base, held, moving) = loop {
        let group = group();
        if !carries(group) {
            return;
        }
        // SAFETY: here and below: the size is not zero, and each block is freed with its own layout.
        let base: Vec<_> =
            group.scope(|| (0..many).map(|_| unsafe { ALLOC.alloc(small) }).collect());
        pairs(group, 100);
        let held = lock::lock();
        let moving = Moving::begin();
        if group.table().columns.take(group.table().cell_id(group.id()), more) {
            break (group, base, held, moving);
        }
        drop((moving, held));
        // SAFETY: as above.
        base.into_iter().for_each(|block| unsafe { ALLOC.dealloc(block, small) });
        assert!(start.elapsed() < LONG, "the cell has too few");
    };
    let (table, id) = (group.table(), group.id());
    // A charge in another thread makes its walk look into the cells. A free would wait for the lock.
    let there = std::thread::spawn(move || {
        // SAFETY: as above.
        group.scope(|| unsafe { ALLOC.alloc(layout(90_000)).expose_provenance() })
    });
    let large = there.join().unwrap();
    let [thread_cache] = open_in(group)[..] else { panic!("one thread, one thread cache") };
    assert!(
        thread_cache.change(more as i64).is_some()
            || table.columns.deposit(table.cell_id(id), more)
    );
    drop((moving, held));
    let peak = group.peak();
    // SAFETY: as above.
    unsafe {
        base.into_iter().for_each(|block| ALLOC.dealloc(block, small));
        ALLOC.dealloc(std::ptr::with_exposed_provenance_mut(large), layout(90_000));
    }
    let (least, most) = (peak.value - peak.bound, many * 8000 + 90_000 + 64);
    assert!(least <= most, "{most} were charged at most, and {least} at least");
}

/// Stops a looping thread, even if an assertion fails.
struct Stops<'s>(&'s AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_scan_takes_no_count_back_while_thread_caches_are_fetched_for() {
    let ledger = Ledger::builder().capacity(8).anonymous().unwrap().into_static();
    let group = ledger.root().create("query").unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stops = Stops(&stop);
        scope.spawn(|| {
            let large = Layout::from_size_align(6000, 8).unwrap();
            let mut held = [None; 12];
            for turn in 0.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                pairs(group, 50);
                // SAFETY: the size is not zero; each block is freed with its own layout.
                group.scope(|| unsafe {
                    if let Some(old) = held[turn % 12].replace(ALLOC.alloc(large)) {
                        ALLOC.dealloc(old, large);
                    }
                    if turn % 24 == 23 {
                        held.iter_mut().filter_map(Option::take).for_each(|old| {
                            ALLOC.dealloc(old, large);
                        });
                    }
                });
            }
        });
        let (start, mut before) = (Instant::now(), 0);
        while start.elapsed() < Duration::from_millis(700) {
            let seen = ledger.snapshot().groups.iter().map(|group| group.charges).sum::<u64>();
            // Without thread caches the difference may be as large as the counts in one CPU's words.
            assert!(seen + 127 * 4 >= before, "{before}, and then {seen}");
            before = seen;
        }
    });
}
