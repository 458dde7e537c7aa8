//! Rules about lines, and the check whether a file keeps them.
//!
//! | room      | what it holds                                             |
//! |-----------|-----------------------------------------------------------|
//! | `file`    | what `layout.toml` may say                                |
//! | `check`   | whether a record keeps its rules                          |
//! | `groups`  | the kernel's markers of groups, and lines they need not cross |
//! | `lock`    | today's layout as rules                                   |
//! | `report`  | a rule that does not hold: text, JSON, SARIF              |
//! | `emit`    | the rules as assertions in Rust, C and the kernel's macros |

mod check;
mod emit;
mod file;
mod groups;
mod lock;
mod report;

pub use check::check;
pub use emit::{Language, emit};
pub use file::{Apart, File, Mixed, TypeRules};
pub use groups::{Group, crossing, groups};
pub use lock::lock;
pub use report::{Broken, MISSING, json, sarif, text};

#[cfg(test)]
mod tests;
