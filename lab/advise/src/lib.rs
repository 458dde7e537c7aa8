//! What a type's layout costs the program that uses it, and what order would cost less.
//!
//! A [`profile`] says who reads and writes which field how often. Types come from `ledgerline_layout`,
//! the price of moving lines from `ledgerline_coherence`; here the three meet.

#![deny(unsafe_code)]

pub mod advice;
pub mod cost;
pub mod heat;
mod order;
pub mod pieces;
pub mod print;
pub mod profile;
mod proxy;
pub mod ranking;
mod reason;
mod search;
pub mod uses;
