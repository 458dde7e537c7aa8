//! Plans the recording of a program's accesses to fields, and makes a profile from the recordings.
//!
//! ```text
//! program ─ its types, globals, functions ─ plan ─→ the library in the program (lab/record)
//! profile ← phases, roles ← counts by thread ← recordings, one a process ─┘
//! ```
//!
//! | module      | what it holds                                                  |
//! |-------------|----------------------------------------------------------------|
//! | [`build`]   | wrappers of compilers, which add probes                        |
//! | [`program`] | a file's probes and functions; [`globals`] by their type       |
//! | [`cells`]   | the fields of a type as the library counts them                |
//! | [`plan`]    | the types, functions and objects to record                     |
//! | [`read`]    | the counts of a run                                            |
//! | [`profile`] | threads as roles, operations as phases                         |
//! | [`report`]  | the counts as text and as JSON                                 |

pub mod build;
pub mod cells;
pub mod globals;
pub mod plan;
pub mod profile;
pub mod program;
pub mod read;
pub mod report;

/// The environment variable that names the folder of the plan and the recordings.
pub const VARIABLE: &str = ledgerline_record::format::VARIABLE;
