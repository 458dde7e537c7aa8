//! Holds the integration tests in one program, since each program is linked by itself. A test that needs a process of
//! its own is a file in the folder above, and says why.

mod archives;
mod bombs;
mod btf;
#[path = "../../../../tests/support/cases.rs"]
mod cases;
#[path = "../../../../tests/support/compile.rs"]
mod compile;
mod compilers;
mod diff_compiled;
mod documents;
mod dwarf;
mod dwarf_separate;
mod fuzz;
mod glibc;
#[path = "../../../../tests/support/golden.rs"]
mod golden;
mod holders;
mod kernel;
mod named;
mod open;
mod references;
#[path = "../../../../tests/support/seed.rs"]
mod seed;
#[path = "../support/mod.rs"]
mod support;
mod variants;
mod virtual_bases;
