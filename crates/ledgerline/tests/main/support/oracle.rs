//! The simple, slow implementation that the library is compared with.

use ledgerline::GroupId;
use std::collections::HashMap;
use std::sync::Mutex;

/// A tree of groups in a map: every charge walks all ancestors, under a lock.
#[derive(Default)]
pub struct Oracle {
    nodes: Mutex<HashMap<GroupId, Node>>,
}

#[derive(Clone)]
pub struct Node {
    pub parent: Option<GroupId>,
    pub live: bool,
    pub max: u64,
    pub usage: u64,
    pub peak: u64,
    pub charges: u64,
    pub uncharges: u64,
    pub max_events: u64,
    pub children: u32,
}

pub const NO_LIMIT: u64 = 1 << 62;

impl Oracle {
    pub fn new(root: GroupId) -> Oracle {
        let oracle = Oracle::default();
        oracle.add(root, None);
        oracle
    }

    pub fn add(&self, id: GroupId, parent: Option<GroupId>) {
        let mut nodes = self.nodes.lock().unwrap();
        if let Some(parent) = parent {
            nodes.get_mut(&parent).unwrap().children += 1;
        }
        let node = Node {
            parent,
            live: true,
            max: NO_LIMIT,
            usage: 0,
            peak: 0,
            charges: 0,
            uncharges: 0,
            max_events: 0,
            children: 0,
        };
        assert!(nodes.insert(id, node).is_none(), "an id was used twice");
    }

    pub fn get(&self, id: GroupId) -> Node {
        self.nodes.lock().unwrap()[&id].clone()
    }

    pub fn change(&self, id: GroupId, change: impl FnOnce(&mut Node)) {
        change(self.nodes.lock().unwrap().get_mut(&id).unwrap());
    }

    pub fn path(&self, id: GroupId) -> Vec<GroupId> {
        std::iter::successors(Some(id), |id| self.get(*id).parent).collect()
    }

    /// Returns those of `levels`, the lowest first, that have no room for `n`.
    pub fn full(&self, levels: &[GroupId], n: u64) -> Vec<GroupId> {
        let over = |id: &&GroupId| self.get(**id).usage + n > self.get(**id).max;
        levels.iter().filter(over).copied().collect()
    }

    pub fn add_usage(&self, levels: &[GroupId], n: u64) {
        for &id in levels {
            self.change(id, |node| {
                node.usage += n;
                node.peak = node.peak.max(node.usage);
            });
        }
    }

    pub fn remove_usage(&self, levels: &[GroupId], n: u64) {
        for &id in levels {
            self.change(id, |node| node.usage -= n);
        }
    }

    pub fn count(&self, id: GroupId, charges: u64, uncharges: u64) {
        for id in self.path(id) {
            self.change(id, |node| {
                node.charges += charges;
                node.uncharges += uncharges;
            });
        }
    }

    pub fn live(&self) -> Vec<(GroupId, Node)> {
        let nodes = self.nodes.lock().unwrap();
        nodes.iter().filter(|(_, node)| node.live).map(|(id, node)| (*id, node.clone())).collect()
    }
}
