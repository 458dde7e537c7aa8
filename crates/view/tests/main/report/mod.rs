//! Recordings and their presentations.

mod browser;
mod fuzz;
mod killed;
mod support;
