//! What the sections are made of: a file for each machine, with the instructions of all sections by their names.
//!
//! The sections themselves, with their pseudocode, are in `rseq.rs`, `narrow.rs`, `sums.rs`, `lent.rs` and `purse.rs`.

/// How many aborts of this process's sections one restarts that could fail instead. Then the caller's slow path serves.
///
/// A debugger that steps through a section, and a profiler's signals without a pause, abort it each time. On a busy machine a
/// section is aborted now and then, and one slow path in so many of those costs nothing.
///
/// In unit tests a section restarts as often as it takes, so that it fails for reasons of its own alone. `tests/main/stepped.rs` and
/// the other tests from outside have the number that ships.
#[cfg(rseq)]
pub(crate) const PATIENCE: i32 = if cfg!(test) { i32::MAX } else { 32 };
/// How many aborts are left until a section fails. Threads may count two as one, which does not matter; so it is written by
/// plain instructions, in the abort path alone.
#[cfg(rseq)]
pub(crate) static ABORTS: std::sync::atomic::AtomicI32 =
    std::sync::atomic::AtomicI32::new(PATIENCE);

/// What the kernel reads of a section: where it begins, how long it is, and where it goes on when it was aborted.
macro_rules! descriptor {
    () => {
        ".pushsection __rseq_cs, \"aw\"
        .balign 32
        4:
        .long 0, 0
        .quad 2f, 3f - 2f, 5f
        .popsection"
    };
}

#[cfg(not(test))]
macro_rules! point {
    ($number:literal) => {
        ""
    };
}
#[cfg(not(test))]
macro_rules! abort_count {
    () => {
        ""
    };
}

#[cfg(all(rseq, target_arch = "aarch64"))]
#[macro_use]
mod aarch64;
#[cfg(all(rseq, target_arch = "x86_64"))]
#[macro_use]
mod x86_64;

/// Elsewhere nothing runs a section: no thread is registered there (`registration::adopt`).
#[cfg(not(rseq))]
macro_rules! section {
    ($($any:tt)*) => {
        unreachable!("a section on a machine that has none")
    };
}
