//! The account of a program as `ledgerline run` and `show` print it: the shares of its memory, and its exit status.
//!
//! | module    | contents                                                                     |
//! |-----------|------------------------------------------------------------------------------|
//! | `model`   | the account as owned data, made of a ledger and its supervisor's data        |
//! | `status`  | the exit status of a program                                                 |
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
