//! Replays a profile of accesses on real CPUs: what a layout costs here, on today's order and on a proposed one.
//!
//! ```text
//! acts     the steps that the simulation would run, as a flat list with bytes of an object
//! play     does lists on real memory, by threads that race for it
//! tune     makes an operation alone take what the profile says, whatever reading the list takes
//! stage    objects in memory, threads on CPUs, rounds in turn
//! against  a proposed order, as people and programs write one
//! report   measured beside predicted, as text and as JSON
//! ```
//!
//! So advice is checked in seconds, and nobody has changed the program yet. What is replayed is what is simulated
//! (`ledgerline_advise::cost::script`): both answer the same question.
//!
//! ```no_run
//! use ledgerline_advise::cost::Place;
//! use ledgerline_advise::trial::{Order, Plan, measure};
//! # fn uses() -> ledgerline_advise::uses::Uses { unreachable!() }
//! let uses = uses();
//! let today = Order { size: 24, place: Place::of(&uses) };
//! let cpus = ledgerline_bench::measure::machine::allowed_cpus().unwrap();
//! let plan = Plan { uses: &uses, today: &today, proposed: None, cpus: &cpus, seconds: 0.5 };
//! let measured = measure(&plan, &|_| ()).unwrap();
//! println!("{:.1} ns an operation", measured.today.median);
//! ```

mod acts;
pub mod against;
mod play;
pub mod report;
mod stage;
mod tune;

pub use stage::{Gain, Measured, Order, Plan, Short, measure};
