//! The columns by which groups are shown and sorted.

/// A column that rows can be sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Column {
    /// The group's name.
    Name,
    /// Charged now.
    #[default]
    Current,
    /// The most that was charged at a time.
    Peak,
    /// Units that it grew by, a second.
    Growth,
    /// Which part of its max it holds.
    Share,
    /// Refusals, and times that its max and its high were met, a second, added up.
    Pressure,
    /// Charges that a limit refused, a second.
    Refused,
    /// Charges, a second.
    Charges,
}

impl Column {
    /// All, from the left to the right.
    pub const ALL: [Column; 8] = {
        use Column::*;
        [Name, Current, Peak, Growth, Share, Pressure, Refused, Charges]
    };

    /// Its word and its title.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Column::Name => ("name", "group"),
            Column::Current => ("current", "current"),
            Column::Peak => ("peak", "peak"),
            Column::Growth => ("growth", "growth/s"),
            Column::Share => ("share", "of max"),
            Column::Pressure => ("pressure", "pressure/s"),
            Column::Refused => ("refused", "refused/s"),
            Column::Charges => ("charges", "charges/s"),
        }
    }

    /// The word by which a command line names it.
    pub fn word(self) -> &'static str {
        self.names().0
    }

    /// The column of a word.
    pub fn named(word: &str) -> Option<Column> {
        Column::ALL.into_iter().find(|column| column.word() == word)
    }

    /// What stands above it.
    pub fn title(self) -> &'static str {
        self.names().1
    }

    /// The column so many places to the right, from the last one on to the first.
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
