//! The common part of the libraries that are preloaded in front of a program's C functions.
//!
//! There are two: `libledgerline_preload.so` charges the allocations of a program, and `libledgerline_record.so` counts
//! its memory accesses. Each links its own copy of this crate.
//!
//! | module      | contents                                                                               |
//! |-------------|----------------------------------------------------------------------------------------|
//! | `functions` | runs in the program: the next allocator, loaded objects, lines to standard error       |
//! | `build`     | runs in a command's build script, with the feature `build`: puts the library inside the command |

#[cfg(feature = "build")]
pub mod build;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod functions;

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub use functions::*;
