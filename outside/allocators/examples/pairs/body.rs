//! Times a program's allocations: `PROGRAM [THREADS [ROUNDS]]` prints, for each thread, the nanoseconds per block
//! that is allocated and freed: of 64 bytes, and of 16 bytes to 4 KiB with 32 blocks live at a time. Medians of
//! rounds.

use std::alloc::{Layout, alloc, dealloc};
use std::hint::black_box;
use std::ptr::null_mut;
use std::time::Instant;

/// Pairs in a round.
const PAIRS: usize = 4096;
const LIVE: usize = 32;

/// Runs the threads. Each holds the result of `enter` until it ends.
pub fn run<G>(enter: impl Fn() -> G + Sync) {
    let given: Vec<usize> =
        std::env::args().skip(1).map(|it| it.parse().expect("a number")).collect();
    let [threads, rounds] =
        [(0, 1), (1, 1000)].map(|(at, otherwise)| *given.get(at).unwrap_or(&otherwise));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let _entered = enter();
                let (same, mixed) = timed(rounds);
                println!("{same:.3} {mixed:.3}");
            });
        }
    });
}

fn timed(rounds: usize) -> (f64, f64) {
    let sizes = sizes();
    let mut took = [Vec::with_capacity(rounds), Vec::with_capacity(rounds)];
    for _ in 0..rounds {
        took[0].push(nanoseconds(|| same(black_box(layout(64)))));
        took[1].push(nanoseconds(|| mixed(&sizes)));
    }
    let [same, mixed] = took.map(|mut took| {
        took.sort_by(f64::total_cmp);
        took[rounds / 2]
    });
    (same, mixed)
}

fn nanoseconds(act: impl Fn()) -> f64 {
    let begun = Instant::now();
    act();
    begun.elapsed().as_nanos() as f64 / PAIRS as f64
}

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 8).expect("a small size")
}

/// Returns as many of each power of two, in a random order that is always the same.
fn sizes() -> Vec<Layout> {
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let mut size = || {
        let power = 4 + next() % 8;
        (1 << power) + (next() % ((1 << power) + 1)) as usize
    };
    (0..1024).map(|_| layout(size())).collect()
}

#[inline(never)]
fn same(layout: Layout) {
    for _ in 0..PAIRS {
        // SAFETY: the size is not zero; the block is freed in its own layout.
        unsafe { dealloc(black_box(alloc(layout)), layout) }
    }
}

#[inline(never)]
fn mixed(sizes: &[Layout]) {
    let mut live = [(null_mut::<u8>(), sizes[0]); LIVE];
    for turn in 0..PAIRS {
        let (block, layout) = &mut live[turn % LIVE];
        // SAFETY: no size is zero; each block is freed once, in its own layout.
        unsafe {
            if !block.is_null() {
                dealloc(*block, *layout);
            }
            *layout = sizes[turn % sizes.len()];
            *block = black_box(alloc(*layout));
        }
    }
    for (block, layout) in live {
        // SAFETY: as above; there are more turns than blocks.
        unsafe { dealloc(block, layout) }
    }
}
