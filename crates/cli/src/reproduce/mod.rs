//! `ledgerline reproduce`: the documents' experiments, held against this machine.
//!
//! | room       | what it holds                                                        |
//! |------------|----------------------------------------------------------------------|
//! | `measured` | what is measured here for real: the documents' designs, and ours     |

#[allow(dead_code, reason = "the command that calls it is not written yet")]
mod measured;
