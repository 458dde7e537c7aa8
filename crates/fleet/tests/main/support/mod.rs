//! Helpers of tests of books and stores.

#[cfg(feature = "tls")]
pub mod certificates;
pub mod check;
pub mod line;
pub mod said;
pub mod server;
pub mod world;
