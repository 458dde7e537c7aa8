//! Tests that need no other allocator than the system's. A program has one global allocator, so those over mimalloc
//! and jemalloc are binaries of their own.

use ledgerline::Alloc;

#[global_allocator]
static ALLOC: Alloc = Alloc::system();

mod readme;
mod system;
#[cfg(feature = "unwind")]
mod unwind;
