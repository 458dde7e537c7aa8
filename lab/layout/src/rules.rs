//! Rules about lines, and the check whether a file keeps them.
//!
//! | room      | what it holds                                             |
//! |-----------|-----------------------------------------------------------|
//! | `file`    | what `layout.toml` may say                                |
//! | `broken`  | a rule that does not hold                                 |
//! | `check`   | whether a record keeps its rules                          |
//! | `groups`  | the kernel's markers of groups, and lines they need not cross |
//! | `lock`    | today's layout as rules                                   |
//! | `report`  | what is broken: text, JSON, SARIF                         |
//! | `emit`    | the rules as assertions in Rust, C and the kernel's macros |

mod broken;
mod check;
mod emit;
mod file;
mod groups;
mod lock;
mod report;

pub use broken::{Broken, MISSING};
pub use check::check;
pub use emit::{Language, emit};
pub use file::{Apart, File, Mixed, TypeRules};
pub use groups::{Group, crossing, groups};
pub use lock::lock;
pub use report::{json, sarif, text};

#[cfg(test)]
mod tests;
