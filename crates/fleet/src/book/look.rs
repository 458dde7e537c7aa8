//! Single rows of a book.

use super::{Book, BudgetView, HoldView};

impl Book {
    /// One budget as it is, without its holds, and without ending what has ended by now. Costs a look-up.
    #[must_use]
    pub fn budget(&self, path: &str) -> Option<BudgetView> {
        self.budgets.get(path).map(|budget| budget.view(path))
    }

    /// What one incarnation of a node has of a budget. Costs a look-up.
    #[must_use]
    pub fn hold(&self, path: &str, node: &str, incarnation: u64) -> Option<HoldView> {
        let hold = self.nodes.get(node)?.incarnations.get(&incarnation)?.holds.get(path)?;
        Some(hold.view(node, incarnation))
    }
}
