//! Private work: real cycles that touch no memory, of a known length.
//!
//! The work is a chain of multiplications, each of which needs the one before. It begins with the value of an access
//! and ends with a zero that the next access adds to its address. So nothing overlaps, like in the simulation.

/// Cycles of a multiplication on every x86-64 since 2008; the measured length confirms it.
pub(super) const MULTIPLICATION: usize = 3;

/// Returns the number of multiplications in `cycles` cycles.
pub(super) const fn multiplications(cycles: usize) -> usize {
    cycles.div_ceil(MULTIPLICATION)
}

/// Returns a zero that the compiler does not know. It is available to the processor a cycle after `token`.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) fn zero_after(token: u64) -> usize {
    let mut zero = token;
    // SAFETY: arithmetic on one register; no memory, no stack.
    unsafe {
        std::arch::asm!("and {zero}, 0", zero = inout(reg) zero, options(pure, nomem, nostack));
    }
    zero as usize
}

/// Works for `N` multiplications, which cannot begin before `zero` is available. Returns a zero that the compiler
/// does not know; it is available to the processor at the end.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) fn work<const N: usize>(zero: usize) -> usize {
    let mut chain = zero;
    // SAFETY: arithmetic on one register; no memory, no stack.
    unsafe {
        std::arch::asm!(
            ".rept {times}",
            "imul {chain}, {chain}",
            ".endr",
            chain = inout(reg) chain,
            times = const N,
            options(pure, nomem, nostack)
        );
    }
    chain
}

/// Like the function for x86-64, for other processors, as far as `black_box` is effective.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(super) fn zero_after(token: u64) -> usize {
    (token & std::hint::black_box(0)) as usize
}

/// Like the function for x86-64, for other processors.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(super) fn work<const N: usize>(zero: usize) -> usize {
    let mut chain = zero;
    for _ in 0..N {
        chain = std::hint::black_box(chain.wrapping_mul(chain));
    }
    chain
}

/// Does `times` multiplications, each needing the one before.
#[inline(always)]
pub(super) fn multiply(mut zero: usize, times: usize) -> usize {
    for _ in 0..times {
        zero = work::<1>(zero);
    }
    zero
}

/// Adds one number to itself, each time needing the sum before: a cycle each, on every processor.
///
/// `turns` times a hundred additions.
#[cfg(target_arch = "x86_64")]
pub(super) fn add_chain(turns: u64) {
    let mut sum = 1u64;
    for _ in 0..turns {
        // SAFETY: arithmetic on one register; no memory, no stack.
        unsafe {
            std::arch::asm!(
                ".rept 100",
                "add {sum}, {sum}",
                ".endr",
                sum = inout(reg) sum,
                options(pure, nomem, nostack)
            );
        }
    }
    std::hint::black_box(sum);
}

/// Like the function for x86-64; `black_box` keeps the compiler from adding all at once.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn add_chain(turns: u64) {
    let mut sum = 1u64;
    for _ in 0..100 * turns {
        sum = std::hint::black_box(sum.wrapping_add(sum));
    }
}

/// Returns the processor's time-stamp counter, if it has one.
pub(super) fn time_stamp() -> Option<u64> {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: every x86-64 has the counter, and no kernel that runs Rust disables it.
        Some(unsafe { std::arch::x86_64::_rdtsc() })
    }
    #[cfg(not(target_arch = "x86_64"))]
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_ends_with_zero_whatever_it_began_with() {
        for token in [0, 1, 7, u64::MAX] {
            let zero = zero_after(token);
            assert_eq!([zero, work::<0>(zero), work::<5>(zero), work::<334>(zero)], [0; 4]);
        }
        assert_eq!((multiplications(0), multiplications(25), multiplications(1000)), (0, 9, 334));
    }
}
