//! Repair of a damaged book.

use super::Book;
use super::rows::Budget;

impl Book {
    /// Recomputes all sums from the holds, drops leases of budgets that do not exist, and rebuilds the index of ends.
    /// Returns the number of budgets whose sums were wrong.
    pub(super) fn recount(&mut self) -> u64 {
        let before = self.budgets.clone();
        for budget in self.budgets.values_mut() {
            let Budget { limit, minimum, closing, refused, .. } = *budget;
            *budget = Budget { limit, minimum, closing, refused, ..Budget::default() };
        }
        self.ends.clear();
        for (name, node) in &mut self.nodes {
            for (number, incarnation) in &mut node.incarnations {
                incarnation.holds.retain(|path, hold| match self.budgets.get_mut(path) {
                    Some(budget) => {
                        budget.holds += 1;
                        budget.put_in(hold);
                        true
                    }
                    None => false,
                });
                self.ends.insert((incarnation.freed, name.clone(), *number));
            }
        }
        self.budgets.retain(|_, budget| !budget.closing || budget.holds > 0);
        let sums = |budget: &Budget| (budget.holds, budget.held(), budget.unmet, budget.lacking);
        let differs = |(path, was): &(&String, &Budget)| {
            self.budgets.get(*path).is_none_or(|is| sums(is) != sums(was))
        };
        before.iter().filter(differs).count() as u64
    }
}
