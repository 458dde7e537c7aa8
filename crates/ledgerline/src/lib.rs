//! Memory cgroups inside your process: hierarchical limits and live statistics for queries,
//! tenants, tasks, threads and processes, at one to five nanoseconds an update, without root.
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
//! # Three ways to charge
//!
//! | call                  | at a limit                                                   | costs                |
//! |-----------------------|--------------------------------------------------------------|----------------------|
//! | [`Group::try_charge`] | asks the reclaimers, then refuses and names the full group   | 1 to 5 ns with its drop |
//! | [`Group::charge`]     | goes over it and counts that, for charges that must not fail | the same             |
//! | [`Group::request`]    | waits, in a thread or a task; cancels victims; is slowed down above `high` | the same, and its wait |
//!
//! Each returns a [`Charge`], which gives the units back when it drops, on any thread. Charging and dropping a guard takes
//! 1.1 ns on a virtual EPYC (Zen 5) and 4.5 ns on a virtual Xeon, both of 2026: `ledgerline bench charge`, case
//! `guard_depth3`. That is at most 1.2 × the cost of its units without a guard. This is the fast path, on which the CPU's
//! cell has the units: for charges of up to about a thirty-second of the group's usage, and while no request waits. A larger
//! charge, or one close to a limit, walks to the root, which takes a quarter of a microsecond.
//!
//! An allocator or a C interface cannot keep a guard: [`Group::try_charge_units`] and [`Group::charge_units`] charge without
//! one, [`Group::uncharge_units`] returns, [`Prepaid`] is the fast half of both, and [`Charge::into_units`] and
//! [`Charge::from_units`] turn a guard into units and back.
//! [`OwnedGroup`] is a handle without a lifetime.
//!
//! A Rust program need not charge by hand: as its global allocator, [`Alloc`] charges every allocation to the
//! [`current`] group ([`alloc`]). A runtime that lets others hook its allocator is charged block by block
//! ([`alloc::block`]).
//!
//! # What else there is
//!
//! | to                                    | call                                         | cost         |
//! |---------------------------------------|----------------------------------------------|--------------|
//! | read within a bound                   | [`Group::approximate`]                       | a few loads  |
//! | read exactly                          | [`Group::precise`]                           | stocked cells|
//! | read everything                       | [`Ledger::snapshot`]                         | rows in use  |
//! | find a group by its name              | [`Ledger::find`], [`Group::child`]           | a lock a level |
//! | list groups                           | [`Group::children`], [`Group::descendants`]  | rows in use  |
//! | end a group                           | [`Group::destroy`], [`Group::destroy_tree`], [`Group::destroy_on_drop`] | 0.2 µs a group |
//! | find what destroyed groups still hold | [`Ledger::leaks`]                            | rows in use  |
//! | ask which groups fill one             | [`Ledger::diagnose`], [`Group::diagnose`]    | rows in use  |
//! | be asked before a charge is refused   | [`Group::add_reclaimer`]                     |              |
//! | limit a runaway, whatever it holds    | [`Group::set_max_now`]                       | a drain      |
//! | follow the container's limit          | [`LedgerBuilder::container`]                 | two threads  |
//! | make caches give way now              | [`Group::reclaim`]                           |              |
//! | charge memory of several groups once  | [`Charge::share`]                            | a lock       |
//! | charge without passing a group        | [`current`]: the group of each thread, task, job or span | 0.4 ns a switch |
//! | count and read what groups did        | [`Group::add_stat`], [`Group::stat`]         | 1 ns; what changed |
//! | be notified of limits met or set      | [`Group::watch`]                             |              |
//! | list refused groups and amounts       | [`Ledger::note_refusals`], [`Group::take_refusals`] | a copy of a path |
//! | keep limits from other processes      | [`LedgerBuilder::steerable`]                 |              |
//! | find a wrong uncharge                 | [`LedgerBuilder::audit`]                     | 0.15 µs a pair |
//! | count without a ledger                | [`stat`]                                     | 1 to 2 ns    |
//! | share a ledger with other processes   | [`LedgerBuilder::create_in`], [`Ledger::open_in`] |         |
//!
//! ARCHITECTURE.md lists the invariants I1 to I7 and the tests that guard them; docs/races.md lists the races.

#![cfg_attr(feature = "unwind", feature(alloc_error_hook))]
#![cfg_attr(loom, allow(dead_code, reason = "the models need the protocols alone"))]

#[cfg(not(loom))]
pub mod alloc;
#[cfg(not(loom))]
mod announced;
#[cfg(test)]
#[path = "../../../tests/support/cases.rs"]
mod cases;
#[cfg(not(loom))]
mod charge;
#[cfg(not(loom))]
pub mod container;
#[cfg(not(loom))]
mod control;
mod counter;
#[cfg(not(loom))]
pub mod current;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
pub mod export;
mod gate;
#[cfg(not(loom))]
mod group;
#[cfg(not(loom))]
mod ledger;
#[cfg(not(loom))]
mod making;
#[cfg(all(loom, test))]
mod models;
mod os;
pub mod percpu;
mod region;
#[cfg(not(loom))]
mod report;
#[cfg(not(loom))]
mod scope;
#[cfg(test)]
#[path = "../../../tests/support/seed.rs"]
mod seed;
#[cfg(all(feature = "serde", not(loom)))]
mod serialize;
#[cfg(not(loom))]
pub mod size;
#[cfg(not(loom))]
pub mod stat;
#[cfg(not(loom))]
mod stock;
mod sync;
#[cfg(not(loom))]
mod table;
#[cfg(not(loom))]
mod tree;
mod wake;
#[cfg(not(loom))]
mod whose;

#[cfg(not(loom))]
pub use self::{
    alloc::Alloc,
    announced::{Announced, announced},
    charge::guard::Charge,
    charge::lease::Lease,
    charge::owned::{AsGroup, DestroyOnDrop, Kept, OwnedCharge, OwnedGroup},
    charge::prepaid::Prepaid,
    charge::request::Requested,
    charge::shared::SharedCharge,
    control::audit::report::AuditReport,
    control::audit::wrong::{AUDIT_REPORTS_MAX, Outstanding, SiteCount, WrongUncharge},
    control::events::{Changed, Events, WATCHES_MAX, Watch},
    control::mode::ControlMode,
    control::protection::{Protection, Unclaimed},
    control::reclaimers::{ReclaimReport, Reclaimer},
    control::refusals::{NotedRefusal, REFUSALS_NOTED},
    control::set_limits::SetMaxError,
    control::throttle::Backoff,
    control::token::{CancelToken, Cancelled, Killed},
    control::victim::Victim,
    control::wait::Request,
    control::watchdog::HungReclaimer,
    current::warm_up,
    error::{CreateError, DestroyError, OpenError, Refused, RefusedCharge},
    gate::forked,
    group::Group,
    ledger::{Footprint, Ledger, Mistakes},
    making::builder::LedgerBuilder,
    making::view::{Reading, View},
    region::shadow,
    report::diagnosis::{CONSUMERS, ChainLevel, Consumer, Diagnosis},
    report::estimate::Estimate,
    report::leak::Leak,
    report::memory_stat::{MemoryStat, StatLine},
    report::peak::PeakReader,
    report::settled::Settled,
    report::snapshot::{GroupSnapshot, GroupState, Snapshot},
    report::statistics::Statistics,
    size::Limit,
    stock::refusal::{Reason, Refusal},
    table::id::GroupId,
    table::items::{ITEM_NAME_MAX, ITEMS_MAX, StatItem},
    table::name::NAME_MAX,
    table::name::{self, NameError},
};
pub use region::sparse;
