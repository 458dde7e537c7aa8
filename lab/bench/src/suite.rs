//! A suite of cases, as the command sees it.

use super::options::Options;
use super::row::{Row, Rows};
use ledgerline_terminal::progress::Progress;

/// A named set of cases with what it takes to measure and to explain them.
pub(super) struct Suite {
    pub(super) name: &'static str,
    pub(super) cases: &'static [&'static str],
    /// Measures the chosen cases in this process, in its mode.
    pub(super) measure: fn(&Options, &Progress) -> Result<Vec<Row>, String>,
    /// What is worth saying beside a row, given the others.
    pub(super) remark: fn(&Row, Rows<'_>) -> String,
}
