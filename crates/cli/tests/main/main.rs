//! `ledgerline` as a user runs it. Tests that must run alone are separate programs.

#[path = "../../../../tests/support/golden.rs"]
mod golden;
#[path = "../../../../tests/support/held.rs"]
mod held;
#[path = "../../../../tests/support/manual.rs"]
mod pages;
#[path = "../../../../tests/support/seed.rs"]
mod seed;
mod support;

mod damaged;
mod doctor;
mod embedded;
mod fleet;
mod hostile_names;
mod lab;
mod manual;
mod many;
mod max_heap;
mod musl;
mod names;
mod not_accounted;
mod one_file;
mod others;
mod report;
mod resident;
mod run;
mod run_as_plain;
mod run_seccomp;
mod run_within;
mod schemas;
mod serve;
mod set;
mod show;
mod top;
mod top_screen;
mod unread;
