//! How a program gets its probes while its makefiles stay as they are: a wrapper stands in each compiler's place.
//!
//! ```text
//! Wrappers::make(folder, …)     for each compiler of PATH, and those that CC and CXX name by a path:
//!     compilers::find             which there are, and how each puts probes in
//!     folder/bin/gcc              a link to this command, which is first in PATH; called by this name it is a wrapper
//!     folder/compilers/bin/gcc    where the compiler lies, and its flags
//! the user's build
//!     wrapper::called             arguments::read → what the call does; call::answer → flags, a refusal, or neither
//!                                 journal → what was compiled and linked; the compiler takes the process over
//! Wrappers::built               what the journal says of files that are still there
//! ```
//!
//! The wrapper is this command under another name, and not a script: words of a command line pass it untouched,
//! whatever they hold; it reads the objects that are linked, to find those without probes; and nothing has to be
//! installed beside it. It knows its folder by the path that it was executed by, so a build may clear the environment.
//!
//! The compiler proper is told of the probes, and the compiler's driver is not (gcc by a specs file, clang by
//! `-Xclang`). So one call may compile and link, and no sanitizer's library comes in. Words are added and not taken
//! away, wherever a later one wins.

mod arguments;
mod call;
mod compilers;
mod journal;
mod objects;
pub mod wrapper;
mod wrappers;

pub use journal::Built;
pub use wrappers::Wrappers;
