//! Exports for programs that collect metrics and limit events.
//!
//! | to                                                          | use                                    |
//! |-------------------------------------------------------------|----------------------------------------|
//! | set gauges and counters of the `metrics` facade (a feature) | [`Metrics`](self::metrics::Metrics)    |
//! | emit events of limits for `tracing` (a feature)             | [`LimitEvents`](self::events::LimitEvents) |
//!
//! Nothing happens by itself: there is no thread, and no charge does more work. The program calls, at an interval of its own
//! or when a [`Watch`](crate::Watch) wakes it, and that call reports the counts since the previous one. So recorders and
//! subscribers run where the program calls, never inside a charge, an allocation, a lock of the ledger or a signal handler.
//! They may allocate and charge themselves.

#[cfg(feature = "tracing-events")]
pub mod events;
#[cfg(feature = "metrics")]
pub mod metrics;
