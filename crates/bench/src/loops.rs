//! What the timed loops of several suites have in common.
//!
//! Amounts go through `black_box` once, before the loop; what keeps the operations in the loop is that they
//! write memory that others can see. Loops over one thing do four operations a turn: enough that counting the
//! turns does not weigh on the cheapest of them, and not so much code that fetching it weighs on the others
//! (with eight it does).

use ledgerline::percpu::Array;

/// Operations a turn of the loops.
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
