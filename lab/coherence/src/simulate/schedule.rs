//! Finds the next event: a tree of the smallest times, with a leaf for each CPU and each line.

/// The time of an event that only another event can cause.
pub(super) const NEVER: u64 = u64::MAX;

/// Times of events, one a leaf. A walk down finds the earliest, and the lower leaf when two are equal.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    /// Node 1 is the root; node `n` has children `2 n` and `2 n + 1`; the leaves are the second half.
    times: Vec<u64>,
    leaves: usize,
}

impl Schedule {
    pub(super) fn new(leaves: usize) -> Schedule {
        let leaves = leaves.next_power_of_two().max(2);
        Schedule { times: vec![NEVER; 2 * leaves], leaves }
    }

    /// Sets a leaf's time.
    #[inline]
    pub(super) fn set(&mut self, leaf: usize, time: u64) {
        let mut node = self.leaves + leaf;
        self.times[node] = time;
        while node > 1 {
            let least = self.times[node].min(self.times[node ^ 1]);
            node /= 2;
            if self.times[node] == least {
                // The nodes above do not change either.
                return;
            }
            self.times[node] = least;
        }
    }

    /// Returns the earliest time and its leaf.
    #[inline]
    pub(super) fn next(&self) -> (u64, usize) {
        let time = self.times[1];
        let mut node = 1;
        while node < self.leaves {
            node = 2 * node + usize::from(self.times[2 * node] != time);
        }
        (time, node - self.leaves)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(crate::cases::few(file!(), 256))]

        #[test]
        fn the_earliest_is_found_and_the_lower_of_equals(
            leaves in 1usize..40,
            sets in prop::collection::vec((0usize..40, 0u64..20), 1..100),
        ) {
            let mut schedule = Schedule::new(leaves);
            let mut plain = vec![NEVER; leaves];
            for (leaf, time) in sets {
                let leaf = leaf % leaves;
                schedule.set(leaf, time);
                plain[leaf] = time;
                let least = *plain.iter().min().unwrap();
                let first = plain.iter().position(|&time| time == least).unwrap();
                prop_assert_eq!(schedule.next(), (least, first));
            }
        }
    }
}
