//! The public face as a program has it that depends on the library alone.
//!
//! The tests share this process. Each has a ledger of its own; those that need a second process, a limit of the process's
//! own, or an environment start this program again.

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
