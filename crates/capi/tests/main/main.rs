//! The library from the view of programs in C and C++: its header, its symbols, its calls, its installation.
//!
//! The tests share this process and one folder. Each program, and each folder below that one, has a unique name.

mod fast;
mod header;
mod install;
mod programs;
mod support;
mod symbols;
