//! The pool in real use: beside DataFusion's own pools, under load, by real SQL, on a budget of a fleet.

#[cfg(feature = "fleet")]
mod fleet;
mod life;
mod oracle;
mod peers;
mod queries;
#[path = "../../../../tests/support/seed.rs"]
mod seed;
mod support;
