//! The instructions of the sections, by their names: a file for each machine.
//!
//! The sections, with their pseudocode, are in `rseq.rs`, `narrow.rs`, `sums.rs`, `lent.rs` and `thread_cache.rs`.

/// One in this many aborts of this process's sections fails the section instead of restarting it, if it may fail. The
/// caller's slow path then serves.
///
/// A debugger that steps through a section, or a profiler that sends signals without a pause, aborts it each time. On a
/// busy machine sections are aborted now and then, and one slow path in this many aborts costs nothing.
///
/// In unit tests a section always restarts, so that it fails only for its own reasons. `tests/main/stepped.rs` and the
/// other integration tests have the number that ships.
#[cfg(rseq)]
pub(crate) const PATIENCE: i32 = if cfg!(test) { i32::MAX } else { 32 };
/// The number of aborts until a section fails. It is written by plain instructions, only in the abort path: threads may
/// count two aborts as one, which does not matter.
#[cfg(rseq)]
pub(crate) static ABORTS: std::sync::atomic::AtomicI32 =
    std::sync::atomic::AtomicI32::new(PATIENCE);

/// The descriptor of a section, which the kernel reads: its start, its length, and the address to continue at after an
/// abort.
///
/// Each descriptor lies in an ELF section of its own, and so does the code that runs after an abort. The linker keeps
/// them only with the code that names them. In one section for all, each descriptor would keep the code of all others: a
/// library without an allocator would have the thread caches, and these need room in the static block of thread-locals.
/// Guarded by `capi/tests/programs/crowded.c`. A counter of the assembler tells the sections apart, since it counts each
/// inlined copy.
macro_rules! descriptor {
    () => {
        ".ifndef .Lledgerline_descriptors
        .set .Lledgerline_descriptors, 0
        .endif
        .set .Lledgerline_descriptors, .Lledgerline_descriptors + 1
        .pushsection __rseq_cs, \"aw\", %progbits, unique, .Lledgerline_descriptors
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

/// Stands for a section on machines without sections. Nothing runs it, since no thread is registered there
/// (`registration::adopt`).
#[cfg(not(rseq))]
macro_rules! section {
    ($($any:tt)*) => {
        unreachable!("a section on a machine that has none")
    };
}
