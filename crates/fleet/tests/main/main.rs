//! Tests of books, their stores, and nodes that join: in memory, on real servers, in a simulated world.
//!
//! The tests share this process. Each has its own servers and folders, and a port that no other test here uses.

mod address;
mod book;
#[path = "../../../../tests/support/cases.rs"]
mod cases;
mod etcd;
mod etcd_many;
mod fairness;
mod fleet;
mod levels;
mod messages;
mod model;
mod nonsense;
mod outcomes;
mod processes;
mod redis;
mod redis_bad_days;
mod redis_cost;
mod redis_many;
#[path = "../../../../tests/support/seed.rs"]
mod seed;
mod simulation;
mod support;
#[cfg(feature = "tls")]
mod tls;
