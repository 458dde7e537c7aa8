//! Recordings and what is made of them.

mod browser;
mod fuzz;
mod killed;
mod support;
