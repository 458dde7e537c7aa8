//! The library as programs in C and C++ have it: its header, its symbols, its calls, its installation.
//!
//! The tests share this process and one folder. Each program, and each folder below that one, has a name of its own.

mod fast;
mod header;
mod install;
mod programs;
mod support;
mod symbols;
