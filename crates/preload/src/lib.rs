//! malloc for programs that nobody recompiled: every allocation is charged to a ledger.
//!
//! `ledgerline run` starts a program with this library preloaded and a ledger named in the
//! environment. The functions below then stand before the program's allocator (the C library's, or
//! another shared library's behind this one):
//!
//! ```text
//! malloc(n):  p = next.malloc(n)
//!             if span[p] is my cell: take size(p) from it
//!             else: charge(my row, size(p)); shadow[p] = my row
//! free(p):    if span[p] is a cell: put size(p) into it
//!             else: uncharge(shadow[p], size(p)); shadow[p] = nobody
//!             next.free(p)
//! ```
//!
//! | module    | what it holds                                              |
//! |-----------|------------------------------------------------------------|
//! | `alloc`   | the bodies of malloc and its family                        |
//! | `realloc` | the body of realloc                                        |
//! | `asked`   | malloc and free where blocks bear no header                 |
//! | `sizes`   | how large such blocks are                                  |
//! | `expected` | what an allocator gives for a request                     |
//! | `charges` | what is charged for a block and for a mapping             |
//! | `next`    | the allocator behind this one, and what its blocks are like |
//! | `behind`  | the other functions behind this library                    |
//! | `operators` | C++'s new and delete                                     |
//! | `objects` | whose code is at an address                                |
//! | `libcs`   | what glibc has and musl has not                            |
//! | `shadow`  | the owner of each block                                    |
//! | `mapped`  | memory that the program maps by itself                     |
//! | `ranges`  | the table of what it mapped                                |
//! | `process` | this process's rows; what a fork must forget               |
//! | `thread`  | the calling thread's row                                   |
//! | `library` | the calling library's row                                  |
//! | `exec`    | programs that it executes and will not see                 |
//! | `elsewhere` | those that it executes where the ledger has no path      |
//! | `filter`  | what a seccomp filter may forbid                           |
//! | `vouch`   | what whoever executes a program says of that               |
//! | `doors`   | calls by which a program names a thread, or filters itself |
//! | `refuse`  | what happens at `max`                                      |
//! | `stack`   | where a program asked for what was refused                 |
//! | `say`     | words to the user, the environment                         |
//! | `text`    | names and lines, made on the stack                         |
//! | `exports` | the C symbols                                              |
//!
//! A child that shares its parent's memory (`vfork`, `posix_spawn`) must not allocate before it
//! executes another program: it would write its parent's cells on another CPU. POSIX forbids it,
//! and the C library's own `posix_spawn` keeps to that.

mod alloc;
mod asked;
mod behind;
mod charges;
mod doors;
mod elsewhere;
mod exec;
mod expected;
mod exports;
mod filter;
#[cfg(target_arch = "x86_64")]
mod libcs;
mod library;
mod mapped;
mod next;
mod objects;
mod operators;
mod process;
mod ranges;
mod realloc;
mod refuse;
mod say;
#[cfg(test)]
#[path = "../../../tests/support/seed.rs"]
mod seed;
mod shadow;
mod sizes;
mod stack;
mod text;
mod thread;
mod vouch;
