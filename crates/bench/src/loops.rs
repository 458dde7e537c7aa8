//! The common parts of the timed loops of several suites.
//!
//! Amounts go through `black_box` once, before the loop. The operations stay in the loop because they write memory that
//! other threads can see. Loops over one thing do four operations per turn: enough that counting the turns does not
//! weigh on the cheapest of them, and so little code that fetching it does not weigh on the others. With eight it does.

use ledgerline::percpu::Array;

/// The operations per turn of the loops.
pub const UNROLLED: u64 = 4;

macro_rules! four_times {
    ($operation:expr) => {{
        $operation;
        $operation;
        $operation;
        $operation;
    }};
}
pub(crate) use four_times;

/// The floor: adds to a per-CPU sum.
#[inline(never)]
pub fn bare_add(array: &Array, units: i64, n: u64) {
    for _ in 0..n / UNROLLED {
        four_times!(array.add(0, units));
    }
}

#[cold]
#[inline(never)]
pub fn refused() -> ! {
    panic!("a charge far below the limit was refused");
}
