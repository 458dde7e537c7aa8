//! Which rows of an account are shown where not all are.

use super::{Account, Row, State};

impl Account {
    /// For each row the index of its parent; the root is its own.
    pub fn parents(&self) -> Vec<usize> {
        // The rows on the way from the root to the one before.
        let mut way: Vec<usize> = Vec::new();
        self.rows
            .iter()
            .enumerate()
            .map(|(index, row)| {
                way.truncate(row.depth);
                let parent = way.last().copied().unwrap_or(index);
                way.push(index);
                parent
            })
            .collect()
    }

    /// The rows that say something new. The only row below a process (its one
    /// thread, say) is left out where it has the same numbers.
    pub fn distinct(&self) -> Vec<Row> {
        let same = |row: &Row, above: &Row| {
            (row.current, row.peak, row.charges, row.counted.refused, row.at_exit)
                == (above.current, above.peak, above.charges, above.counted.refused, above.at_exit)
        };
        let echoes = |index: usize| {
            let row = &self.rows[index];
            let is_last = self.rows.get(index + 1).is_none_or(|next| next.depth < row.depth);
            row.depth > 1
                && row.state != State::Damaged
                && self.rows[index - 1].depth + 1 == row.depth
                && is_last
                && (row.max, row.high) == (None, None)
                && same(row, &self.rows[index - 1])
        };
        (0..self.rows.len())
            .filter(|&index| !echoes(index))
            .map(|index| self.rows[index].clone())
            .collect()
    }

    /// By what rows are sorted: the peak, and of equals the row of several processes first.
    fn weight(&self, index: usize) -> (u64, u64) {
        (self.rows[index].peak, self.rows[index].counted.processes)
    }

    /// The rows to show where only `most` fit: those that are damaged, those with the largest peaks, and
    /// the way from each to the root. They stand in the order of the tree, with
    /// the children of one parent sorted by peak.
    pub fn largest(&self, most: usize) -> Vec<usize> {
        let parents = self.parents();
        let mut by_peak: Vec<usize> = (0..self.rows.len()).collect();
        by_peak.sort_by_key(|&index| {
            let is_damaged = self.rows[index].state == State::Damaged;
            std::cmp::Reverse((is_damaged, self.weight(index)))
        });

        let mut shown = vec![false; self.rows.len()];
        let mut room = most;
        for index in by_peak {
            let mut missing = Vec::new();
            let mut at = index;
            while !shown[at] && missing.len() <= room {
                missing.push(at);
                if parents[at] == at {
                    break;
                }
                at = parents[at];
            }
            if missing.len() > room {
                continue;
            }
            room -= missing.len();
            missing.into_iter().for_each(|index| shown[index] = true);
        }

        let mut children: Vec<Vec<usize>> = vec![Vec::new(); self.rows.len()];
        let mut pending = Vec::new();
        for (index, &parent) in parents.iter().enumerate().filter(|(index, _)| shown[*index]) {
            if parent == index { pending.push(index) } else { children[parent].push(index) }
        }
        let mut order = Vec::with_capacity(most.min(self.rows.len()));
        while let Some(index) = pending.pop() {
            order.push(index);
            // The last that is pushed is the first that is visited: the
            // largest, and of equals the one that came first.
            children[index].reverse();
            children[index].sort_by_key(|&child| self.weight(child));
            pending.append(&mut children[index]);
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::model::tests::{account, row};

    fn paths(account: &Account, most: usize) -> Vec<&str> {
        account.largest(most).into_iter().map(|index| account.rows[index].path.as_str()).collect()
    }

    #[test]
    fn siblings_stand_by_peak_and_equals_as_they_came() {
        let account = account(vec![
            row("/", 0, 100),
            row("/a", 0, 10),
            row("/a/x", 0, 1),
            row("/a/y", 0, 9),
            row("/b", 0, 90),
            row("/c", 0, 10),
        ]);
        assert_eq!(paths(&account, 40), ["/", "/b", "/a", "/a/y", "/a/x", "/c"]);
        assert_eq!(account.parents(), [0, 0, 1, 1, 0, 0]);
    }

    #[test]
    fn a_row_is_never_shown_without_its_parents() {
        // A child can have a larger peak than its parent where the parent's
        // was reset, and the way to it must be there all the same.
        let account = account(vec![
            row("/", 0, 100),
            row("/a", 0, 1),
            row("/a/x", 0, 95),
            row("/b", 0, 50),
            row("/c", 0, 40),
        ]);
        assert_eq!(paths(&account, 3), ["/", "/a", "/a/x"]);
        assert_eq!(paths(&account, 2), ["/", "/b"]);
        assert_eq!(paths(&account, 0), [""; 0]);
    }

    #[test]
    fn an_only_row_that_repeats_its_parent_is_left_out() {
        let account = account(vec![
            row("/", 0, 10),
            row("/a", 0, 10),
            row("/a/a", 0, 10),
            row("/b", 0, 10),
            row("/b/x", 0, 10),
            row("/b/y", 0, 10),
            row("/c", 0, 9000),
            row("/c/c", 0, 8000),
        ]);
        let rows = account.distinct();
        let paths: Vec<&str> = rows.iter().map(|row| row.path.as_str()).collect();
        assert_eq!(paths, ["/", "/a", "/b", "/b/x", "/b/y", "/c", "/c/c"]);
    }

    #[test]
    fn a_deep_or_wide_tree_is_no_trouble() {
        let mut path = String::new();
        let mut rows = vec![row("/", 0, 1 << 20)];
        for depth in 0..10_000 {
            path.push_str("/d");
            rows.push(row(&path, 0, 1_000_000 - depth));
        }
        for index in 0..10_000 {
            rows.push(row(&format!("/w{index}"), 0, index));
        }
        assert_eq!(account(rows).largest(40).len(), 40);
    }
}
