//! Statistics: sums and counters that many CPUs write and few readers read.

pub mod print;
pub mod rss;
pub mod tree;
