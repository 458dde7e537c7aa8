//! The recorder in real programs, and what its recordings say.

mod aligned;
mod atomics;
mod counts;
mod cplusplus;
mod objects;
mod processes;
mod support;
