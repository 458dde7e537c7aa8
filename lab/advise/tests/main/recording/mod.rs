//! The recorder in real programs, and its recordings.

mod aligned;
mod atomics;
mod counts;
mod cplusplus;
mod objects;
mod processes;
mod support;
