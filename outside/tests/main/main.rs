//! The public API from the view of a program that depends on the library alone.
//!
//! The tests share this process. Each has a ledger of its own. Tests that need a second process, a limit of the
//! process's own or an environment start this program again.

mod audit;
mod ceilings;
mod container;
mod control;
mod current;
mod groups;
mod limits;
mod protection;
mod readers;
mod readme;
mod steer;
mod watch;
