//! The columns by which groups are shown and sorted.

/// A column that rows can be sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Column {
    /// The group's name.
    Name,
    /// Charged now.
    #[default]
    Current,
    /// The peak of the charge.
    Peak,
    /// The growth in units per second.
    Growth,
    /// The part of its max that it holds.
    Share,
    /// Refusals, and events of its max and its high, per second, added up.
    Limits,
    /// Charges that a limit refused, per second.
    Refused,
    /// Charges per second.
    Charges,
}

impl Column {
    /// All columns, from left to right.
    pub const ALL: [Column; 8] = {
        use Column::*;
        [Name, Current, Peak, Growth, Share, Limits, Refused, Charges]
    };

    /// Returns its word and its title.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Column::Name => ("name", "group"),
            Column::Current => ("current", "current"),
            Column::Peak => ("peak", "peak"),
            Column::Growth => ("growth", "growth/s"),
            Column::Share => ("share", "of max"),
            Column::Limits => ("limits", "limits/s"),
            Column::Refused => ("refused", "refused/s"),
            Column::Charges => ("charges", "charges/s"),
        }
    }

    /// Returns the word by which a command line names it.
    pub fn word(self) -> &'static str {
        self.names().0
    }

    /// Returns the column of a word.
    pub fn named(word: &str) -> Option<Column> {
        Column::ALL.into_iter().find(|column| column.word() == word)
    }

    /// Returns its title.
    pub fn title(self) -> &'static str {
        self.names().1
    }

    /// Returns the column `places` to the right; after the last one comes the first.
    pub fn neighbour(self, places: isize) -> Column {
        let at = Column::ALL.iter().position(|&column| column == self).unwrap_or(0);
        let count = Column::ALL.len() as isize;
        Column::ALL[(at as isize + places).rem_euclid(count) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_column_has_a_word_by_which_it_is_found_and_neighbours_in_a_ring() {
        for column in Column::ALL {
            assert_eq!(Column::named(column.word()), Some(column));
            assert_eq!(column.neighbour(1).neighbour(-1), column);
            assert_eq!(column.neighbour(Column::ALL.len() as isize), column);
        }
        assert_eq!(Column::Name.neighbour(-1), Column::Charges);
        assert_eq!(Column::named("bogus"), None);
    }
}
