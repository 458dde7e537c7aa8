//! Memory cgroups inside your process: hierarchical limits and live statistics for queries,
//! tenants, tasks, threads and processes, at about a nanosecond an update, without root.
//!
//! A [`Ledger`] is a table: a row for each [`Group`] of a tree, a column for each CPU, and a total
//! with limits. A charge takes prepaid units from the running CPU's cell; once a batch it asks the
//! totals, from the root down, whether the limits allow more.
//!
//! ```
//! use ledgerline::Ledger;
//!
//! let ledger = Ledger::new()?;
//! let tenant = ledger.root().create("acme")?;
//! tenant.set_max("512M".parse()?)?;
//!
//! let query = tenant.create("q42")?;
//! let buffer = query.try_charge(3 << 20)?; // returned when `buffer` drops
//! assert_eq!(tenant.precise(), 3 << 20);
//! # drop(buffer);
//! # query.destroy()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | to                                   | call                                         | cost         |
//! |--------------------------------------|----------------------------------------------|--------------|
//! | charge, and return when dropped      | [`Group::try_charge`]                        | about 1 ns   |
//! | charge in an allocator               | [`Group::try_charge_units`]                  | about 1 ns   |
//! | charge once what several groups use   | [`Charge::share`]                            | a lock       |
//! | read within a bound                  | [`Group::approximate`]                       | a few loads  |
//! | read exactly                         | [`Group::precise`]                           | stocked cells|
//! | read everything                      | [`Ledger::snapshot`]                         | rows in use  |
//! | find what destroyed groups still hold | [`Ledger::leaks`]                      | rows in use  |
//! | ask who fills a group                | [`Ledger::diagnose`], [`Group::diagnose`]    | rows in use  |
//! | wait for room                        | [`Group::try_charge_wait`]                   | a sleep      |
//! | be asked before a charge is refused  | [`Group::add_reclaimer`]                     |              |
//! | count and read what groups did       | [`Group::add_stat`], [`Group::stat`]         | 1 ns; what changed |
//! | hear of limits that were met         | [`Group::watch`]                             |              |
//! | count without a ledger               | [`stat`]                                     | under 1 ns   |
//! | share a ledger with other processes  | [`LedgerBuilder::create_in`], [`Ledger::open_in`] |         |
//!
//! What always holds (I1 to I7) and which test guards it is in ARCHITECTURE.md.

#![cfg_attr(loom, allow(dead_code, reason = "the models need the protocols alone"))]

#[cfg(not(loom))]
mod alarm;
mod bell;
#[cfg(not(loom))]
mod census;
#[cfg(not(loom))]
mod charge;
#[cfg(not(loom))]
mod diagnosis;
#[cfg(not(loom))]
mod diagnosis_print;
#[cfg(not(loom))]
mod drain;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
mod events;
mod free_list;
mod gate;
#[cfg(not(loom))]
mod group;
#[cfg(not(loom))]
mod item_names;
#[cfg(not(loom))]
mod leak;
#[cfg(not(loom))]
mod ledger;
#[cfg(not(loom))]
mod lock;
#[cfg(not(loom))]
mod memory_stat;
#[cfg(not(loom))]
mod mode;
#[cfg(all(loom, test))]
mod models;
mod page_counter;
#[cfg(not(loom))]
mod path;
pub mod percpu;
#[cfg(not(loom))]
mod prepaid;
#[cfg(not(loom))]
mod pressure;
#[cfg(not(loom))]
mod process;
#[cfg(not(loom))]
mod protection;
#[cfg(not(loom))]
mod read;
#[cfg(not(loom))]
mod region;
#[cfg(not(loom))]
mod request;
#[cfg(not(loom))]
mod row;
#[cfg(not(loom))]
mod row_set;
#[cfg(not(loom))]
mod shared;
#[cfg(not(loom))]
pub mod size;
#[cfg(not(loom))]
mod snapshot;
#[cfg(not(loom))]
pub mod stat;
#[cfg(not(loom))]
mod stock;
mod sync;
#[cfg(not(loom))]
mod table;
#[cfg(not(loom))]
mod throttle;
#[cfg(not(loom))]
mod token;
#[cfg(not(loom))]
mod transfer;
mod transfers;
#[cfg(not(loom))]
mod victim;
#[cfg(not(loom))]
mod wait;
mod walk;

#[cfg(not(loom))]
pub use charge::Charge;
#[cfg(not(loom))]
pub use diagnosis::{CONSUMERS, ChainLevel, Consumer, Diagnosis};
#[cfg(not(loom))]
pub use error::{Busy, CreateError, DestroyError, OpenError, Reason, Refusal, Refused};
#[cfg(not(loom))]
pub use events::{Changed, Events, WATCHES_MAX, Watch};
#[cfg(not(loom))]
pub use group::{Group, Settled};
#[cfg(not(loom))]
pub use item_names::{ITEM_NAME_MAX, ITEMS_MAX};
#[cfg(not(loom))]
pub use leak::Leak;
#[cfg(not(loom))]
pub use ledger::{Footprint, Ledger, LedgerBuilder, Mistakes};
#[cfg(not(loom))]
pub use memory_stat::{MemoryStat, StatLine};
#[cfg(not(loom))]
pub use mode::ControlMode;
#[cfg(not(loom))]
pub use prepaid::Prepaid;
#[cfg(not(loom))]
pub use pressure::{ReclaimReport, Reclaimer};
#[cfg(not(loom))]
pub use protection::{Protection, Unclaimed};
#[cfg(not(loom))]
pub use read::Estimate;
#[cfg(not(loom))]
pub use request::{Request, Requested};
#[cfg(not(loom))]
pub use row::{GroupId, NAME_MAX};
#[cfg(not(loom))]
pub use shared::SharedCharge;
#[cfg(not(loom))]
pub use size::Limit;
#[cfg(not(loom))]
pub use snapshot::{GroupSnapshot, GroupState, Snapshot};
#[cfg(not(loom))]
pub use throttle::Backoff;
#[cfg(not(loom))]
pub use token::{CancelToken, Cancelled, Killed};
#[cfg(not(loom))]
pub use victim::Victim;
