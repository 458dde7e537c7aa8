//! What tests of books and stores share.
#![allow(dead_code, reason = "each test uses a part")]

pub mod check;
pub mod line;
pub mod said;
pub mod server;
pub mod world;
