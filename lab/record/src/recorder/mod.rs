//! Counts which thread touches which field of which type, in programs that were compiled with probes.
//!
//! The compilers' option `-fsanitize=thread` puts a call before each access to memory that other threads could see.
//! In a program that is linked with this library instead of the sanitizer's, the library answers these calls:
//!
//! ```text
//! __tsan_write8(address):       id = shadow[address]            nobody's: done
//!                               object = objects[id]            its type, its start
//!                               field = cells[address - start]
//!                               my counts[type][field][write] += 1
//! __tsan_atomic64_fetch_add(…): the same, and the addition
//! __tsan_func_entry():          an operation begins, if this is the function that was named
//! ```
//!
//! `ledgerline layout record` writes a *plan* with types, sizes, globals and functions, and names it in
//! the environment. The counts lie in a mapped file, one for each process, so nothing is lost however the program
//! ends. Without a plan the library counts nothing, and still does the atomic operations.
//!
//! | module       | what it holds                                                 |
//! |--------------|---------------------------------------------------------------|
//! | `plan`       | the types, objects and functions to record                    |
//! | `arena`      | the mapped file, also across a fork                           |
//! | `shadow`     | the object at an address                                      |
//! | `objects`    | objects as they come and go                                   |
//! | `lock`       | the right to change these                                     |
//! | `local`      | the calling thread's own words                                |
//! | `thread`     | the calling thread's counts                                   |
//! | `operation`  | the fields that one operation touched                         |
//! | `touch`      | the work at an access                                         |
//! | `probes`     | the compiler's calls for plain accesses and functions         |
//! | `atomics`    | the compiler's calls for atomic operations                    |
//! | `heap`       | malloc and its family; `next`, the allocator behind           |
//! | `wide`       | atomic numbers of 16 bytes                                    |
//! | `pthread`    | locks of the C library, which has no probes                   |
//! | `annotate`   | objects that a program declares itself                        |
//! | `start`      | the beginning of a process; `calibrate`, the cost of recording |
//! | `say`        | messages to the user; the environment                         |
//!
//! # Invariants that `unsafe` relies on
//!
//! * **R1** The recording is mapped at `arena`'s base for as long as the process lives, and an offset that was handed
//!   out lies within the file.
//! * **R2** A thread's block and tables are written by that thread alone; a signal handler that interrupts it finds
//!   it busy and is turned away.
//! * **R3** Objects and shadow change under one lock. A reader without the lock gets a number that is checked before
//!   it is used.
//! * **R4** The plan is written once, before anything is counted.
//! * **R5** The caller of a probe or a C function passes what its declaration says.
//!
//! The tests of these invariants run C and C++ programs (`tests/`).

mod annotate;
mod arena;
mod atomics;
mod calibrate;
mod heap;
mod local;
mod lock;
mod next;
mod objects;
mod operation;
mod plan;
mod probes;
mod pthread;
mod say;
mod shadow;
mod start;
mod thread;
mod touch;
mod wide;
