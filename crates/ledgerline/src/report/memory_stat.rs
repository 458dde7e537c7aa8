//! `memory.stat`: the sums of a group's cells and of those below it (`table/sums.rs`).

use crate::group::Group;
use crate::ledger::Ledger;
use crate::stock::totals;
use crate::table::Table;
use crate::table::follow;
use crate::table::id::GroupId;
use crate::table::items::{StatItem, is_called, name_of};
use crate::table::sums::{self, COUNTED, FIXED, Sum, total_words};

/// One line of a group's [`MemoryStat`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct StatLine {
    /// The item's name, as `memory.stat` prints it.
    pub name: String,
    /// The count of this group alone.
    pub own: i64,
    /// The count of the group, its descendants and its destroyed descendants.
    pub subtree: i64,
}

/// The statistics of a group and its subtree, returned by [`Group::stat`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct MemoryStat {
    /// The fixed items first, then the ledger's own in the order of their declaration.
    pub lines: Vec<StatLine>,
}

impl MemoryStat {
    /// Returns the line of an item.
    pub fn get(&self, name: &str) -> Option<&StatLine> {
        self.lines.iter().find(|line| line.name == name)
    }
}

impl std::fmt::Display for MemoryStat {
    /// The lines of cgroup v2's `memory.stat`: a name and the subtree's count.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.lines.iter().try_for_each(|line| writeln!(f, "{} {}", line.name, line.subtree))
    }
}

/// The source of a line's number among the words of a group, or of its subtree (`table/sums.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Word(usize),
    /// Charges less uncharges.
    Live,
}

impl Value {
    pub(super) fn of(self, words: &[i64]) -> i64 {
        match self {
            Value::Word(word) => words[word],
            Value::Live => words[0].wrapping_sub(words[1]),
        }
    }
}

/// Returns the lines of `memory.stat` for a ledger whose own items have these names.
pub(super) fn lines(flows: bool, items: &[String]) -> Vec<(String, Value)> {
    let sum = |name: &str, sum: Sum| (name.to_owned(), Value::Word(COUNTED + sum as usize));
    let mut lines = Vec::with_capacity(8 + items.len());
    if flows {
        lines.extend([sum("charged", Sum::Charged), sum("freed", Sum::Freed)]);
    }
    lines.extend([
        ("blocks_live".to_owned(), Value::Live),
        ("blocks_total".to_owned(), Value::Word(0)),
        sum("refused", Sum::Refused),
        sum("reclaimed", Sum::Reclaimed),
        sum("throttled", Sum::Throttled),
        sum("throttled_usec", Sum::ThrottledTime),
    ]);
    let own = |(item, name): (usize, &String)| (name.clone(), Value::Word(COUNTED + FIXED + item));
    lines.extend(items.iter().enumerate().map(own));
    lines
}

impl Group<'_> {
    /// Adds `n` to one of the ledger's own items ([`Ledger::item`]).
    ///
    /// Costs about a nanosecond; async-signal-safe. If the ledger has no such item, or the group does not exist, nothing
    /// changes and the mistake is counted ([`Ledger::mistakes`]). In the fallback an addition that races with the group's end
    /// may count for the row's next group.
    ///
    /// ```
    /// # use ledgerline::Ledger;
    /// let ledger = Ledger::builder().items(&["rows_read", "spills"]).anonymous()?;
    /// let tenant = ledger.root().create("acme")?;
    /// let query = tenant.create("q1")?;
    /// let rows_read = ledger.item("rows_read").expect("declared above");
    /// query.add_stat(rows_read, 1000);
    /// let stat = tenant.stat();
    /// let rows = stat.get("rows_read").unwrap();
    /// assert_eq!((rows.own, rows.subtree), (0, 1000));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn add_stat(&self, item: StatItem, n: i64) {
        let ledger = self.ledger();
        if item.index() >= ledger.table().plan.items {
            return ledger.table().count_stray();
        }
        add(ledger, self.id(), FIXED + item.index(), n);
    }

    /// Notes that `units` of this group were reclaimed: a cache gave them back under pressure.
    pub fn add_reclaimed(&self, units: u64) {
        let units = i64::try_from(units).unwrap_or(i64::MAX);
        add(self.ledger(), self.id(), Sum::Reclaimed as usize, units);
    }

    /// Returns the statistics of this group and of its subtree, as `memory.stat` prints them:
    ///
    /// * `charged`, `freed`: units, in a ledger that [keeps flows](crate::LedgerBuilder::flows);
    /// * `blocks_live`, `blocks_total`: charges that were not returned yet, and all charges. A split charge counts as two from
    ///   then on, a merged one as one. Units without a guard count each time some are returned;
    /// * `refused`: charges of the group that were refused, by its own limit or an ancestor's;
    /// * `reclaimed`: units, see [`add_reclaimed`](Self::add_reclaimed);
    /// * `throttled`, `throttled_usec`: charges above high that were slowed down, and by how much;
    /// * the ledger's own items.
    ///
    /// The numbers are exact when writers are still; otherwise each was true at some moment of the call. The counts of a
    /// destroyed group stay in its ancestors' subtrees, and its blocks in its parent's own; its own lines are zeros. The cost
    /// is in proportion to the changes since the last call, times the depth. It drains the subtree, so each cell in use pays
    /// one slow charge (about 0.1 µs) afterwards. Not async-signal-safe.
    pub fn stat(self) -> MemoryStat {
        let ledger = self.ledger();
        let items = ledger.table().plan.items;
        let words = total_words(items) / 2;
        let totals = totals::of(ledger.table(), self.id());
        let lines = lines(ledger.table().flows, &ledger.item_names());
        let line = |(name, value): (String, Value)| StatLine {
            name,
            own: value.of(&totals[..words]),
            subtree: value.of(&totals[words..]),
        };
        MemoryStat { lines: lines.into_iter().map(line).collect() }
    }
}

/// Adds for a caller. If the group does not exist, counts that as the caller's mistake.
#[inline]
fn add(ledger: &Ledger, id: GroupId, sum: usize, n: i64) {
    let table = ledger.table();
    let slowly = || follow::exists(table, id) && sums::add_slow(table, id, sum, n);
    if !sums::add_fast(table, id, sum, n) && !slowly() {
        table.count_stray();
    }
}

impl Ledger {
    /// Returns the item of that name, if the ledger was created with it
    /// ([`LedgerBuilder::items`](crate::LedgerBuilder::items)).
    ///
    /// ```
    /// let ledger = ledgerline::Ledger::builder().items(&["rows_read"]).anonymous()?;
    /// let rows_read = ledger.item("rows_read").expect("declared above");
    /// ledger.root().add_stat(rows_read, 1000);
    /// assert_eq!(ledger.item("rows_written"), None);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn item(&self, name: &str) -> Option<StatItem> {
        let names = &self.table().header().items[..self.table().plan.items];
        names.iter().position(|item| is_called(item, name)).map(|at| StatItem(at as u8))
    }

    /// Returns all of the ledger's own items, in the order of their declaration.
    pub fn items(&self) -> impl Iterator<Item = StatItem> + use<> {
        (0..self.table().plan.items as u8).map(StatItem)
    }

    /// Returns an item's name; empty if the ledger has no such item.
    pub fn item_name(&self, item: StatItem) -> String {
        let names = &self.table().header().items[..self.table().plan.items];
        names.get(item.index()).map_or_else(String::new, name_of)
    }

    /// Returns the names of the ledger's own items, in the order of their declaration. Another process may have written over
    /// them: invalid UTF-8 shows as replacement characters. Spaces, and characters that no group's name
    /// [allows](crate::table::name::allows), show as `\u{20}` and the like.
    pub fn item_names(&self) -> Vec<String> {
        item_names(self.table())
    }
}

/// Returns the names of a ledger's own items.
pub(crate) fn item_names(table: &Table) -> Vec<String> {
    table.header().items.iter().take(table.plan.items).map(name_of).collect()
}
