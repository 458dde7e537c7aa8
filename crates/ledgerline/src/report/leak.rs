//! What destroyed groups still hold, in a sentence for each.

use crate::group::Settled;
use crate::ledger::Ledger;
use crate::report::read::Estimate;
use crate::size;
use crate::table::row::GroupId;
use std::fmt;

/// A destroyed group with charges that nobody has returned: forgotten, or still on their way back.
///
/// What the groups below it hold that were destroyed before it is theirs: each has a leak of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leak {
    /// The group's number.
    pub group: GroupId,
    /// The path that it had.
    pub path: String,
    /// Units that it still holds itself; never zero.
    pub units: u64,
    /// Charges that hold them, as far as counts tell: what is returned in parts by hand counts each part,
    /// and charges of nothing count like others.
    pub charges: u64,
    /// The group's highest usage: see [`Group::peak`](crate::Group::peak).
    pub peak: Estimate,
    /// Path of its nearest ancestor that was not destroyed, to which the units stay charged.
    pub parent: String,
}

impl fmt::Display for Leak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} was destroyed with ", self.path)?;
        match self.charges {
            0 => {}
            1 => write!(f, "1 charge of ")?,
            charges => write!(f, "{charges} charges of ")?,
        }
        let (units, peak) = (size::format(self.units), size::format(self.peak.value));
        let all = if self.charges > 1 { " in all" } else { "" };
        let they = match self.charges {
            1 => "it stays charged to",
            _ => "they stay charged to",
        };
        let are = if self.charges == 1 { "it is" } else { "they are" };
        write!(
            f,
            "{units}{all} still held (peak {peak}); {they} {} until {are} returned",
            self.parent
        )
    }
}

impl fmt::Debug for Settled<'_> {
    /// With the group's number: a group that was destroyed has no path.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settled")
            .field("group", &self.group.id())
            .field("leftover", &self.leftover)
            .field("idle", &self.idle)
            .field("peak", &self.peak)
            .field("charges", &self.charges)
            .field("uncharges", &self.uncharges)
            .finish()
    }
}

impl fmt::Display for Settled<'_> {
    /// A sentence for a log: what was left, how many charges there were, how high it went.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "group {} ended with ", self.group.id())?;
        match self.leftover {
            0 => f.write_str("nothing left to return")?,
            units => write!(f, "{} still charged", size::format(units))?,
        }
        let charges = if self.charges == 1 { "charge" } else { "charges" };
        write!(f, " ({} {charges}, peak {})", self.charges, self.peak)
    }
}

impl Settled<'_> {
    /// What the group's own charges hold by now; `None` once all of it was returned. Costs a pass over
    /// the rows in use.
    ///
    /// ```
    /// # let ledger = ledgerline::Ledger::new()?;
    /// let tenant = ledger.root().create("acme")?;
    /// let query = tenant.create("q1")?;
    /// let forgotten = query.try_charge(48 << 10)?;
    ///
    /// let settled = query.destroy()?;
    /// let leak = settled.leak().expect("a charge is still held");
    /// assert_eq!((leak.units, leak.charges, &*leak.parent), (48 << 10, 1, "/acme"));
    ///
    /// drop(forgotten);
    /// assert_eq!(settled.leak(), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn leak(&self) -> Option<Leak> {
        if self.leftover == 0 {
            return None;
        }
        self.group.ledger().leaks_where(|id| id == self.group.id()).pop()
    }
}

impl Ledger {
    /// Every destroyed group that still holds something, the oldest rows first. Costs a pass over the
    /// rows in use. A group that changes meanwhile may be reported with what it held a moment before.
    pub fn leaks(&self) -> Vec<Leak> {
        self.leaks_where(|_| true)
    }

    fn leaks_where(&self, wanted: impl Fn(GroupId) -> bool) -> Vec<Leak> {
        let scan = self.scan();
        let lines = &scan.lines;
        let destroyed = || lines.iter().enumerate().filter(|(_, line)| line.is_destroyed());
        // What a destroyed row's children hold is not its own: they were destroyed before it.
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
            // If the last unit was returned meanwhile, the row may be another group's by now.
            leaks.extend(self.read_held(id, |row| Leak {
                group: id,
                path: self.path_of(id),
                units,
                charges: line.charges.saturating_sub(line.uncharges),
                peak: Estimate::between(row.counter.peak()),
                parent: self.path_of(kept_by),
            }));
        }
        leaks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_settled_is_a_sentence() {
        let ledger = Ledger::new().unwrap();
        let group = ledger.root().create("q1").unwrap();
        let forgotten = group.try_charge(48 << 10).unwrap();
        drop(group.try_charge(0).unwrap());
        let settled = group.destroy().unwrap();
        let peak = settled.peak;
        assert_eq!(
            settled.to_string(),
            format!("group 1#1 ended with 48.0K still charged (2 charges, peak {peak})")
        );
        drop(forgotten);
        let settled = ledger.root().create("q2").unwrap().destroy().unwrap();
        let text = "group 1#2 ended with nothing left to return (0 charges, peak 0)";
        assert_eq!(settled.to_string(), text);
    }

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
