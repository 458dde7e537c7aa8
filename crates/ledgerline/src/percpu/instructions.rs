//! What the sections are made of: a file for each machine, with the instructions of all sections by their names.
//!
//! The sections themselves, with their pseudocode, are in `rseq.rs`, `narrow.rs`, `sums.rs`, `lent.rs` and `purse.rs`.

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
