//! The cost of the layout of a hot structure on many CPUs.
//!
//! A [`layout`] puts fields on lines, a [`program`] lists the steps that a CPU repeats, a [`machine`] gives the time
//! that lines take to move, and [`simulate`] plays it, event by event.
//!
//! ```
//! use ledgerline_coherence::layout::{Layout, Scope};
//! use ledgerline_coherence::machine::Machine;
//! use ledgerline_coherence::program::{Program, Step};
//! use ledgerline_coherence::simulate::Setup;
//!
//! // Seventy-two CPUs read a limit that lies beside, or apart from, a counter they all add to.
//! let cost = |offset| {
//!     let mut layout = Layout::new();
//!     let object = layout.object("counter", Scope::Machine);
//!     let usage = layout.field(object, "usage", 0);
//!     let limit = layout.field(object, "limit", offset);
//!     let steps = [Step::compute(3000.0), Step::load(limit), Step::every(32, [Step::rmw(usage)])];
//!     let machine = Machine::built_in("haswell-ep-2699v3").unwrap();
//!     let setup = Setup::uniform(machine.best(), layout, Program::new("charge", steps), 72);
//!     setup.run().unwrap().nanoseconds()
//! };
//! assert!(cost(8) > 1.05 * cost(128));
//! ```

#![deny(unsafe_code)]

pub mod analytic;
#[cfg(test)]
#[path = "../../../tests/support/cases.rs"]
mod cases;
mod code;
pub mod experiments;
pub mod layout;
pub mod machine;
pub mod program;
pub mod published;
mod random;
#[cfg(test)]
#[path = "../../../tests/support/seed.rs"]
mod seed;
pub mod simulate;
mod text_file;

pub use code::BadProgram;
pub use text_file::BadFile;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
