//! What to record of a program's accesses to fields, and what was recorded, as a profile.
//!
//! ```text
//! program ─ its types, globals, functions ─ plan ─→ the library in the program (lab/record)
//! profile ← phases, roles ← counts by thread ← recordings, one a process ─┘
//! ```
//!
//! | module      | what it holds                                                    |
//! |-------------|------------------------------------------------------------------|
//! | [`build`]   | wrappers in compilers' places, which put probes in                |
//! | `format`    | the plan and the recording: a link to the library's own file     |
//! | [`program`] | what a file says: probes, functions; [`globals`] by their type   |
//! | [`cells`]   | the fields of a type as the library counts them                  |
//! | [`plan`]    | what is wanted                                                   |
//! | [`read`]    | what was counted                                                 |
//! | [`profile`] | threads as roles, operations as phases                           |
//! | [`report`]  | the counts as text and as JSON                                   |

#![deny(unsafe_code)]

pub mod build;
#[cfg(test)]
#[path = "../../../tests/support/cases.rs"]
mod cases;
pub mod cells;
#[allow(dead_code, reason = "the library uses the rest")]
mod format;
pub mod globals;
pub mod plan;
pub mod profile;
pub mod program;
pub mod read;
pub mod report;
#[cfg(test)]
#[path = "../../../tests/support/seed.rs"]
mod seed;

/// The variable of the environment that names the folder of plan and recordings to the library.
pub const VARIABLE: &str = format::VARIABLE;
