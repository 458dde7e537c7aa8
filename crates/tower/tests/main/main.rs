//! The layer around servers, with real clients. The global allocator accounts, so each test has its own ledger and
//! looks only at its own groups.

use ledgerline::Alloc;

#[global_allocator]
static ALLOC: Alloc = Alloc::system();

#[cfg(feature = "axum")]
mod by_hand;
mod connections;
mod grpc;
mod requests;
mod support;
mod uploads;
