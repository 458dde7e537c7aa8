//! What the README of `ledgerline-fleet` shows and promises.

mod compare;
mod readme;
