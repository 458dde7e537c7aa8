//! The series of many groups, from successive looks at one ledger.

use crate::watch::{Look, Row, Series, State};
use ledgerline::GroupId;
use std::collections::HashMap;
use std::time::Duration;

/// The holdings of one group over time, and its lifetime.
#[derive(Clone, Debug)]
pub struct Chronicle {
    /// Its number.
    pub id: GroupId,
    /// Its path in the last look.
    pub path: String,
    /// Levels below the root.
    pub depth: u32,
    /// Its process; 0 without one.
    pub pid: u32,
    /// The time of its first look, by the clock of the looks.
    pub first: Duration,
    /// The time of its last look; of its last look as a live group, if it ended.
    pub seen: Duration,
    /// Whether it is gone, or its process ended.
    pub ended: bool,
    /// Its peak in the last look.
    pub peak: u64,
    /// Its holdings.
    pub series: Series,
}

/// The holdings of the groups of one ledger over time, in bounded memory.
///
/// ```
/// use ledgerline::Ledger;
/// use ledgerline_view::watch::{History, Source};
/// use std::time::Duration;
///
/// let file = tempfile::NamedTempFile::new()?;
/// let ledger = Ledger::builder().capacity(16).create_in(file.as_file())?;
/// let source = Source::open(file.path())?;
/// let mut history = History::new(Duration::from_millis(1), 200, 1000);
/// history.push(&source.look());
/// let held = ledger.root().create("query")?.try_charge(4096)?;
/// history.push(&source.look());
/// let root = history.get(source.look().root().id).unwrap();
/// // (A peak counts what the CPUs keep prepaid, too.)
/// assert!((4096..8192).contains(&root.series.most()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct History {
    step: Duration,
    points: usize,
    most: usize,
    groups: HashMap<GroupId, Chronicle>,
    /// The counts of each row in the previous look, even without a chronicle; `None` before the first look.
    before: Option<HashMap<GroupId, Counted>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    refused: u64,
    reclaimed: u64,
    peak: u64,
}

impl History {
    /// Makes a history of at most `groups` groups, but at least one, each with a [`Series`] of that step and number of
    /// points.
    ///
    /// Takes at most 48 bytes per point and group, some 400 plus the path per group, and 40 per row of the look.
    pub fn new(step: Duration, points: usize, groups: usize) -> History {
        let most = groups.max(1);
        History { step, points, most, groups: HashMap::new(), before: None }
    }

    /// Adds a look. Damaged rows are ignored.
    ///
    /// A group's counts from before the first look may be older than this history, and are left out. A group that was
    /// made since the previous look has all its counts included.
    ///
    /// A peak that rose since the previous look is the maximum of this point, even if no look saw it. It may be too
    /// large by the amount that [`ledgerline::Group::peak`] documents.
    ///
    /// If there is no room for all groups, ended ones make room first, in the order of their ends; then those whose
    /// peaks are less than half of the newcomer's. The root stays.
    pub fn push(&mut self, look: &Look) {
        let before = self.before.take();
        let since = |row: &Row| match &before {
            None => Counted {
                refused: row.counts.refused,
                reclaimed: row.counts.reclaimed,
                peak: row.peak,
            },
            Some(before) => before.get(&row.id).copied().unwrap_or_default(),
        };
        let told = || look.rows.iter().filter(|row| row.state != State::Damaged);
        let mut new: Vec<&Row> = Vec::new();
        for row in told() {
            match self.groups.get_mut(&row.id) {
                Some(group) => group.push(row, look.clock, since(row)),
                None => new.push(row),
            }
        }
        for group in self.groups.values_mut() {
            // A group in this look was seen just now, or had ended before.
            group.ended |= group.seen != look.clock;
        }
        self.make_room(&mut new);
        for row in new {
            let mut group = Chronicle::new(row, look.clock, Series::new(self.step, self.points));
            group.push(row, look.clock, since(row));
            self.groups.insert(row.id, group);
        }
        let counted = |row: &Row| Counted {
            refused: row.counts.refused,
            reclaimed: row.counts.reclaimed,
            peak: row.peak,
        };
        self.before = Some(told().map(|row| (row.id, counted(row))).collect());
    }

    /// Returns the chronicle of a group, if it has one.
    pub fn get(&self, id: GroupId) -> Option<&Chronicle> {
        self.groups.get(&id)
    }

    /// Returns all chronicles, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Chronicle> {
        self.groups.values()
    }

    /// Returns the number of groups with a chronicle.
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// Returns whether no group has a chronicle.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Reduces the newcomers to those that fit, and makes room for them.
    fn make_room(&mut self, new: &mut Vec<&Row>) {
        let room = self.most.saturating_sub(self.groups.len());
        if new.len() <= room {
            return;
        }
        // The root first, then live groups, and among these those with the largest peaks.
        new.sort_by_key(|row| {
            (row.depth > 0, row.state != State::Live, std::cmp::Reverse(row.peak))
        });
        new.truncate(self.most);
        let mut old: Vec<(bool, Duration, u64, GroupId)> = self
            .groups
            .values()
            .filter(|group| group.depth > 0)
            .map(|group| {
                let ended = if group.ended { group.seen } else { Duration::ZERO };
                (!group.ended, ended, group.peak, group.id)
            })
            .collect();
        old.sort_by_key(|&(lives, ended, peak, _)| (lives, ended, peak));
        let mut old = old.into_iter();
        let mut fit = room;
        while fit < new.len() {
            let newcomer = new[fit];
            match old.next() {
                // An ended newcomer is no better than the ended groups.
                Some((false, _, _, id)) if newcomer.state == State::Live => self.groups.remove(&id),
                Some((true, _, peak, id)) if peak < newcomer.peak / 2 => self.groups.remove(&id),
                _ => break,
            };
            fit += 1;
        }
        new.truncate(fit);
    }
}

impl Chronicle {
    fn new(row: &Row, first: Duration, series: Series) -> Chronicle {
        Chronicle {
            id: row.id,
            path: row.path.clone(),
            depth: row.depth,
            pid: row.pid,
            first,
            seen: first,
            ended: row.state != State::Live,
            peak: row.peak,
            series,
        }
    }

    fn push(&mut self, row: &Row, clock: Duration, before: Counted) {
        let refused = row.counts.refused.saturating_sub(before.refused);
        let reclaimed = row.counts.reclaimed.saturating_sub(before.reclaimed);
        self.peak = row.peak;
        if row.path != self.path {
            self.path.clone_from(&row.path);
        }
        // An ended group holds nothing; its row is only kept for the account.
        let lives = row.state == State::Live;
        if lives || !self.ended || self.series.is_empty() {
            self.series.push(clock, if lives { row.current } else { 0 }, refused, reclaimed);
            if row.peak > before.peak {
                self.series.raise(row.peak);
            }
            self.seen = clock;
        }
        self.ended = !lives;
    }
}

#[cfg(test)]
mod tests;
