//! Holds the integration tests in one program, since each program is linked by itself. A test that needs a process of
//! its own is a file in the folder above, and says why.

mod aligned;
mod atomics;
mod counts;
mod cplusplus;
mod objects;
mod processes;
#[path = "../support/mod.rs"]
mod support;
