//! Counters in a tree: a charge goes to one and to all above it. The counters determine how each is changed.

use ledgerline_bench::measure::padded::Padded;

/// A counter of a tree.
pub trait Counter: Send + Sync + 'static {
    /// The unit of the counter.
    type Amount: Copy + Send + Sync + 'static;

    /// Makes a counter with a limit, and the number of the counter above.
    fn new(limit: Self::Amount, parent: Option<usize>) -> Self;

    /// Returns the number of the counter above.
    fn parent(&self) -> Option<usize>;

    /// Charges this counter alone. A refused charge leaves nothing behind but a counted failure.
    fn try_charge(&self, amount: Self::Amount) -> bool;

    /// Uncharges this counter alone.
    fn uncharge(&self, amount: Self::Amount);

    /// Returns the usage.
    #[cfg(test)]
    fn usage(&self) -> Self::Amount;
}

/// Counters in a tree. The first is the root.
#[derive(Debug)]
pub struct Tree<C> {
    pub(super) counters: Vec<Padded<C>>,
}

impl<C> Default for Tree<C> {
    fn default() -> Tree<C> {
        Tree { counters: Vec::new() }
    }
}

impl<C: Counter> Tree<C> {
    /// Adds a counter with a limit, and returns its number. Parents come before their children.
    pub fn add(&mut self, limit: C::Amount, parent: Option<usize>) -> usize {
        assert!(parent.is_none_or(|parent| parent < self.counters.len()), "no such parent");
        self.counters.push(Padded(C::new(limit, parent)));
        self.counters.len() - 1
    }

    /// Charges a counter and all above it, or none of them. While a charge that is refused is taken back, other charges
    /// may be refused because of it.
    #[inline(always)]
    pub fn try_charge(&self, counter: usize, amount: C::Amount) -> bool {
        let mut next = Some(counter);
        while let Some(at) = next {
            if !self.counters[at].try_charge(amount) {
                self.take_back(counter, at, amount);
                return false;
            }
            next = self.counters[at].parent();
        }
        true
    }

    #[cold]
    fn take_back(&self, first: usize, end: usize, amount: C::Amount) {
        let mut at = first;
        while at != end {
            self.counters[at].uncharge(amount);
            at = self.counters[at].parent().expect("the one that refused is above");
        }
    }

    /// Uncharges a counter and all above it.
    #[inline(always)]
    pub fn uncharge(&self, counter: usize, amount: C::Amount) {
        let mut next = Some(counter);
        while let Some(at) = next {
            self.counters[at].uncharge(amount);
            next = self.counters[at].parent();
        }
    }

    /// Returns the usage of a counter.
    #[cfg(test)]
    pub fn usage(&self, counter: usize) -> C::Amount {
        self.counters[counter].usage()
    }
}
