//! The rows of an account as a tree by their paths.

use super::{Account, Row, State};

impl Account {
    /// Returns the index of each row's parent; the root is its own.
    pub fn parents(&self) -> Vec<usize> {
        // The rows on the path from the root to the previous row.
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

    /// Returns the rows that carry new information. The only row below a process, such as its single thread, is left
    /// out if it has the same numbers.
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
}

#[cfg(test)]
mod tests {
    use crate::account::model::tests::{account, row};

    #[test]
    fn each_row_has_the_row_above_it() {
        let rows = ["/", "/a", "/a/x", "/a/y", "/b", "/c"].map(|path| row(path, 0, 1));
        assert_eq!(account(rows.to_vec()).parents(), [0, 0, 1, 1, 0, 0]);
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
}
