//! Ledgers seen from another process.

mod damaged;
mod find_program;
mod find_run;
mod look;
