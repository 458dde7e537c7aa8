//! Adds probes to a program without changing its makefiles: a wrapper replaces each compiler.
//!
//! ```text
//! Wrappers::make(folder, …)     for each compiler of PATH, and those that CC and CXX name by a path:
//!     compilers::find             which there are, and how each puts probes in
//!     folder/bin/gcc              a link to this command, which is first in PATH; called by this name it is a wrapper
//!     folder/compilers/bin/gcc    where the compiler lies, and its flags
//! the user's build
//!     wrapper::called             arguments::read → what the call does; call::answer → flags, a refusal, or neither
//!                                 journal → what was compiled and linked; the compiler takes the process over
//! Wrappers::built               the journal's entries of files that still exist
//! ```
//!
//! The wrapper is this command under another name, and not a script: it passes the words of a command line on
//! unchanged, whatever they contain; it reads the objects that are linked, to find those without probes; and nothing
//! else has to be installed. It finds its folder by the path with which it was executed, so a build may clear the
//! environment.
//!
//! The compiler proper gets the option for probes, and the compiler's driver does not (gcc by a specs file, clang by
//! `-Xclang`). So one call may compile and link without the sanitizer's library. If a later word overrides an earlier
//! one, words are only added, never removed.

mod arguments;
mod call;
mod compilers;
mod journal;
mod objects;
pub mod wrapper;
mod wrappers;

pub use journal::Built;
pub use wrappers::Wrappers;
