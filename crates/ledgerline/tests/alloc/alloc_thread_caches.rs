//! Units in the thread caches of threads: no reading counts them, they cause no refusal, and they are returned.

use crate::common::{Random, fork, ran_alone, times, unique, wait};
use ledgerline::alloc::Policy;
use ledgerline::{Alloc, Group, Ledger, Limit, Mistakes};
use std::alloc::{GlobalAlloc, Layout, alloc, dealloc};
use std::cell::UnsafeCell;
use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Barrier, Mutex};

const MAX: u64 = 16 << 20;

fn group(capacity: u32) -> Group<'static> {
    let ledger = Ledger::builder().capacity(capacity).anonymous().unwrap().into_static();
    ledger.set_alloc_policy(Policy::NULL);
    ledger.root().create("query").unwrap()
}

/// Allocates and frees enough blocks in the current group for its thread to carry units of it.
fn carry(blocks: u64) {
    for _ in 0..blocks {
        drop(black_box(Box::new([0u8; 64])));
    }
}

/// Fills a group to its limit with ever smaller blocks. Returns how many bytes that took.
fn fill(group: Group<'static>) -> (u64, Vec<(*mut u8, Layout)>) {
    let mut blocks = Vec::with_capacity(4096);
    for size in [1 << 20, 1 << 16, 1 << 12, 1 << 8, 1 << 4, 1] {
        let layout = Layout::from_size_align(size, 1).unwrap();
        loop {
            // SAFETY: the size is not zero.
            let block = group.scope(|| unsafe { alloc(layout) });
            if block.is_null() {
                break;
            }
            assert!(blocks.len() < 4096, "no limit");
            blocks.push((block, layout));
        }
    }
    (blocks.iter().map(|(_, layout)| layout.size() as u64).sum(), blocks)
}

fn free(blocks: Vec<(*mut u8, Layout)>) {
    for (block, layout) in blocks {
        // SAFETY: `fill` allocated it in this layout.
        unsafe { dealloc(block, layout) };
    }
}

/// Runs `work` while so many threads carry units of a group, and once more when they have worked for a while.
fn beside_threads_that_carry(group: Group<'static>, threads: usize, mut work: impl FnMut()) {
    let [carrying, again, end] = [(); 3].map(|()| Barrier::new(threads + 1));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let stay = || {
                group.scope(|| carry(1000));
                carrying.wait();
                again.wait();
                group.scope(|| carry(1000));
                end.wait();
            };
            std::thread::Builder::new().stack_size(64 << 10).spawn_scoped(scope, stay).unwrap();
        }
        carrying.wait();
        // If an assertion fails, the threads must still end: otherwise the test hangs without a message.
        let worked = catch_unwind(AssertUnwindSafe(&mut work));
        again.wait();
        end.wait();
        worked.unwrap_or_else(|panic| resume_unwind(panic));
    });
    work();
}

#[test]
fn a_limit_is_reached_to_the_unit_whatever_threads_carry() {
    let group = group(16);
    group.set_max(Limit::units(MAX)).unwrap();
    beside_threads_that_carry(group, 6, || {
        for _ in 0..3 {
            assert_eq!(group.precise(), 0);
            let (filled, blocks) = fill(group);
            assert_eq!((filled, group.precise()), (MAX, MAX));
            free(blocks);
            // The thread that filled it carries units, too.
            group.scope(|| carry(1000));
        }
    });
    assert_eq!((group.precise(), group.ledger().mistakes()), (0, Mistakes::default()));
}

#[test]
fn every_charge_is_counted_and_nothing_is_left_where_threads_carried_units() {
    let group = group(16);
    let mut charges = 0;
    beside_threads_that_carry(group, 6, || {
        charges += 6000;
        let stat = group.stat();
        let [made, live] =
            ["blocks_total", "blocks_live"].map(|name| stat.get(name).unwrap().subtree as u64);
        assert_eq!((made, live, group.precise()), (charges, 0, 0));
    });
    let settled = group.destroy().unwrap();
    assert_eq!((settled.charges, settled.uncharges, settled.leftover), (charges, charges, 0));
    let root = group.ledger().root();
    assert_eq!((root.approximate().value, root.precise()), (0, 0), "nothing lies idle any more");
}

#[test]
fn a_group_ends_while_a_thread_carries_units_of_it_and_an_ancestor_is_charged_from_then_on() {
    let parent = group(64);
    for _ in 0..20 {
        let group = parent.create("task").unwrap();
        let block = Mutex::new(None);
        let [carrying, ended] = [(); 2].map(|()| Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _entered = group.enter();
                carry(1000);
                carrying.wait();
                ended.wait();
                // In the allocator's own call, so that the test's other allocations are not counted.
                *block.lock().unwrap() = Some(Box::new([0u8; 640]));
            });
            carrying.wait();
            let settled = group.destroy().unwrap();
            assert_eq!((settled.charges, settled.leftover), (1000, 0));
            // The next group has its row.
            let next = parent.create("next").unwrap();
            ended.wait();
            next.scope(|| carry(500));
            assert_eq!(next.destroy().unwrap().charges, 500);
        });
        // The root, since the next group already had the row.
        let root = parent.ledger().root();
        assert_eq!(root.precise(), 640);
        drop(block.into_inner().unwrap());
        assert_eq!((root.precise(), parent.precise()), (0, 0));
    }
    assert_eq!(parent.ledger().mistakes(), Mistakes::default());
}

#[test]
fn more_threads_than_may_carry_units_are_charged_and_refused_as_any() {
    if ran_alone("more_threads_than_may_carry_units_are_charged_and_refused_as_any") {
        return;
    }
    let group = group(16);
    group.set_max(Limit::units(MAX)).unwrap();
    beside_threads_that_carry(group, 1200, || {
        let (filled, blocks) = fill(group);
        assert_eq!((filled, group.precise()), (MAX, MAX));
        free(blocks);
    });
    assert_eq!(group.precise(), 0);
    // Threads that have ended leave their places to others.
    let mut threads = 0;
    for _ in 0..times(3000, 30_000) {
        std::thread::spawn(move || group.scope(|| carry(300))).join().unwrap();
        threads += 300;
    }
    assert_eq!(group.precise(), 0);
    assert_eq!(group.destroy().unwrap().charges - 2 * 1200 * 1000, threads + filled_blocks());

    /// The number of blocks from `fill`: two rounds of 16 blocks of a MiB.
    fn filled_blocks() -> u64 {
        2 * (MAX >> 20)
    }
}

#[test]
fn a_forked_child_takes_back_what_its_parents_threads_carried() {
    if ran_alone("a_forked_child_takes_back_what_its_parents_threads_carried") {
        return;
    }
    let group = group(16);
    group.set_max(Limit::units(MAX)).unwrap();
    let held = group.scope(|| Box::new([0u8; 4096]));
    beside_threads_that_carry(group, 4, || {
        let child = fork(|| {
            group.scope(|| carry(1000));
            let (filled, blocks) = fill(group);
            let full = filled == MAX - 4096 && group.precise() == MAX;
            free(blocks);
            let settled = group.destroy();
            i32::from(!full || settled.is_err() || group.ledger().root().precise() != 4096)
        });
        assert_eq!(wait(child), 0);
        assert_eq!(group.precise(), 4096);
    });
    drop(held);
    assert_eq!(group.precise(), 0);
}

/// Threads work in their own groups and in each other's, while limits change and groups are drained, read and destroyed.
#[test]
fn no_unit_is_lost_where_thread_caches_open_and_close_all_the_time() {
    let tenant = group(1024);
    let groups: Vec<_> = (0..6).map(|_| tenant.create(&unique("query")).unwrap()).collect();
    let (groups, stop) = (Mutex::new(groups), AtomicBool::new(false));
    let blocks = Mutex::new(Vec::<Box<[u8]>>::with_capacity(100_000));
    let made = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|seed| {
                let (groups, blocks, made) = (&groups, &blocks, &made);
                scope.spawn(move || {
                    let mut random = Random::new(seed + 1);
                    for _ in 0..times(3000, 60_000) {
                        let group = {
                            let groups = groups.lock().unwrap();
                            groups[random.below(groups.len() as u64) as usize]
                        };
                        group.scope(|| {
                            carry(random.below(400));
                            let size = 1 + random.below(3000) as usize;
                            let new = vec![1u8; size].into_boxed_slice();
                            made.fetch_add(size as u64, Relaxed);
                            let mut blocks = blocks.lock().unwrap();
                            let old = (blocks.len() > 500).then(|| {
                                let at = random.below(blocks.len() as u64) as usize;
                                blocks.swap_remove(at)
                            });
                            blocks.push(new);
                            drop(blocks);
                            if let Some(old) = old {
                                made.fetch_sub(old.len() as u64, Relaxed);
                            }
                        });
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            let mut random = Random::new(99);
            while !stop.load(Relaxed) {
                let pick = random.below(6) as usize;
                let group = groups.lock().unwrap()[pick];
                match random.below(6) {
                    0 => drop(group.stat()),
                    1 => drop(group.drain()),
                    2 => assert!(group.precise() < 64 << 20),
                    3 => drop(group.set_max(Limit::units(1 << (26 + random.below(4))))),
                    4 => {
                        let new = tenant.create(&unique("query")).unwrap();
                        let old = std::mem::replace(&mut groups.lock().unwrap()[pick], new);
                        old.destroy().unwrap();
                    }
                    _ => std::thread::sleep(std::time::Duration::from_micros(300)),
                }
            }
        });
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        stop.store(true, Relaxed);
    });
    // The root, since a group had ended and another had its row.
    let root = tenant.ledger().root();
    assert_eq!(root.precise(), made.load(Relaxed));
    drop(blocks);
    for group in groups.into_inner().unwrap() {
        assert_eq!(group.destroy().unwrap().leftover, 0);
    }
    assert_eq!(root.precise(), 0);
    let stat = tenant.destroy().unwrap();
    assert_eq!((stat.charges, stat.leftover), (stat.uncharges, 0));
    assert_eq!(tenant.ledger().mistakes(), Mistakes::default());
}

/// An allocator that a signal handler may call. It hands out the places of an arena in turn, each to one block at a time: if
/// handlers follow each other closely, they go round the arena while the thread below them still has a block.
struct Turn {
    places: UnsafeCell<[Place; Turn::COUNT]>,
    taken: [AtomicBool; Turn::COUNT],
    next: AtomicUsize,
}

#[derive(Clone, Copy)]
#[repr(align(128))]
struct Place(#[allow(dead_code, reason = "nobody looks into it")] [u8; 128]);

impl Turn {
    const COUNT: usize = 1 << 13;
}

// SAFETY: its blocks do not overlap, since a taken place is not handed out; no code looks into them.
unsafe impl Sync for Turn {}

// SAFETY: as above.
unsafe impl GlobalAlloc for &Turn {
    unsafe fn alloc(&self, _: Layout) -> *mut u8 {
        loop {
            let at = self.next.fetch_add(1, Relaxed) % Turn::COUNT;
            if !self.taken[at].swap(true, Relaxed) {
                // SAFETY: in the arena.
                return unsafe { self.places.get().cast::<Place>().add(at).cast() };
            }
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        let at = (block.addr() - self.places.get().addr()) / size_of::<Place>();
        self.taken[at].store(false, Relaxed);
    }
}

static TURN: Turn = Turn {
    places: UnsafeCell::new([Place([0; 128]); Turn::COUNT]),
    taken: [const { AtomicBool::new(false) }; Turn::COUNT],
    next: AtomicUsize::new(0),
};
static SAFE: Alloc<&Turn> = Alloc::new(&TURN);

/// The groups of the thread and of its signal handler.
static GROUPS: Mutex<Option<[Group<'static>; 2]>> = Mutex::new(None);
static HANDLED: AtomicU64 = AtomicU64::new(0);

fn work(group: Group<'static>, blocks: u64) {
    let layout = Layout::from_size_align(48, 8).unwrap();
    group.scope(|| {
        for _ in 0..blocks {
            // SAFETY: the size is not zero, and the block is freed at once.
            unsafe {
                let block = SAFE.alloc(layout);
                assert!(!block.is_null());
                SAFE.dealloc(black_box(block), layout);
            }
        }
    });
}

thread_local! {
    static OF_HANDLER: std::cell::Cell<Option<Group<'static>>> = const { std::cell::Cell::new(None) };
}

extern "C" fn handler(_: i32) {
    if let Some(group) = OF_HANDLER.get() {
        work(group, 300);
        HANDLED.fetch_add(1, Relaxed);
    }
}

#[test]
fn a_signal_handler_that_works_in_another_group_loses_no_unit() {
    if ran_alone("a_signal_handler_that_works_in_another_group_loses_no_unit") {
        return;
    }
    let parent = group(16);
    let [outside, inside] = ["outside", "inside"].map(|name| parent.create(name).unwrap());
    *GROUPS.lock().unwrap() = Some([outside, inside]);
    let stop = AtomicBool::new(false);
    let id = AtomicUsize::new(0);
    let mut turns = 0;
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            // SAFETY: the handler calls what a handler may.
            unsafe {
                libc::signal(libc::SIGUSR1, handler as extern "C" fn(i32) as usize);
                id.store(libc::pthread_self() as usize, Relaxed);
            }
            OF_HANDLER.set(Some(inside));
            let mut turns = 0u64;
            while !stop.load(Relaxed) {
                work(outside, 1000);
                turns += 1;
            }
            OF_HANDLER.set(None);
            turns
        });
        while id.load(Relaxed) == 0 {
            std::thread::yield_now();
        }
        // Signals that arrive while the thread has no CPU are merged into one.
        let mut sent = 0;
        while sent < times(3000, 100_000) || HANDLED.load(Relaxed) <= 100 {
            sent += 1;
            // SAFETY: the thread lives until it is told to stop.
            unsafe { libc::pthread_kill(id.load(Relaxed) as libc::pthread_t, libc::SIGUSR1) };
            std::thread::sleep(std::time::Duration::from_micros(100));
        }
        stop.store(true, Relaxed);
        turns = worker.join().unwrap();
    });
    assert_eq!(parent.precise(), 0);
    let [outside, inside] = [outside, inside].map(|group| group.destroy().unwrap());
    assert!(HANDLED.load(Relaxed) > 100);
    for (settled, charges) in [(outside, turns * 1000), (inside, HANDLED.load(Relaxed) * 300)] {
        assert_eq!((settled.charges, settled.uncharges), (charges, charges));
        assert_eq!(settled.leftover, 0);
    }
    assert_eq!(parent.ledger().mistakes(), Mistakes::default());
}
