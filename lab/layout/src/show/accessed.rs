//! The rates at which CPUs touch the bits of a type, to be printed beside the type's fields.

use std::collections::HashMap;

use serde::Serialize;

use crate::model::TypeId;

/// An access to some bits of a type.
#[derive(Clone, Debug, PartialEq)]
pub struct Access {
    /// The first bit, counted from the start of the type.
    pub start: u64,
    /// The number of bits.
    pub bits: u64,
    /// The role of the CPUs that do it; empty if all CPUs do the same.
    pub who: String,
    /// Reads of the bits in an operation of these CPUs.
    pub reads: f64,
    /// Writes of the bits in such an operation.
    pub writes: f64,
    /// The share of all CPUs that have the role, from 0 to 1.
    pub share: f64,
}

/// The accesses to the fields of types.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Accessed {
    types: HashMap<TypeId, Touched>,
}

/// The accesses to the fields of one type.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Touched {
    /// The accesses, in the order of their first bits.
    accesses: Vec<Access>,
    /// The number of bits of the widest access.
    longest: u64,
    /// The reads and writes of the hottest field, averaged over all CPUs.
    most: f64,
}

/// The rates of a field.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Rates<'a> {
    /// Reads in an operation, averaged over all CPUs.
    pub reads: f64,
    /// Writes in an operation, averaged over all CPUs.
    pub writes: f64,
    /// The rates of each role; empty if roles are not distinguished.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by: Vec<By<'a>>,
}

/// The reads and writes of a field in an operation of a role's CPUs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct By<'a> {
    who: &'a str,
    reads: f64,
    writes: f64,
}

impl Accessed {
    /// Adds the accesses to a record.
    pub fn add(&mut self, id: TypeId, accesses: Vec<Access>) {
        let touched = self.types.entry(id).or_default();
        touched.accesses.extend(accesses);
        touched.accesses.sort_by_key(|access| access.start);
        touched.longest = touched.accesses.iter().map(|access| access.bits).max().unwrap_or(0);
        let rate = |access: &Access| {
            let rates = touched.of(access.start, access.bits);
            rates.reads + rates.writes
        };
        touched.most = touched.accesses.iter().map(rate).fold(0.0, f64::max);
    }

    pub(super) fn of(&self, id: TypeId) -> Option<&Touched> {
        self.types.get(&id)
    }
}

impl Touched {
    /// Returns the accesses that share a bit with some bits, in the order of their first bits.
    fn within(&self, start: u64, bits: u64) -> impl Iterator<Item = &Access> {
        let from = start.saturating_sub(self.longest);
        let first = self.accesses.partition_point(|access| access.start < from);
        let end = start.saturating_add(bits);
        self.accesses[first..]
            .iter()
            .take_while(move |access| access.start < end)
            .filter(move |access| access.start.saturating_add(access.bits) > start)
    }

    /// Returns the rates of some bits.
    pub fn of(&self, start: u64, bits: u64) -> Rates<'_> {
        let mut rates = Rates::default();
        for access in self.within(start, bits) {
            rates.reads += access.share * access.reads;
            rates.writes += access.share * access.writes;
            if access.who.is_empty() {
                continue;
            }
            match rates.by.iter_mut().find(|by| by.who == access.who) {
                Some(by) => {
                    by.reads += access.reads;
                    by.writes += access.writes;
                }
                None => {
                    let Access { who, reads, writes, .. } = access;
                    rates.by.push(By { who, reads: *reads, writes: *writes });
                }
            }
        }
        rates.by.sort_by_key(|by| by.who);
        rates
    }

    /// Returns the heat of some bits relative to the hottest field of the type, from 0 to 1.
    pub fn heat(&self, rates: &Rates<'_>) -> f64 {
        if self.most > 0.0 { ((rates.reads + rates.writes) / self.most).min(1.0) } else { 0.0 }
    }

    /// Returns the first and the last bit of each access.
    pub fn spans(&self) -> impl Iterator<Item = (u64, u64)> {
        let touched = |access: &&Access| access.bits > 0;
        self.accesses
            .iter()
            .filter(touched)
            .map(|access| (access.start, access.start.saturating_add(access.bits - 1)))
    }
}

impl Rates<'_> {
    /// Returns whether no access touches the field.
    pub fn none(&self) -> bool {
        self.reads == 0.0 && self.writes == 0.0
    }

    /// Returns the accesses of each role, in a few letters: `rx r, tx rw`.
    pub fn who(&self) -> String {
        let does = |by: &By| {
            let letters = match (by.reads > 0.0, by.writes > 0.0) {
                (true, true) => "rw",
                (false, true) => "w",
                _ => "r",
            };
            format!("{} {letters}", by.who)
        };
        self.by.iter().map(does).collect::<Vec<_>>().join(", ")
    }
}

/// Returns a rate in a few digits: `1`, `0.0156`, `12.5`, `1.56e-7`; `-` for zero.
pub(super) fn rate(rate: f64) -> String {
    if rate == 0.0 {
        return "-".to_owned();
    }
    if !(1e-4..1e6).contains(&rate) {
        return format!("{rate:.2e}");
    }
    // Three significant digits, and no zeros after them.
    let digits = (2 - rate.log10().floor() as i64).max(0) as usize;
    without_zeros(format!("{rate:.digits$}"))
}

/// Returns a number without trailing zeros behind its point.
pub fn without_zeros(number: String) -> String {
    if !number.contains('.') {
        return number;
    }
    number.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_three_digits_that_count() {
        let cases = [
            (0.0, "-"),
            (1.0, "1"),
            (0.015625, "0.0156"),
            (12.5, "12.5"),
            (1234.5, "1234"),
            (0.1, "0.1"),
            (2.0 / 3.0, "0.667"),
            (1.5625e-7, "1.56e-7"),
            (1e9, "1.00e9"),
        ];
        for (number, wanted) in cases {
            assert_eq!(rate(number), wanted);
        }
    }

    #[test]
    fn fields_have_what_touches_any_bit_of_them() {
        let access = |start, bits, who: &str, reads, writes| Access {
            start,
            bits,
            who: who.to_owned(),
            reads,
            writes,
            share: 0.5,
        };
        let mut accessed = Accessed::default();
        accessed.add(
            TypeId(7),
            vec![
                access(64, 64, "rx", 1.0, 0.0),
                access(0, 512, "rx", 0.0, 4.0),
                access(64, 64, "tx", 2.0, 2.0),
                access(128, 1, "tx", 1.0, 0.0),
            ],
        );
        let touched = accessed.of(TypeId(7)).unwrap();
        let word = touched.of(64, 64);
        assert_eq!((word.reads, word.writes), (1.5, 3.0));
        assert_eq!(word.who(), "rx rw, tx rw");
        assert_eq!(touched.of(129, 8).who(), "rx w");
        assert_eq!(touched.of(128, 1).who(), "rx w, tx r");
        assert!(touched.of(512, 64).none());
        assert_eq!(touched.heat(&touched.of(0, 512)), 1.0);
        assert!(touched.heat(&word) < 1.0);
        assert_eq!(accessed.of(TypeId(8)), None);
    }
}
