//! Finds the groups that are over their own limits, and reports allocations that fail because no work gives way.
//!
//! Allocations may go over a limit until their work ends ([`OnLimit::Overrun`](crate::alloc::OnLimit)). So a group
//! may use up room that others below a common ancestor need. Their charges are not refused for that: a charge that
//! would fit if all neighbours were within their own limits is granted.

use crate::counter::COUNTER_MAX;
use crate::group::Group;
use crate::os;
use crate::size;
use crate::sync::{AtomicU32, Ordering};
use crate::table::Table;
use crate::table::path::{self, RowPath};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Returns by how much a row's group is over its own limit, without idle stock.
fn excess(table: &Table, row: u32) -> u64 {
    let counter = &table.row(row).counter;
    let max = counter.max();
    if max >= COUNTER_MAX {
        return 0;
    }
    counter.usage().saturating_sub(counter.idle_at_most()).saturating_sub(max)
}

/// Returns whether other groups are the reason that `units` do not fit below a full group's limit: whether groups
/// below it exceed their own limits by as much together. Groups on the path of the asking group do not count, nor
/// those below it. Costs a pass over the rows in use, unless the group that was found last suffices. Allocates
/// nothing.
///
/// A group that is slightly over its limit thus gives its neighbours only that much, and no group can use the excuse
/// to grow further.
pub(crate) fn is_anothers(full: Group<'_>, asking: Group<'_>, units: u64) -> bool {
    /// The row that was found last, in any ledger: a hint.
    static LAST: AtomicU32 = AtomicU32::new(0);
    let table = full.table();
    let Some(own) = RowPath::of(table, asking.id()) else { return false };
    let (top, me) = (full.id().index(), asking.id().index());
    let fault = |row: u32| {
        let over = excess(table, row);
        let counts = over > 0
            && table.is_live(row)
            && !own.rows().contains(&row)
            && !path::leads_through(table, row, me)
            && RowPath::new(table, row).is_some_and(|path| {
                let mut above = path.rows()[1..].iter();
                // The excess of a group above it includes its own.
                above.find(|&&above| above == top || excess(table, above) > 0) == Some(&top)
            });
        if counts { over } else { 0 }
    };
    let rows = table.high_water();
    // Relaxed: a hint.
    let last = LAST.load(Ordering::Relaxed);
    if (1..rows).contains(&last) && fault(last) >= units {
        return true;
    }
    let mut together = 0u64;
    for row in 1..rows {
        let over = fault(row);
        if over > 0 {
            LAST.store(row, Ordering::Relaxed);
            together = together.saturating_add(over);
            if together >= units {
                return true;
            }
        }
    }
    false
}

/// Reports on standard error that an allocation fails since the root is full and nothing gave way, at most once a
/// second: the program may end by it. The caller exempts this from accounting.
pub(crate) fn say_full(asking: Group<'_>, units: u64) {
    static SAID: Mutex<Option<Instant>> = Mutex::new(None);
    let Ok(mut said) = SAID.try_lock() else { return };
    if said.is_some_and(|said| said.elapsed() < Duration::from_secs(1)) {
        return;
    }
    *said = Some(Instant::now());
    drop(said);
    let root = asking.ledger().root();
    let mut holders: Vec<(u64, String)> =
        root.children().map(|group| (group.approximate().value, group.path())).collect();
    holders.sort_by(|one, other| other.cmp(one));
    holders.truncate(3);
    let holders: Vec<String> =
        holders.iter().map(|(units, path)| format!("{path} {}", size::format(*units))).collect();
    let line = format!(
        "ledgerline: / is full (max {}): {} was refused {}, and nothing gave way. Largest: {}. Set a larger max of /, or smaller ones below it.\n",
        root.max(),
        asking.path(),
        size::format(units),
        if holders.is_empty() { "/".to_owned() } else { holders.join(", ") },
    );
    os::say(line.as_bytes());
}

impl Group<'_> {
    /// Returns by how many units the group is over its own limit, without idle stock; zero if it is not. A few loads.
    ///
    /// A group gets over its limit by [`charge`](Self::charge), by a limit that was set below its usage, and by
    /// allocations of work that has not ended yet ([`OnLimit::Overrun`](crate::alloc::OnLimit)).
    pub fn over(self) -> u64 {
        self.read(|_| excess(self.table(), self.id().index())).unwrap_or(0)
    }
}
