//! What a library needs that is preloaded and stands before a program's C functions.
//!
//! Two libraries are: `libledgerline_preload.so`, which charges what the program allocates, and `libledgerline_record.so`,
//! which counts what it touches. Each depends on this crate as on any other, so each has a copy of its own.
//!
//! | module      | what it holds                                                                          |
//! |-------------|----------------------------------------------------------------------------------------|
//! | `functions` | runs in the program: the allocator behind the library, what is loaded, lines to standard error |
//! | `build`     | runs in a command's build script, with the feature `build`: puts the library inside the command |

#[cfg(feature = "build")]
pub mod build;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod functions;

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub use functions::*;
