//! Ledgers seen from another process.

mod damaged;
mod find_program;
mod look;
