//! The holdings of each group in the last looks.

use crate::watch::Look;
use ledgerline::GroupId;
use std::collections::HashMap;

/// The number of looks that are kept.
pub const LOOKS: usize = 16;

/// Marks a look without the group.
const ABSENT: u64 = u64::MAX;

/// The holdings of each group in the last [`LOOKS`] looks.
#[derive(Debug, Default)]
pub struct Histories {
    /// The number of looks that were taken.
    taken: usize,
    rings: HashMap<GroupId, Ring>,
}

#[derive(Debug)]
struct Ring {
    /// The last look with the group.
    last: usize,
    held: [u64; LOOKS],
}

impl Histories {
    /// Adds a look, and forgets groups that are gone.
    pub fn add(&mut self, look: &Look) {
        let taken = self.taken;
        for row in &look.rows {
            let fresh = || Ring { last: taken, held: [ABSENT; LOOKS] };
            let ring = self.rings.entry(row.id).or_insert_with(fresh);
            ring.last = taken;
            ring.held[taken % LOOKS] = row.current.min(ABSENT - 1);
        }
        self.rings.retain(|_, ring| ring.last == taken);
        self.taken += 1;
    }

    /// Returns the sum of the groups' holdings in each of the last looks, the last one last; `None` for a look without
    /// any of them.
    pub fn of(&self, groups: impl Iterator<Item = GroupId>) -> [Option<u64>; LOOKS] {
        let mut sums = [None; LOOKS];
        for ring in groups.filter_map(|group| self.rings.get(&group)) {
            for (age, sum) in sums.iter_mut().rev().enumerate().take(self.taken) {
                let held = ring.held[(self.taken - 1 - age) % LOOKS];
                if held != ABSENT {
                    *sum = Some(sum.unwrap_or(0u64).saturating_add(held));
                }
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::sample::{look, row};

    #[test]
    fn a_history_has_the_last_looks_with_gaps_where_a_group_was_not_there() {
        let mut histories = Histories::default();
        for number in 0..LOOKS as u64 + 3 {
            let mut rows = vec![row("/", 100 + number)];
            if number > 4 {
                rows.push(row("/late", number));
            }
            histories.add(&look(rows));
        }
        let root = histories.of([row("/", 0).id].into_iter());
        assert_eq!(root[0], Some(103), "the oldest three are gone");
        assert_eq!(root[LOOKS - 1], Some(100 + LOOKS as u64 + 2));
        let late = histories.of([row("/late", 0).id].into_iter());
        assert_eq!((late[1], late[2]), (None, Some(5)));
        let both = histories.of([row("/", 0).id, row("/late", 0).id].into_iter());
        assert_eq!((both[1], both[2]), (Some(104), Some(110)));
    }

    #[test]
    fn a_group_that_is_gone_is_forgotten() {
        let mut histories = Histories::default();
        histories.add(&look(vec![row("/", 1), row("/gone", 1)]));
        histories.add(&look(vec![row("/", 1)]));
        assert_eq!(histories.rings.len(), 1);
        assert_eq!(histories.of([row("/gone", 0).id].into_iter()), [None; LOOKS]);
    }
}
