//! What tests of books and stores share.

#[cfg(feature = "tls")]
pub mod certificates;
pub mod check;
pub mod line;
pub mod said;
pub mod server;
pub mod world;
