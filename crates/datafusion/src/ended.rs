//! Groups of consumers that have ended. They are destroyed together: that interrupts each other CPU once, and not once for each.

use crate::names::group_name;
use ledgerline::{CreateError, Group, OwnedGroup};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// So many groups of a pool wait for their end at the most. Each keeps a row of the ledger.
const MOST: usize = 32;

/// The groups of one pool and all below it that wait for their end.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    groups: Mutex<Vec<OwnedGroup>>,
    /// How many groups were given a number, since a live one had their name.
    numbered: AtomicU64,
}

impl Ended {
    /// Lets a group end soon.
    pub(crate) fn add(&self, group: OwnedGroup) {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        groups.push(group);
        let is_full = groups.len() >= MOST;
        drop(groups);
        if is_full {
            self.destroy();
        }
    }

    /// Destroys all that wait.
    pub(crate) fn destroy(&self) {
        let groups =
            std::mem::take(&mut *self.groups.lock().unwrap_or_else(PoisonError::into_inner));
        let groups: Vec<_> = groups.iter().map(OwnedGroup::group).collect();
        // The end of its query has destroyed one already, maybe.
        let _gone_already = Group::destroy_each(&groups);
    }

    /// Creates a group; destroys those that wait, and tries again, where no row is left. One whose name a live group has gets a
    /// number behind it: the partitions of several operators are called the same.
    pub(crate) fn create(&self, above: &OwnedGroup, name: &str) -> Result<OwnedGroup, CreateError> {
        match self.create_alone(above, name) {
            Err(CreateError::Exists) => {
                // Relaxed: the numbers differ, and that is all.
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
