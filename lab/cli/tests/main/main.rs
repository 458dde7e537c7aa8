//! Tests of `ledgerline-lab` through the command line. The tests of `calibrate` are a program of their own.

#[path = "../../../../tests/support/figures.rs"]
mod figures;
#[path = "../../../../tests/support/golden.rs"]
mod golden;
#[path = "../../../../tests/support/held.rs"]
mod held;
#[path = "../../../../tests/support/manual.rs"]
mod pages;
mod support;

mod bench;
mod layout;
mod layout_advise;
mod layout_trial;
mod manual;
mod one_file;
mod record;
mod record_build;
mod reproduce;
mod schemas;
mod unread;
