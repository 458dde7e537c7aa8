//! One self-contained page of tables and plots.
use super::table::Table;
pub(super) fn page(tables: &[Table]) -> String {
    format!("{tables:?}")
}
