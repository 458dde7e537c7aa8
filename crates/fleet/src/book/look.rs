//! Access to single rows of a book.

use super::rows::Hold;
use super::{Book, BudgetView, HoldView};

impl Book {
    /// Returns the lease of one incarnation of a node, like [`hold`](Self::hold), or 0 if it has none.
    #[must_use]
    pub fn lease(&self, path: &str, node: &str, incarnation: u64) -> u64 {
        self.row(path, node, incarnation).map_or(0, |hold| hold.lease)
    }

    /// Returns all leases of one incarnation of a node, in the order of their paths.
    pub fn leases(&self, node: &str, incarnation: u64) -> impl Iterator<Item = (&str, u64)> {
        let node = self.nodes.get(node);
        let incarnation = node.and_then(|node| node.incarnations.get(&incarnation));
        let holds = incarnation.into_iter().flat_map(|incarnation| &incarnation.holds);
        holds.map(|(path, hold)| (path.as_str(), hold.lease))
    }

    /// Returns one budget without its holds. Does not expire leases first. Costs one look-up.
    #[must_use]
    pub fn budget(&self, path: &str) -> Option<BudgetView> {
        self.budgets.get(path).map(|budget| budget.view(path))
    }

    /// Returns the row of one incarnation of a node in a budget. Costs one look-up.
    #[must_use]
    pub fn hold(&self, path: &str, node: &str, incarnation: u64) -> Option<HoldView> {
        Some(self.row(path, node, incarnation)?.view(node, incarnation))
    }

    fn row(&self, path: &str, node: &str, incarnation: u64) -> Option<&Hold> {
        self.nodes.get(node)?.incarnations.get(&incarnation)?.holds.get(path)
    }
}
