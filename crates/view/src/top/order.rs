//! The shown rows, and their order.

use crate::top::column::Column;
use crate::top::entry::{Entry, Key};
use crate::watch::Look;
use std::cmp::Ordering;
use std::collections::HashSet;
use std::time::Duration;

/// The reader's choices.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Choice {
    /// The column that rows are sorted by.
    pub sort: Column,
    /// The reverse of the column's order: numbers from the smallest, names from the last.
    pub reverse: bool,
    /// All rows in one list, as opposed to a tree.
    pub flat: bool,
    /// The groups of one program as one row.
    pub merge: bool,
    /// Only rows with this text in their path, or a program's name, ignoring case.
    pub filter: String,
    /// The folded groups.
    pub folds: Folds,
}

/// The options of a command line.
#[derive(Clone, Debug)]
pub struct Options {
    /// Order, filter, folds.
    pub choice: Choice,
    /// The time between looks.
    pub interval: Duration,
    /// The most rows that are printed; the screen shows as many as it has room for.
    pub rows: Option<usize>,
}

/// The groups that hide the rows below them: all from a depth on, except for those that were toggled.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Folds {
    depth: Option<u32>,
    turned: HashSet<Key>,
}

impl Folds {
    /// Shows this many levels below the root; `None` is all of them.
    pub fn to_depth(depth: Option<u32>) -> Folds {
        Folds { depth, turned: HashSet::new() }
    }

    /// Returns whether a group hides the rows below it.
    pub fn is_folded(&self, entry: &Entry, look: &Look) -> bool {
        let deep = self.depth.is_some_and(|depth| entry.depth >= depth);
        // Usually nothing was toggled, and no key need be made.
        deep != (!self.turned.is_empty() && self.turned.contains(&entry.key(look)))
    }

    /// Folds one group, or unfolds it.
    pub fn turn(&mut self, entry: &Entry, look: &Look) {
        let key = entry.key(look);
        if !self.turned.remove(&key) {
            self.turned.insert(key);
        }
    }
}

/// Returns the indexes of the shown entries, in their order.
pub fn lines(entries: &[Entry], look: &Look, choice: &Choice) -> Vec<usize> {
    let shown = shown(entries, look, choice);
    let mut order: Vec<usize> = (0..entries.len()).filter(|&place| shown[place]).collect();
    let compare =
        |left: usize, right: usize| compare(&entries[left], &entries[right], look, choice);
    if choice.flat {
        order.sort_by(|&left, &right| compare(left, right));
        return order;
    }
    // Children are adjacent, so that each family is a stretch of `order`.
    let parent = |place: usize| if place == 0 { 0 } else { entries[place].parent + 1 };
    order.sort_by(|&left, &right| {
        parent(left).cmp(&parent(right)).then_with(|| compare(left, right))
    });
    let mut family = vec![0..0; entries.len() + 1];
    let mut start = 0;
    for stretch in order.chunk_by(|&left, &right| parent(left) == parent(right)) {
        family[parent(stretch[0])] = start..start + stretch.len();
        start += stretch.len();
    }
    let mut lines = Vec::with_capacity(order.len());
    let mut open = vec![family[0].clone()];
    while let Some(siblings) = open.last_mut() {
        match siblings.next() {
            Some(next) => {
                lines.push(order[next]);
                open.push(family[order[next] + 1].clone());
            }
            None => drop(open.pop()),
        }
    }
    lines
}

/// Returns whether each entry is shown: in a tree without a filter those that no group above hides, with a filter the
/// matches and the groups above them.
fn shown(entries: &[Entry], look: &Look, choice: &Choice) -> Vec<bool> {
    if choice.filter.is_empty() {
        let mut shown = vec![true; entries.len()];
        if !choice.flat {
            for (place, entry) in entries.iter().enumerate().skip(1) {
                let above = entry.parent;
                shown[place] = shown[above] && !choice.folds.is_folded(&entries[above], look);
            }
        }
        return shown;
    }
    let wanted = choice.filter.to_lowercase();
    let mut shown: Vec<bool> = entries.iter().map(|entry| matches(entry, look, &wanted)).collect();
    if !choice.flat {
        for (place, entry) in entries.iter().enumerate().skip(1).rev() {
            shown[entry.parent] |= shown[place];
        }
    }
    shown
}

/// Returns whether an entry's path, or its program's name, contains a text in lower case.
pub fn matches(entry: &Entry, look: &Look, wanted: &str) -> bool {
    let row = &look.rows[entry.row];
    let text = if entry.members.is_empty() { &row.path } else { &row.program };
    if text.is_ascii() {
        let wanted = wanted.as_bytes();
        if wanted.is_empty() {
            return true;
        }
        return text.as_bytes().windows(wanted.len()).any(|part| part.eq_ignore_ascii_case(wanted));
    }
    text.to_lowercase().contains(wanted)
}

fn compare(left: &Entry, right: &Entry, look: &Look, choice: &Choice) -> Ordering {
    let order = match choice.sort {
        Column::Name => left.name(look).cmp(right.name(look)),
        column => left.figures.compare(&right.figures, column),
    };
    if choice.reverse { order.reverse() } else { order }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::entry::{groups, programs};
    use crate::top::sample::{look, row, tenants};
    use crate::watch::Rates;

    fn shown(look: &Look, choice: &Choice) -> String {
        let rates = vec![Rates::default(); look.rows.len()];
        let entries = if choice.merge { programs(look, &rates) } else { groups(look, &rates) };
        let lines = lines(&entries, look, choice);
        lines.iter().map(|&line| entries[line].name(look)).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn siblings_are_sorted_below_their_parent() {
        let look = tenants();
        let by = |sort, reverse| shown(&look, &Choice { sort, reverse, ..Choice::default() });
        assert_eq!(by(Column::Current, false), "/ bolt q3 acme q2 q1 cone");
        assert_eq!(by(Column::Current, true), "/ cone acme q1 q2 bolt q3");
        assert_eq!(by(Column::Name, false), "/ acme q1 q2 bolt q3 cone");
        assert_eq!(by(Column::Name, true), "/ cone bolt q3 acme q2 q1");
        assert_eq!(by(Column::Share, false), "/ bolt q3 acme q1 q2 cone");
    }

    #[test]
    fn flat_rows_are_sorted_among_all_whatever_is_folded() {
        let folds = Folds::to_depth(Some(1));
        let flat = Choice { flat: true, folds, ..Choice::default() };
        assert_eq!(shown(&tenants(), &flat), "/ bolt q3 acme q2 q1 cone");
        let named = Choice { sort: Column::Name, ..flat };
        assert_eq!(shown(&tenants(), &named), "/ acme bolt cone q1 q2 q3");
    }

    #[test]
    fn folds_hide_what_lies_below_a_depth_except_for_what_was_turned() {
        let look = tenants();
        let entries = groups(&look, &vec![Rates::default(); look.rows.len()]);
        let mut choice = Choice { folds: Folds::to_depth(Some(1)), ..Choice::default() };
        assert_eq!(shown(&look, &choice), "/ bolt acme cone");
        choice.folds.turn(&entries[1], &look);
        assert_eq!(shown(&look, &choice), "/ bolt acme q2 q1 cone");
        choice.folds.turn(&entries[1], &look);
        assert_eq!(shown(&look, &choice), "/ bolt acme cone");
        choice.folds = Folds::to_depth(Some(0));
        assert_eq!(shown(&look, &choice), "/");
        choice.folds = Folds::to_depth(None);
        choice.folds.turn(&entries[0], &look);
        assert_eq!(shown(&look, &choice), "/");
    }

    #[test]
    fn a_filter_shows_what_matches_and_the_groups_above_it() {
        let filter = |filter: &str, flat| {
            let folds = Folds::to_depth(Some(0));
            let filter = filter.to_owned();
            shown(&tenants(), &Choice { filter, flat, folds, ..Choice::default() })
        };
        assert_eq!(filter("Q1", false), "/ acme q1");
        assert_eq!(filter("acme", true), "acme q2 q1");
        assert_eq!(filter("nothing", false), "");
        let foreign = look(vec![row("/", 1), row("/Ärger", 1)]);
        let choice = Choice { filter: "äRG".to_owned(), flat: true, ..Choice::default() };
        assert_eq!(shown(&foreign, &choice), "Ärger");
    }

    #[test]
    fn merged_programs_are_sorted_and_filtered_by_their_names() {
        let look = look(vec![row("/", 9), row("/sh.1", 3), row("/cc.2", 4), row("/sh.3", 2)]);
        let merged = Choice { merge: true, ..Choice::default() };
        assert_eq!(shown(&look, &merged), "/ sh cc");
        assert_eq!(shown(&look, &Choice { filter: "cc".to_owned(), ..merged }), "/ cc");
    }
}
