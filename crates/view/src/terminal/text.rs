//! Figures as text: counts, and tables.

/// Returns a count of something: `1 group`, `2 groups`.
pub fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Formats rows as the lines of a table, without ends of lines: two blanks between the columns, which are
/// right-aligned; a first column of names is left-aligned.
pub fn aligned<'r>(rows: impl Iterator<Item = &'r [String]> + Clone, named: bool) -> Vec<String> {
    let many = rows.clone().map(<[String]>::len).max().unwrap_or(0);
    let cells = |at: usize| rows.clone().filter_map(move |row| row.get(at));
    let width = |at: usize| cells(at).map(|cell| cell.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..many).map(width).collect();
    let cell = |(at, (cell, width)): (usize, (&String, &usize))| match at {
        0 if named => format!("{cell:<width$}"),
        _ => format!("{cell:>width$}"),
    };
    let line = |row: &[String]| row.iter().zip(&widths).enumerate().map(cell).collect::<Vec<_>>();
    rows.clone().map(|row| line(row).join("  ")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_a_table_end_below_each_other_and_names_begin_so() {
        let rows = [["größe", "1"], ["b", "1234"]].map(|row| row.map(str::to_owned));
        let rows = || rows.iter().map(|row| &row[..]);
        assert_eq!(aligned(rows(), true), ["größe     1", "b      1234"]);
        assert_eq!(aligned(rows(), false), ["größe     1", "    b  1234"]);
        assert!(aligned(std::iter::empty(), true).is_empty());
    }
}
