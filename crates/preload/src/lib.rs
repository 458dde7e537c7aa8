//! malloc for unmodified programs: every allocation is charged to a ledger.
//!
//! `ledgerline run` starts a program with this library preloaded and a ledger named in the environment. The functions
//! below then run in front of the program's allocator, which is the C library's or that of another shared library
//! behind this one:
//!
//! ```text
//! malloc(n):  p = next.malloc(n)
//!             if span[p] is my cell: take size(p) from it
//!             else: charge(my row, size(p)); shadow[p] = my row
//! free(p):    if span[p] is a cell: put size(p) into it
//!             else: uncharge(shadow[p], size(p)); shadow[p] = none
//!             next.free(p)
//! ```
//!
//! | module    | contents                                                   |
//! |-----------|------------------------------------------------------------|
//! | `alloc`   | the bodies of malloc and its family                        |
//! | `realloc` | the body of realloc                                        |
//! | `asked`   | malloc and free for blocks without a header                |
//! | `sizes`   | the sizes of such blocks                                   |
//! | `expected` | an allocator's predicted sizes                            |
//! | `charges` | the charges of blocks and mappings                         |
//! | `next`    | the next allocator, and the layout of its blocks           |
//! | `behind`  | the other functions behind this library                    |
//! | `operators` | C++'s new and delete                                     |
//! | `objects` | the object that contains an address                        |
//! | `libcs`   | functions that glibc has and musl lacks                    |
//! | `shadow`  | the owner of each block                                    |
//! | `mapped`  | memory that the program maps by itself                     |
//! | `ranges`  | the table of such mappings                                 |
//! | `process` | this process's rows; the state that a fork wipes           |
//! | `thread`  | the calling thread's row                                   |
//! | `library` | the calling library's row                                  |
//! | `exec`    | executed programs that this library will not see           |
//! | `elsewhere` | programs that are executed without a path to the ledger  |
//! | `filter`  | calls that a seccomp filter may forbid                     |
//! | `vouch`   | the executing process's statement about filters            |
//! | `doors`   | calls by which a program names a thread, or filters itself |
//! | `refuse`  | the action at `max`                                        |
//! | `stack`   | the stack of a refused request                             |
//! | `say`     | messages to the user, the environment                      |
//! | `text`    | names and lines, made on the stack                         |
//! | `exports` | the C symbols                                              |
//!
//! A child that shares its parent's memory (`vfork`, `posix_spawn`) must not allocate before it executes another
//! program: it would write its parent's cells on another CPU. POSIX forbids it, and the C library's own `posix_spawn`
//! obeys that.

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
