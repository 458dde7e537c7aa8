//! A suite of cases, as the command sees it.

use super::rounds::Run;
use super::row::{Row, Rows};

/// A named set of cases with the functions that measure and explain them.
pub struct Suite {
    pub name: &'static str,
    pub help: &'static str,
    pub cases: &'static [&'static str],
    /// Measures the chosen cases in this process, in its mode.
    pub measure: fn(&Run<'_>) -> Result<Vec<Row>, String>,
    /// Returns a remark on a row, given the others.
    pub remark: fn(&Row, Rows<'_>) -> String,
}

/// Returns the names in a table of cases.
pub const fn names<T, const N: usize>(table: &[(&'static str, T); N]) -> [&'static str; N] {
    let mut names = [""; N];
    let mut at = 0;
    while at < N {
        names[at] = table[at].0;
        at += 1;
    }
    names
}
