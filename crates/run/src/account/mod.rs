//! The account of a program: who held how much of its memory, and how it ended; as `ledgerline run` and `show` print it.
//!
//! | module    | what it holds                                                                |
//! |-----------|------------------------------------------------------------------------------|
//! | `model`   | the account as owned data, made of a ledger and of what its supervisor knows |
//! | `status`  | how a program ended                                                          |
//! | `tree`    | the lines of the account: processes below those that started them, folded    |
//! | `render`  | the account as a tree of text                                                |
//! | `json`    | the account as a document                                                    |

pub mod json;
pub mod model;
pub mod render;
mod status;
pub mod tree;

pub use model::{Account, Container, Mistakes, Processes};
pub use status::Status;
