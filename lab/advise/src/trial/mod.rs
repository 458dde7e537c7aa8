//! Replays a profile of accesses on real CPUs, to measure today's order and a proposed one.
//!
//! ```text
//! acts     the steps of the simulation, as a flat list with bytes of an object
//! play     executes lists on real memory, with threads that race for it
//! tune     makes an operation alone take the time of the profile, in spite of the time to read the list
//! stage    objects in memory, threads on CPUs, rounds in turn
//! against  reads a proposed order
//! report   measured beside predicted, as text and as JSON
//! ```
//!
//! So advice is checked in seconds, before the program is changed. The replay runs the script of the simulation
//! (`ledgerline_advise::cost::script`), so both answer the same question.
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
