//! Holds the integration tests in one program, since each program is linked by itself. A test that needs a process of
//! its own is a file in the folder above, and says why.

mod documents;
#[path = "../../../../tests/support/golden.rs"]
mod golden;
mod machine_files;
mod ours;
mod published;
mod signs;
