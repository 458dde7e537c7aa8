//! `ledgerline serve`, asked by HTTP.

mod api;
mod http;
mod support;
