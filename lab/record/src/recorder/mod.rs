//! Counts who touches which field of which type, in programs that were compiled with probes.
//!
//! `gcc -fsanitize=thread` (and clang's) puts a call before each access to memory that other threads could
//! see. A program that is linked with this library instead of the sanitizer's has these calls answered here:
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
//! `ledgerline layout record` writes a *plan* (which types, sizes, globals and functions) and names it in the
//! environment. The counts lie in a mapped file, one for each process, so nothing is lost however the program ends.
//! Without a plan the library counts nothing, and still does the atomic operations.
//!
//! | module       | what it holds                                                 |
//! |--------------|---------------------------------------------------------------|
//! | `plan`       | what is wanted                                                |
//! | `arena`      | the mapped file; what a fork does with it                     |
//! | `shadow`     | which object lies at an address                               |
//! | `objects`    | objects as they come and go                                   |
//! | `lock`       | who may change these                                          |
//! | `local`      | the calling thread's own words                                |
//! | `thread`     | the calling thread's counts                                   |
//! | `operation`  | which fields one operation touched                            |
//! | `touch`      | what happens at an access                                     |
//! | `probes`     | the compiler's calls for plain accesses and functions         |
//! | `atomics`    | the compiler's calls for atomic operations                    |
//! | `heap`       | malloc and its family; `next`, the allocator behind           |
//! | `wide`       | atomic numbers of 16 bytes                                    |
//! | `pthread`    | locks of the C library, which has no probes                   |
//! | `annotate`   | what a program says of its objects itself                     |
//! | `start`      | the beginning of a process; `calibrate`, what recording costs |
//! | `say`        | words to the user; the environment                            |
//!
//! # What `unsafe` rests on
//!
//! * **R1** The recording is mapped at `arena`'s base for as long as the process lives, and an offset that was
//!   handed out lies in what the file has.
//! * **R2** A thread's block and tables are written by that thread alone; a signal handler that comes in
//!   between finds it busy and is turned away.
//! * **R3** Objects and shadow change under one lock. A reader without the lock gets a number that is checked
//!   before it is used.
//! * **R4** The plan is written once, before anything is counted.
//! * **R5** Whoever calls a probe or a C function passes what its declaration says.
//!
//! The tests that hold them to it run C and C++ programs (`tests/`).

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
