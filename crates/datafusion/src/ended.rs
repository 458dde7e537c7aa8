//! Ended groups of consumers. They are destroyed together, which interrupts each other CPU once, and not once per
//! group.

use crate::names::group_name;
use ledgerline::{CreateError, Group, OwnedGroup};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// The most groups of a pool that wait for their end. Each keeps a row of the ledger.
const MOST: usize = 32;

/// The groups of one pool and of those below it that wait for their end.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    groups: Mutex<Vec<OwnedGroup>>,
    /// The number of groups that were given a number, since a live one had their name.
    numbered: AtomicU64,
}

impl Ended {
    /// Queues a group to be destroyed soon.
    pub(crate) fn add(&self, group: OwnedGroup) {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        groups.push(group);
        let is_full = groups.len() >= MOST;
        drop(groups);
        if is_full {
            self.destroy();
        }
    }

    /// Destroys all queued groups.
    pub(crate) fn destroy(&self) {
        let groups =
            std::mem::take(&mut *self.groups.lock().unwrap_or_else(PoisonError::into_inner));
        let groups: Vec<_> = groups.iter().map(OwnedGroup::group).collect();
        // The end of its query may have destroyed a group already.
        let _gone_already = Group::destroy_each(&groups);
    }

    /// Creates a group. If no row is left, destroys the queued groups and tries again. If a live group has the name, a
    /// number is appended: the partitions of several operators have equal names.
    pub(crate) fn create(&self, above: &OwnedGroup, name: &str) -> Result<OwnedGroup, CreateError> {
        match self.create_alone(above, name) {
            Err(CreateError::Exists) => {
                // Relaxed: only the difference of the numbers matters.
                let number = self.numbered.fetch_add(1, Ordering::Relaxed) + 2;
                self.create_alone(above, &group_name(&format!("{name}.{number}")))
            }
            created => created,
        }
    }

    fn create_alone(&self, above: &OwnedGroup, name: &str) -> Result<OwnedGroup, CreateError> {
        match above.create(name) {
            Err(CreateError::Full { .. }) => {
                self.destroy();
                above.create(name)
            }
            created => created,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledgerline::Ledger;
    use std::sync::Arc;

    #[test]
    fn ended_groups_go_together_and_keep_no_row_from_those_that_begin() {
        let ledger = Arc::new(Ledger::builder().capacity(64).anonymous().unwrap());
        let (root, ended) = (ledger.owned_root(), Ended::default());
        let live = || ledger.root().children().count();
        for at in 1..MOST {
            ended.add(ended.create(&root, "sort").unwrap());
            assert_eq!(live(), at);
        }
        ended.add(ended.create(&root, "sort").unwrap());
        assert_eq!(live(), 0);

        let kept = (0..62).map(|_| ended.create(&root, "join").unwrap()).collect::<Vec<_>>();
        ended.add(root.create("sort").unwrap());
        assert!(matches!(root.create("scan"), Err(CreateError::Full { .. })));
        ended.create(&root, "sort").unwrap();
        assert_eq!(live(), kept.len() + 1);
        assert!(ended.create(&root, "sort").is_err());
    }
}
