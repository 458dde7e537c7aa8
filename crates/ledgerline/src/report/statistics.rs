//! The statistics of all groups of a copied ledger, from one pass over its rows.
//!
//! [`Group::stat`](crate::Group::stat) moves what cells hold to the totals first, and reads those. Here nothing is
//! moved: what lies in cells, and what rows counted beside them, is added to the totals of the row and, up the tree, to
//! those of its ancestors' subtrees. The sums are the same.

use crate::control::events::Events;
use crate::report::memory_stat::{Value, lines};
use crate::report::scan::Scan;
use crate::report::snapshot::Snapshot;
use crate::sync::Ordering;
use crate::table::Table;
use crate::table::collect;
use crate::table::row::state;
use crate::table::sums::{CHANGES, total_words};

/// What every group of a [`Reading`](crate::Reading) and its subtree counted: the lines of `memory.stat` by number, and
/// the events.
///
/// A group is named by its place in [`Snapshot::groups`](crate::Snapshot), a line by what [`line`](Self::line) says.
/// Of a damaged group no number means anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statistics {
    lines: Vec<(String, Value)>,
    /// Words of one group.
    words: usize,
    /// The groups' own words, group by group, and their subtrees'.
    own: Vec<i64>,
    subtree: Vec<i64>,
    steady: bool,
}

impl Statistics {
    /// Of a copy of which a scan was made that is not summed up, for the groups of a snapshot.
    pub(crate) fn of(
        table: &Table,
        scan: &Scan,
        snapshot: &Snapshot,
        names: &[String],
        steady: bool,
    ) -> Statistics {
        let words = total_words(table.plan.items) / 2;
        let rows = scan.lines.len();
        // What each row counted that its totals do not have yet; then its subtree. (Wrapping, here and below: a program
        // may have written anything.)
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

    /// The names of the lines, as [`MemoryStat`](crate::MemoryStat) has them.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.lines.iter().map(|(name, _)| name.as_str())
    }

    /// The number of the line with that name.
    pub fn line(&self, name: &str) -> Option<usize> {
        self.lines.iter().position(|(other, _)| other == name)
    }

    /// What a group itself counted.
    ///
    /// # Panics
    /// If there is no such group or line. The same holds for the other calls.
    pub fn own(&self, group: usize, line: usize) -> i64 {
        self.lines[line].1.of(self.words_of(&self.own, group))
    }

    /// What a group, its descendants and its destroyed descendants counted.
    pub fn subtree(&self, group: usize, line: usize) -> i64 {
        self.lines[line].1.of(self.words_of(&self.subtree, group))
    }

    /// The events of a group and its subtree (`memory.events`).
    pub fn events(&self, group: usize) -> Events {
        Events::of_words(self.words_of(&self.subtree, group))
    }

    /// The events of a group itself (`memory.events.local`).
    pub fn local_events(&self, group: usize) -> Events {
        Events::of_words(self.words_of(&self.own, group))
    }

    /// Whether the program moved no sums from one place of the ledger to another while they were read. If it did, the
    /// subtrees' sums may have what was moved twice, or not; the next reading has it once.
    pub fn steady(&self) -> bool {
        self.steady
    }

    fn words_of<'w>(&self, words: &'w [i64], group: usize) -> &'w [i64] {
        &words[group * self.words..(group + 1) * self.words]
    }
}
