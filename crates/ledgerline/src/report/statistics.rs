//! The statistics of all groups of a copied ledger, from one pass over its rows.
//!
//! [`Group::stat`](crate::Group::stat) first moves the sums of cells to the totals, and reads those. Here nothing is moved:
//! the sums in cells, and the counts beside them, are added to the totals of the row and, up the tree, to those of its
//! ancestors' subtrees. The sums are the same.

use crate::control::events::Events;
use crate::report::memory_stat::{Value, lines};
use crate::report::scan::Scan;
use crate::report::snapshot::Snapshot;
use crate::sync::Ordering;
use crate::table::Table;
use crate::table::collect;
use crate::table::row::state;
use crate::table::sums::{CHANGES, total_words};

/// The statistics of every group of a [`Reading`](crate::Reading) and its subtree: the lines of `memory.stat` by number, and
/// the events.
///
/// A group is named by its index in [`Snapshot::groups`](crate::Snapshot), a line by the result of [`line`](Self::line). The
/// numbers of a damaged group have no meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statistics {
    lines: Vec<(String, Value)>,
    /// The number of words of one group.
    words: usize,
    /// The groups' own words, group by group, and their subtrees'.
    own: Vec<i64>,
    subtree: Vec<i64>,
    steady: bool,
}

impl Statistics {
    /// Returns the statistics for the groups of a snapshot, from a copy and its scan, which is not summed up.
    pub(crate) fn of(
        table: &Table,
        scan: &Scan,
        snapshot: &Snapshot,
        names: &[String],
        steady: bool,
    ) -> Statistics {
        let words = total_words(table.plan.items) / 2;
        let rows = scan.lines.len();
        // The counts of each row that its totals do not have yet, and later those of its subtree. Wrapping, here and below,
        // since a program may have written any number.
        let mut uncollected = vec![0i64; rows * words];
        let mut below = vec![0i64; rows];
        let at = |row: u32| row as usize * words..(row as usize + 1) * words;
        let deepest_first = scan.deepest_first();
        for &row in &deepest_first {
            if scan.lines[row as usize].state != state::FREE {
                below[row as usize] =
                    collect::read_uncollected(table, row, &mut uncollected[at(row)]);
            }
        }
        let read = |uncollected: &[i64], part: usize| {
            let mut read = Vec::with_capacity(snapshot.groups.len() * words);
            for group in &snapshot.groups {
                let row = group.id.index();
                let start = read.len();
                read.extend_from_slice(&uncollected[at(row)]);
                let totals = collect::totals(table, row)[part];
                for (word, total) in read[start..].iter_mut().zip(totals) {
                    *word = word.wrapping_add(total.load(Ordering::Relaxed) as i64);
                }
            }
            read
        };
        let own = read(&uncollected, 0);
        for (row, below) in below.into_iter().enumerate() {
            let word = &mut uncollected[row * words + CHANGES];
            *word = word.wrapping_add(below);
        }
        for &row in deepest_first.iter().filter(|&&row| row != 0) {
            let parent = scan.lines[row as usize].parent;
            let [from, to] = [at(row), at(parent)].map(|range| range.start);
            for word in 0..words {
                uncollected[to + word] =
                    uncollected[to + word].wrapping_add(uncollected[from + word]);
            }
        }
        let subtree = read(&uncollected, 1);
        Statistics { lines: lines(table.flows, names), words, own, subtree, steady }
    }

    /// Returns the names of the lines, as in [`MemoryStat`](crate::MemoryStat).
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.lines.iter().map(|(name, _)| name.as_str())
    }

    /// Returns the number of the line with that name.
    pub fn line(&self, name: &str) -> Option<usize> {
        self.lines.iter().position(|(other, _)| other == name)
    }

    /// Returns the count of a group alone.
    ///
    /// # Panics
    /// If there is no such group or line. The same holds for the other calls.
    pub fn own(&self, group: usize, line: usize) -> i64 {
        self.lines[line].1.of(self.words_of(&self.own, group))
    }

    /// Returns the count of a group, its descendants and its destroyed descendants.
    pub fn subtree(&self, group: usize, line: usize) -> i64 {
        self.lines[line].1.of(self.words_of(&self.subtree, group))
    }

    /// Returns the events of a group and its subtree (`memory.events`).
    pub fn events(&self, group: usize) -> Events {
        Events::of_words(self.words_of(&self.subtree, group))
    }

    /// Returns the events of a group itself (`memory.events.local`).
    pub fn local_events(&self, group: usize) -> Events {
        Events::of_words(self.words_of(&self.own, group))
    }

    /// Returns whether the program moved no sums from one place of the ledger to another while they were read. If it did, the
    /// subtrees' sums may have the moved part twice, or not at all; the next reading has it once.
    pub fn steady(&self) -> bool {
        self.steady
    }

    fn words_of<'w>(&self, words: &'w [i64], group: usize) -> &'w [i64] {
        &words[group * self.words..(group + 1) * self.words]
    }
}
