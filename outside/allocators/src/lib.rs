//! Requirements for the global allocator over any allocator. Each test binary has another one beneath.

use ledgerline::{Group, Ledger, Limit, Mistakes, alloc, current};
use std::alloc::Layout;
use std::sync::Mutex;

struct Block(usize, Layout);

fn random(state: &mut u64, below: u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 11) % below
}

fn groups(names: &[&str]) -> Vec<Group<'static>> {
    let ledger = Ledger::new().unwrap().into_static();
    ledger.set_alloc_policy(alloc::Policy::NULL);
    names.iter().map(|name| ledger.root().create(name).unwrap()).collect()
}

/// Threads make, grow and free each other's blocks, of every size and alignment.
pub fn blocks_are_charged_and_credited_from_all_threads() {
    let groups = groups(&["a", "b", "c"]);
    let held: Mutex<Vec<Vec<Block>>> = Mutex::new(vec![Vec::new(), Vec::new(), Vec::new()]);
    std::thread::scope(|scope| {
        for seed in 1..=4u64 {
            let (groups, held) = (&groups, &held);
            scope.spawn(move || {
                let mut state = 0x9e37_79b9_7f4a_7c15 ^ seed << 20;
                for _ in 0..8000 {
                    let pick = random(&mut state, 3) as usize;
                    let power = 1 + random(&mut state, 18);
                    let size = 1 + random(&mut state, 1 << power) as usize;
                    match random(&mut state, 5) {
                        0 | 1 => {
                            let align = 1 << random(&mut state, 13);
                            let layout = Layout::from_size_align(size, align).unwrap();
                            // SAFETY: not empty.
                            let block = groups[pick].scope(|| unsafe { std::alloc::alloc(layout) });
                            assert!(!block.is_null() && block.addr().is_multiple_of(align));
                            // SAFETY: it has that size.
                            unsafe { block.write_bytes(seed as u8, size) };
                            held.lock().unwrap()[pick].push(Block(block.addr(), layout));
                        }
                        2 => {
                            let block = held.lock().unwrap()[pick].pop();
                            if let Some(Block(address, layout)) = block {
                                let address = address as *mut u8;
                                // SAFETY: the block is this thread's alone, in its layout.
                                let moved = unsafe { std::alloc::realloc(address, layout, size) };
                                assert!(
                                    !moved.is_null() && moved.addr().is_multiple_of(layout.align())
                                );
                                let layout = Layout::from_size_align(size, layout.align()).unwrap();
                                held.lock().unwrap()[pick].push(Block(moved.addr(), layout));
                            }
                        }
                        _ => {
                            let block = held.lock().unwrap()[pick].pop();
                            if let Some(Block(address, layout)) = block {
                                // SAFETY: the block is this thread's alone, in its layout.
                                unsafe { std::alloc::dealloc(address as *mut u8, layout) };
                            }
                        }
                    }
                }
            });
        }
    });
    for (group, blocks) in groups.iter().zip(held.into_inner().unwrap()) {
        let sum: usize = blocks.iter().map(|block| block.1.size()).sum();
        assert_eq!(group.precise(), sum as u64);
        for Block(address, layout) in blocks {
            // SAFETY: no other thread has it; it is freed in its layout.
            unsafe { std::alloc::dealloc(address as *mut u8, layout) };
        }
        assert_eq!(group.precise(), 0);
    }
    assert_eq!(groups[0].ledger().mistakes(), Mistakes::default());
    assert_eq!(alloc::counts(), alloc::Counts::default());
}

/// The shadow has one entry for each 32 bytes.
pub fn small_blocks_start_a_window_apart() {
    for group in [None, Some(groups(&["small"])[0])] {
        let _entered = group.map(Group::enter);
        for size in 1..=40 {
            for align in [1, 2, 4, 8, 16, 32] {
                let layout = Layout::from_size_align(size, align).unwrap();
                let mut starts = Vec::with_capacity(500);
                // SAFETY: not empty; each is freed in its layout.
                unsafe {
                    starts.extend((0..500).map(|_| std::alloc::alloc(layout).addr()));
                    starts.sort();
                    let windows = starts.windows(2).all(|pair| pair[1] / 32 > pair[0] / 32);
                    assert!(windows, "{layout:?}");
                    starts.iter().for_each(|&start| std::alloc::dealloc(start as *mut u8, layout));
                }
            }
        }
    }
}

/// At a limit an allocation is null, exact to the byte.
pub fn a_limit_holds() {
    let group = groups(&["limited"])[0];
    group.set_max(Limit::units(100_000)).unwrap();
    group.scope(|| {
        let mut all = Vec::<u8>::new();
        assert!(all.try_reserve_exact(100_001).is_err());
        all.try_reserve_exact(100_000).unwrap();
        assert!(Vec::<u8>::new().try_reserve_exact(1).is_err());
    });
    assert_eq!((group.precise(), alloc::last_refusal().unwrap().group), (0, group.id()));
}

/// Threads carry units of a group for their next allocations. None are lost by that: the limit is reached to the
/// byte, and when the group ends every charge was counted.
pub fn a_limit_is_reached_to_the_byte_beside_threads_that_allocate() {
    const MAX: usize = 8 << 20;
    let group = groups(&["carried"])[0];
    group.set_max(Limit::units(MAX as u64)).unwrap();
    let pairs =
        || group.scope(|| (0..1000).for_each(|_| drop(std::hint::black_box(Box::new([0u8; 64])))));
    let [begun, end] = [(); 2].map(|()| std::sync::Barrier::new(5));
    let seen = std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                pairs();
                begun.wait();
                end.wait();
                pairs();
            });
        }
        begun.wait();
        let mut all = Vec::<u8>::new();
        let [over, fits] =
            group.scope(|| [MAX + 1, MAX].map(|bytes| all.try_reserve_exact(bytes).is_ok()));
        let seen = (over, fits, group.precise());
        drop(all);
        end.wait();
        seen
    });
    // Checked here, since the threads would wait forever for one of them that failed.
    assert_eq!(seen, (false, true, MAX as u64));
    let ended = group.destroy().unwrap();
    assert_eq!((ended.charges, ended.uncharges, ended.leftover), (8001, 8001, 0));
}

/// In a full group, a refusal is an error that names the full group, and the process continues.
pub fn a_group_that_is_full_can_be_asked_from_inside() {
    let ledger = Ledger::new().unwrap().into_static();
    ledger.set_alloc_policy(alloc::Policy::NULL);
    let [full, other] = ["full", "other"].map(|name| ledger.root().create(name).unwrap());
    let rows = full.scope(|| vec![0u8; 600_000]);
    full.set_max_now(Limit::units(500_000)).unwrap();
    other.set_max(Limit::units(10)).unwrap();
    // Allocations of the program itself in there, such as a text, are refused as usual.
    let refused = full.scope(|| {
        let refused = [full.try_charge(1), other.try_charge(11)].map(Result::unwrap_err);
        assert!(current::try_charge(1).is_err() && ledger.snapshot().groups.len() == 3);
        other.destroy_tree().unwrap();
        refused
    });
    assert_eq!(refused.each_ref().map(|refused| refused.group.as_str()), ["/full", "/other"]);
    assert!(
        full.catch(|| full.try_charge(1).is_err()).unwrap(),
        "a refusal that was handled fails nothing"
    );
    drop(rows);
}
