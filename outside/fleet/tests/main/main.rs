//! Tests the examples and promises in the README of `ledgerline-fleet`.

mod compare;
mod readme;
