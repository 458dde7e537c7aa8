//! The recorder of accesses: the library that is preloaded, and the format that it shares with its readers.
//!
//! | module     | what it holds                                                                             |
//! |------------|-------------------------------------------------------------------------------------------|
//! | `format`   | the plan and the recording, shared by both sides                                          |
//! | `recorder` | with the feature `recorder`: answers the probes of compilers, and counts, in the program  |

#[doc(hidden)]
pub mod format;
#[cfg(all(feature = "recorder", target_os = "linux", target_arch = "x86_64"))]
mod recorder;
