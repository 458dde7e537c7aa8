//! Running a program under an account.
//!
//! | module      | contents                                                                          |
//! |-------------|-----------------------------------------------------------------------------------|
//! | [`launch`]  | starts a program under a preloaded library: its place, signals, orphans, the end  |
//! | [`account`] | the account of a program, made of a ledger and of the supervisor's own data       |

pub mod account;
pub mod launch;

#[cfg(test)]
#[path = "../../../tests/support/golden.rs"]
mod golden;
