//! The time of a load from each cache and from memory: a walk along a chain of lines, each of which has the place of
//! the next one.

use super::spread::Spread;
use super::team::timed;
use ledgerline_bench::measure::machine::pin;
use ledgerline_bench::measure::shuffle::shuffled;

/// Words of a line.
const LINE: usize = 8;
/// Steps of a walk, short enough that most are not interrupted; then the number of walks.
const STEPS: usize = 2_000;
const WALKS: usize = 60;
/// Steps that bring the lines before.
const COLD: usize = 50_000;

/// Measures over a few walks the nanoseconds of a load that depends on the previous one, on one CPU in `bytes` of
/// data. `None` if every walk was disturbed, or there is not enough memory.
pub(super) fn chase(cpu: usize, bytes: usize) -> Option<Spread> {
    let walk = move || {
        pin(cpu).ok()?;
        let lines = bytes / (LINE * size_of::<usize>());
        let mut chain: Vec<usize> = Vec::new();
        chain.try_reserve_exact(lines * LINE).ok()?;
        huge(&chain);
        chain.resize(lines * LINE, 0);
        let order = shuffled(lines);
        for (index, &line) in order.iter().enumerate() {
            chain[line * LINE] = order[(index + 1) % lines] * LINE;
        }
        let mut at = 0;
        (0..COLD).for_each(|_| at = chain[at]);
        let mut found = Vec::new();
        for _ in 0..WALKS {
            let block = timed(|| {
                (0..STEPS).for_each(|_| at = chain[at]);
                STEPS as u64
            });
            if block.undisturbed {
                found.push(block.per_operation());
            }
        }
        std::hint::black_box(at);
        Spread::of(found.into_iter())
    };
    // On a thread of its own, since it stays on that CPU.
    std::thread::spawn(walk).join().ok()?
}

/// Requests large pages before the small ones are allocated, so that the walk does not spend its time in page tables.
/// Without large pages it is slower.
fn huge(chain: &Vec<usize>) {
    const PAGE: usize = 1 << 12;
    let start = chain.as_ptr().addr();
    let end = (start + chain.capacity() * size_of::<usize>()) / PAGE * PAGE;
    let start = start.next_multiple_of(PAGE);
    if start < end {
        // SAFETY: advice about pages that lie wholly within the reserved memory of `chain` changes no value in them.
        unsafe {
            libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_HUGEPAGE);
        }
    }
}
