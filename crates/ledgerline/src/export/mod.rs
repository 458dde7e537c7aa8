//! What a ledger says, for programs that collect such things: metrics, and events of limits that were met.
//!
//! | to                                                          | use                                    |
//! |-------------------------------------------------------------|----------------------------------------|
//! | set gauges and counters of the `metrics` facade (a feature) | [`Metrics`](self::metrics::Metrics)    |
//! | emit events of limits for `tracing` (a feature)             | [`LimitEvents`](self::events::LimitEvents) |
//!
//! Nothing happens by itself: there is no thread, and no charge does more than it does without. The program calls, at an
//! interval of its own or when a [`Watch`](crate::Watch) wakes it, and what was counted since the call before is said
//! then. So recorders and subscribers are called from where the program calls, never from within a charge, an
//! allocation, a lock of the ledger or a signal handler, and may allocate and charge themselves.

#[cfg(feature = "tracing-events")]
pub mod events;
#[cfg(feature = "metrics")]
pub mod metrics;
