//! The settlement of a destroyed group: what it held, also as a sentence.

use crate::control::audit::wrong::Outstanding;
use crate::group::Group;
use crate::report::estimate::Estimate;
use crate::report::leak::Leak;
use crate::size;
use std::fmt;

/// The state of a group when it was destroyed.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settled<'l> {
    /// The destroyed group; only its number is left.
    pub group: Group<'l>,
    /// Units still charged to it, or to groups below that were destroyed before it: a leak, or charges that will still be
    /// returned. They stay counted in the group's ancestors until they are returned. [`leak`](Settled::leak) describes them.
    pub leftover: u64,
    /// Units that lay prepaid in its cells and were returned to the ancestors.
    pub idle: u64,
    /// Its highest usage: see [`Group::peak`].
    pub peak: Estimate,
    /// How many charges it had in its life.
    pub charges: u64,
    /// How many uncharges it had in its life.
    pub uncharges: u64,
}

impl fmt::Debug for Settled<'_> {
    /// Shows the group's number, since a destroyed group has no path.
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
    /// A sentence for a log: what was left, how many charges there were, and the peak.
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
    /// Returns the units that the group's own charges still hold; `None` once all were returned. Costs a pass over the rows
    /// in use.
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

    /// Returns the units that the group's own charges still hold, by the line that charged them; see
    /// [`Ledger::outstanding`](crate::Ledger::outstanding).
    pub fn outstanding(&self) -> Vec<Outstanding> {
        self.group.ledger().outstanding_in(Some(self.group.id()))
    }
}

#[cfg(test)]
mod tests {
    use crate::Ledger;

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
}
