//! Serializes limits and ids (feature `serde`). Snapshots, events and statistics are derived.
//!
//! A limit is a number of units, and `Limit::MAX` is none (`null` in JSON). Human-readable formats also accept text: `512M` or
//! `max`. An id is its text, `3#2`.

use crate::size::Limit;
use crate::table::id::GroupId;
use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};
use serde::ser::{Serialize, Serializer};
use std::fmt;

impl Serialize for Limit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.get().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Limit, D::Error> {
        if deserializer.is_human_readable() {
            deserializer.deserialize_any(Read)
        } else {
            deserializer.deserialize_option(Read)
        }
    }
}

/// The visitor that reads a limit.
struct Read;

impl<'de> Visitor<'de> for Read {
    type Value = Limit;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of units, a size like \"512M\", or \"max\"")
    }

    fn visit_u64<E: Error>(self, units: u64) -> Result<Limit, E> {
        Ok(Limit::units(units))
    }

    fn visit_i64<E: Error>(self, units: i64) -> Result<Limit, E> {
        let number = u64::try_from(units).map(Limit::units);
        number.map_err(|_| E::invalid_value(Unexpected::Signed(units), &self))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Limit, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_none<E: Error>(self) -> Result<Limit, E> {
        Ok(Limit::MAX)
    }

    fn visit_unit<E: Error>(self) -> Result<Limit, E> {
        Ok(Limit::MAX)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Limit, D::Error> {
        u64::deserialize(deserializer).map(Limit::units)
    }
}

impl Serialize for GroupId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
