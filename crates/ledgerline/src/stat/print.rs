//! Printers in the kernel's own formats, for tools that read `/proc` and cgroup files.
//!
//! | file                           | what to print          | printed by         | a line is    |
//! |--------------------------------|------------------------|--------------------|--------------|
//! | `/proc/vmstat`, `node0/vmstat` | [`vmstat`]             | [`Flat`]           | `name value` |
//! | `node0/numastat`               | [`numastat`]           | [`Flat`]           | `name value` |
//! | cgroup v2 `memory.stat`        | [`Stat::bytes`] and so | [`Flat`]           | `name value` |
//! | `/proc/zoneinfo`               | [`zoneinfo`]           | [`Zone`]           | see there    |
//!
//! The printers take owned names and values and do not depend on counters; the functions above make
//! these from [snapshots](super::CountersSnapshot). All printers implement
//! [`Display`](std::fmt::Display), so they print into any [`fmt::Write`], and allocate nothing.

mod flat;
#[cfg(test)]
mod parse;
mod tables;
#[cfg(test)]
mod tests;
mod zone;

pub use flat::Flat;
pub use tables::{numastat, vmstat, zoneinfo};
pub use zone::{Pageset, Zone};

use std::borrow::Cow;
use std::fmt::{self, Write};

/// A name and a value, as read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The name, one word. White space and control characters in it are printed as `_`, so that the line
    /// format holds.
    pub name: Cow<'static, str>,
    /// The value.
    pub value: u64,
}

impl Stat {
    /// Makes a stat from a value.
    pub fn new(name: impl Into<Cow<'static, str>>, value: u64) -> Stat {
        Stat { name: name.into(), value }
    }

    /// Makes a stat from a reading that may be below zero for a moment. Like the kernel, it shows zero
    /// then.
    pub fn clamped(name: impl Into<Cow<'static, str>>, value: i64) -> Stat {
        Stat::new(name, u64::try_from(value).unwrap_or(0))
    }

    /// Makes a stat in bytes from a number of units of `unit` bytes each, such as pages. Clamped at zero
    /// and at `u64::MAX`.
    pub fn bytes(name: impl Into<Cow<'static, str>>, units: i64, unit: u64) -> Stat {
        Stat::new(name, u64::try_from(units).unwrap_or(0).saturating_mul(unit))
    }
}

/// A name as printed: one word, whatever it contains, padded to a width like the kernel's `%-12s`.
struct Word<'a>(&'a str, usize);

impl fmt::Display for Word<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Word(name, width) = *self;
        let mut length = 0;
        for c in name.chars() {
            f.write_char(if c.is_whitespace() || c.is_control() { '_' } else { c })?;
            length += 1;
        }
        (length..width).try_for_each(|_| f.write_char(' '))
    }
}
