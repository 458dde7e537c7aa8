//! The columns of perf's tables: a line of names above a line of dots that are as wide as the columns.

/// The columns of a table, by the extent of the dots below their names.
#[derive(Default)]
pub(super) struct Dotted<'a>(Vec<(usize, usize, &'a str)>);

impl<'a> Dotted<'a> {
    /// Reads the columns. Names are cut only at the boundaries of characters.
    pub fn of(dots: &str, names: &'a str) -> Dotted<'a> {
        let mut columns = Vec::new();
        let mut at = 0;
        for run in dots.split(' ') {
            if run.starts_with('.') {
                let name = names.get(at..(at + run.len()).min(names.len())).unwrap_or_default();
                columns.push((at, at + run.len(), name.trim()));
            }
            at += run.len() + 1;
        }
        Dotted(columns)
    }

    /// Returns the cell of a row in a column; `None` if there is no such column or the row is shorter.
    pub fn cell<'r>(&self, row: &'r str, name: &str) -> Option<&'r str> {
        let &(from, to, _) = self.0.iter().find(|column| column.2 == name)?;
        row.get(from..to.min(row.len())).map(str::trim)
    }

    /// Returns the names of the columns.
    pub fn names(&self) -> impl Iterator<Item = &'a str> {
        self.0.iter().map(|column| column.2)
    }
}
