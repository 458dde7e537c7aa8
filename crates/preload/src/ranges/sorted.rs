//! Entries in the order of their addresses, in an array: a binary tree that random ranks keep flat (a treap).
//!
//! Each node has a rank that its address decides, like a random number, and no node below has a higher rank. So
//! finding, entering and removing an entry costs some twenty steps in a full tree, in whatever order a program maps and
//! unmaps, and no other entry moves.

use super::Entry;

/// The most entries: more than the kernel's limit of mappings per process (`vm.max_map_count`), if that has its
/// default, plus those that the kernel merges ([`super::CROWDED`]).
pub(super) const MOST: usize = (1 << 16) + super::CROWDED;

/// No node. A place is its node's number, and no node has this one.
const NONE: u32 = 0;

#[derive(Clone, Copy)]
#[repr(C)]
struct Node {
    entry: Entry,
    /// The nodes below; for a free node, the next free one.
    below: [u32; 2],
}

/// The tree of the module's documentation. All zeros are a tree without entries.
#[repr(C)]
pub(super) struct Sorted {
    count: usize,
    top: u32,
    /// The first node that was removed.
    free: u32,
    /// The number of places that were ever used.
    touched: u32,
    nodes: [Node; MOST + 1],
}

impl Sorted {
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns the first entry that ends behind an address.
    pub(super) fn first_ending_behind(&self, address: usize) -> Option<Entry> {
        let (mut at, mut found) = (self.top, None);
        while at != NONE {
            let Node { entry, below } = self.nodes[at as usize];
            let is_behind = entry.end > address;
            if is_behind {
                found = Some(entry);
            }
            at = below[usize::from(!is_behind)];
        }
        found
    }

    /// Enters an entry that overlaps with no other; `false` if there is no room.
    pub(super) fn insert(&mut self, entry: Entry) -> bool {
        if self.count == MOST {
            return false;
        }
        let new = if self.free != NONE {
            let free = self.free;
            self.free = self.nodes[free as usize].below[0];
            free
        } else {
            self.touched += 1;
            self.touched
        };
        // It replaces the first node of a lower rank, whose subtree is split around it.
        let (mut parent, mut side, mut at) = (NONE, 0, self.top);
        while at != NONE && rank(self.nodes[at as usize].entry) >= rank(entry) {
            (parent, side) =
                (at, usize::from(self.nodes[at as usize].entry.start() < entry.start()));
            at = self.nodes[at as usize].below[side];
        }
        let below = self.part(at, entry.start());
        self.nodes[new as usize] = Node { entry, below };
        self.link(parent, side, new);
        self.count += 1;
        true
    }

    /// Removes the entry that starts at an address, which exists.
    pub(super) fn remove(&mut self, start: usize) {
        let (mut parent, mut side, mut at) = (NONE, 0, self.top);
        while at != NONE && self.nodes[at as usize].entry.start() != start {
            (parent, side) = (at, usize::from(self.nodes[at as usize].entry.start() < start));
            at = self.nodes[at as usize].below[side];
        }
        if at == NONE {
            return;
        }
        let joined = self.join(self.nodes[at as usize].below);
        self.link(parent, side, joined);
        self.nodes[at as usize].below[0] = self.free;
        self.free = at;
        self.count -= 1;
    }

    fn link(&mut self, parent: u32, side: usize, node: u32) {
        if parent == NONE {
            self.top = node;
        } else {
            self.nodes[parent as usize].below[side] = node;
        }
    }

    /// Splits the subtree at a place into the nodes that start before an address and the rest.
    fn part(&mut self, mut at: u32, start: usize) -> [u32; 2] {
        let mut parts = [NONE; 2];
        // The node that each part continues below, on the side that faces the other part.
        let mut ends = [NONE; 2];
        while at != NONE {
            let side = usize::from(self.nodes[at as usize].entry.start() >= start);
            match ends[side] {
                NONE => parts[side] = at,
                end => self.nodes[end as usize].below[1 - side] = at,
            }
            ends[side] = at;
            at = self.nodes[at as usize].below[1 - side];
        }
        for (side, end) in ends.into_iter().enumerate().filter(|&(_, end)| end != NONE) {
            self.nodes[end as usize].below[1 - side] = NONE;
        }
        parts
    }

    /// Joins two parts of which the first lies before the second.
    fn join(&mut self, mut parts: [u32; 2]) -> u32 {
        let (mut top, mut end, mut end_side) = (NONE, NONE, 0);
        loop {
            let higher = match parts {
                [NONE, _] => 1,
                [_, NONE] => 0,
                [one, other] => {
                    let ranks = [one, other].map(|at| rank(self.nodes[at as usize].entry));
                    usize::from(ranks[1] > ranks[0])
                }
            };
            let at = parts[higher];
            match end {
                NONE => top = at,
                end => self.nodes[end as usize].below[end_side] = at,
            }
            if parts.contains(&NONE) {
                return top;
            }
            (end, end_side) = (at, 1 - higher);
            parts[higher] = self.nodes[at as usize].below[1 - higher];
        }
    }
}

/// Returns a rank that is as good as random: the finisher of MurmurHash3.
fn rank(entry: Entry) -> u64 {
    let mut bits = entry.start() as u64 >> 12;
    for factor in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53] {
        bits = (bits ^ bits >> 33).wrapping_mul(factor);
    }
    bits ^ bits >> 33
}

#[cfg(test)]
mod tests {
    use super::super::{Kind, Range};
    use super::*;
    use std::collections::BTreeMap;

    const PAGE: usize = 4096;

    fn tree() -> Box<Sorted> {
        // SAFETY: all zeros are a tree.
        unsafe { Box::new_zeroed().assume_init() }
    }

    fn page(at: usize) -> Entry {
        let (start, end) = (at * PAGE, (at + 1) * PAGE);
        Entry::new(Range { start, end, slot: 1, kind: Kind::Writable })
    }

    fn depth(tree: &Sorted, at: u32) -> usize {
        let below = |side: usize| depth(tree, tree.nodes[at as usize].below[side]);
        if at == NONE { 0 } else { 1 + below(0).max(below(1)) }
    }

    #[test]
    fn it_finds_what_a_map_of_the_standard_library_finds() {
        let (mut tree, mut map) = (tree(), BTreeMap::new());
        let mut random = 88_172_645_463_325_252_u64;
        for _ in 0..300_000 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let at = (random >> 16) as usize % 1000;
            match random % 3 {
                0 if map.contains_key(&at) => {
                    tree.remove(at * PAGE);
                    map.remove(&at);
                }
                1 if !map.contains_key(&at) => {
                    assert!(tree.insert(page(at)));
                    map.insert(at, ());
                }
                _ => {
                    let found = tree.first_ending_behind(at * PAGE).map(|entry| entry.start());
                    assert_eq!(found, map.range(at..).next().map(|(at, ())| at * PAGE));
                }
            }
            assert_eq!(tree.count(), map.len());
        }
        assert!(tree.touched <= 1000, "places are used again");
    }

    #[test]
    fn in_whatever_order_it_was_filled_it_is_flat() {
        let scattered = |n: usize| n * 40_503 % (1 << 16);
        let orders: [&dyn Fn(usize) -> usize; 4] =
            [&|n| n, &|n| (1 << 16) - n, &|n| n * 512, &scattered];
        for (which, order) in orders.into_iter().enumerate() {
            let mut tree = tree();
            assert!((0..1 << 16).all(|n| tree.insert(page(order(n) + 1))));
            // Random ranks alone give 38, and never twice as much.
            let deep = depth(&tree, tree.top);
            assert!(deep < 64, "{which}: {deep}");
        }
    }
}
