//! Finds units that destroyed groups still hold, and prints a sentence for each group.

use crate::ledger::Ledger;
use crate::report::estimate::Estimate;
use crate::report::scan::Scan;
use crate::size;
use crate::table::follow;
use crate::table::id::GroupId;
use crate::whose;
use std::fmt;

/// A destroyed group with charges that were not returned: they were forgotten, or will still be returned.
///
/// Units of destroyed children are not included: each of these groups has its own leak.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leak {
    /// The group's number.
    pub group: GroupId,
    /// The path that it had.
    pub path: String,
    /// Units that it still holds itself; never zero.
    pub units: u64,
    /// How many charges hold them, according to the counts. Units without a guard that are returned in parts count each
    /// part, and charges of zero units count like others.
    pub charges: u64,
    /// The group's highest usage: see [`Group::peak`](crate::Group::peak).
    pub peak: Estimate,
    /// The path of its nearest ancestor that was not destroyed. The units stay charged to that ancestor.
    pub parent: String,
}

impl fmt::Display for Leak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (charges, all, they_stay, they_are) = match self.charges {
            0 => (String::new(), "", "they stay", "they are"),
            1 => ("1 charge of ".into(), "", "it stays", "it is"),
            charges => (format!("{charges} charges of "), " in all", "they stay", "they are"),
        };
        let Leak { path, parent, .. } = self;
        let (units, peak) = (size::format(self.units), size::format(self.peak.value));
        write!(
            f,
            "{path} was destroyed with {charges}{units}{all} still held (peak {peak}); {they_stay} charged to {parent} \
             until {they_are} returned"
        )
    }
}

impl Ledger {
    /// Returns every destroyed group that still holds units, in the order of rows. Costs a pass over the rows in use. A group
    /// that changes meanwhile may be reported with the units that it held a moment before.
    pub fn leaks(&self) -> Vec<Leak> {
        whose::nobody(|| self.leaks_where(|_| true))
    }

    pub(crate) fn leaks_where(&self, wanted: impl Fn(GroupId) -> bool) -> Vec<Leak> {
        let scan = Scan::of(self.table());
        let lines = &scan.lines;
        let destroyed = || lines.iter().enumerate().filter(|(_, line)| line.is_destroyed());
        // A destroyed row excludes the units of its children, which were destroyed before it.
        let mut below = vec![0u64; lines.len()];
        for (_, line) in destroyed() {
            let sum = &mut below[line.parent as usize];
            *sum = sum.saturating_add(line.usage);
        }
        let mut leaks = Vec::new();
        for (index, line) in destroyed() {
            let id = GroupId::from_parts(index as u32, line.generation);
            let units = line.usage.saturating_sub(below[index]);
            if units == 0 || !wanted(id) {
                continue;
            }
            let mut parent = line.parent;
            while lines[parent as usize].is_destroyed() {
                parent = lines[parent as usize].parent;
            }
            let kept_by = GroupId::from_parts(parent, lines[parent as usize].generation);
            // If the last unit was returned meanwhile, the row may belong to another group by now.
            leaks.extend(follow::read_held(self.table(), id, |row| Leak {
                group: id,
                path: follow::path_of(self.table(), id),
                units,
                charges: line.charges.saturating_sub(line.uncharges),
                peak: Estimate::between(row.counter.peak()),
                parent: follow::path_of(self.table(), kept_by),
            }));
        }
        leaks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leak_is_a_sentence() {
        let mut leak = Leak {
            group: GroupId::from_parts(3, 1),
            path: "/acme/q1".into(),
            units: 48 << 10,
            charges: 3,
            peak: Estimate { value: (12 << 20) / 10, bound: 1 << 10 },
            parent: "/acme".into(),
        };
        assert_eq!(
            leak.to_string(),
            "/acme/q1 was destroyed with 3 charges of 48.0K in all still held (peak 1.2M); they stay \
             charged to /acme until they are returned"
        );
        leak.charges = 1;
        assert_eq!(
            leak.to_string(),
            "/acme/q1 was destroyed with 1 charge of 48.0K still held (peak 1.2M); it stays charged \
             to /acme until it is returned"
        );
        leak.charges = 0;
        assert_eq!(
            leak.to_string(),
            "/acme/q1 was destroyed with 48.0K still held (peak 1.2M); they stay charged to /acme \
             until they are returned"
        );
    }
}
