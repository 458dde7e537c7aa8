//! The index of names: finds a live group by its parent and its name.
//!
//! ```text
//! heads     a word for each of at most 32 768 lists: its first row, and whether a thread has it locked
//! links     half a word for each row: 12 bits of its hash, and the next row of its list
//! ```
//!
//! A lookup goes through the links of one list, which lie together, and reads a row only if the hashes match. A list has
//! at most sixteen rows in a ledger of up to half a million groups, and thirty-two in one of a million. A thread locks a
//! list to look at it or to change it, since a row that leaves one list may join another.
//!
//! Each change is one store, so a thread that is killed in the middle leaves the list intact, but locked. A thread that
//! has waited as long as another may be preempted takes the lock over. If the other thread was merely stopped, both may
//! change the list: it may then lose a name, which two groups may have from then on. A list that another program wrote
//! over still ends, after as many links as there are rows.
//!
//! Invariant N1: all words of both parts are atomics, and a row's number is compared with the capacity before it is followed.

use super::Table;
use super::handle::CAPACITY_MAX;
use super::name;
use super::plan::Plan;
use super::row::{Row, state};
use crate::counter::changes::mixed;
use crate::sync::{AtomicU32, Ordering, PATIENCE, wait_until};

/// The most lists.
const LISTS: usize = 1 << 15;
/// In a head: a thread has locked the list.
const LOCKED: u32 = 1 << 31;

impl Plan {
    pub(super) const fn lists(self) -> usize {
        let lists = (self.capacity / 16).next_power_of_two();
        if lists < LISTS { lists } else { LISTS }
    }

    pub(super) const fn heads_of_names(self) -> usize {
        Plan::pages(self.lists() * 4)
    }

    /// Returns the size of the index in bytes.
    pub(super) const fn names_size(self) -> usize {
        self.heads_of_names() + Plan::pages(self.capacity * 4)
    }
}

/// The locked list that holds a name.
pub(crate) struct List<'t> {
    table: &'t Table,
    head: &'t AtomicU32,
    first: u32,
    tag: u32,
}

impl Drop for List<'_> {
    fn drop(&mut self) {
        // Release, partner of the Acquire in `list_of`.
        self.head.store(self.first, Ordering::Release);
    }
}

impl Table {
    /// Locks the list of a name below a parent's row. The caller must be inside the gate, so that no fork finds it locked.
    pub(crate) fn list_of(&self, parent: u32, name: &[u8]) -> List<'_> {
        let chunk = |chunk: &[u8]| {
            let mut bytes = [0; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            u64::from_ne_bytes(bytes)
        };
        let begin = mixed(u64::from(parent) + 1);
        let hash = name.chunks(8).fold(begin, |hash, part| mixed(hash ^ chunk(part)));
        let list = hash as usize % self.plan.lists();
        // SAFETY: N1 (guarded by `words_of_each_kind_written_over_all_the_time…`): `plan` leaves as many words there.
        let head = unsafe { &*self.region().at::<AtomicU32>(self.plan.names() + 4 * list) };
        let lock = || {
            let first = head.load(Ordering::Relaxed);
            let free = first & LOCKED == 0;
            // Acquire, partner of the Release in `drop`: the links are as the last holder left them.
            let take = || {
                head.compare_exchange(first, first | LOCKED, Ordering::Acquire, Ordering::Relaxed)
            };
            (free && take().is_ok()).then_some(first)
        };
        let mut first = None;
        wait_until(Some(PATIENCE), || {
            first = lock();
            first.is_some()
        });
        let first = first.unwrap_or_else(|| head.load(Ordering::Acquire) & !LOCKED);
        List { table: self, head, first, tag: (hash >> 32) as u32 & TAG }
    }

    fn link(&self, row: u32) -> &AtomicU32 {
        assert!(row < self.capacity());
        let links = self.plan.names() + self.plan.heads_of_names();
        // SAFETY: N1: below the capacity.
        unsafe { &*self.region().at(links + 4 * row as usize) }
    }
}

/// In a link: the next row, and above it the tag.
const NEXT: u32 = 20;
const TAG: u32 = (1 << (32 - NEXT)) - 1;
const _: () = assert!(CAPACITY_MAX <= 1 << NEXT);

/// Splits a link into a row's tag and the next row. The root has no name, so row zero ends a list.
fn parts(link: u32) -> (u32, u32) {
    (link >> NEXT, link & ((1 << NEXT) - 1))
}

impl List<'_> {
    /// Iterates over the rows of the list, each with its tag and the row before it.
    fn rows(&self) -> impl Iterator<Item = (u32, u32, Option<u32>)> {
        let (mut before, mut row) = (None, self.first);
        let next = move || {
            if row == 0 || row >= self.table.capacity() {
                return None;
            }
            let (tag, next) = parts(self.table.link(row).load(Ordering::Relaxed));
            let found = (row, tag, before);
            (before, row) = (Some(row), next);
            Some(found)
        };
        std::iter::from_fn(next).take(self.table.capacity() as usize)
    }

    /// Returns the live row of that name below the parent, if there is one. If a thread has begun to destroy the row, waits
    /// for it: another thread's call may already report that the group is gone.
    pub(crate) fn find(&self, parent: u32, name: &[u8]) -> Option<u32> {
        let is_live = |row: &Row| row.state.load(Ordering::Acquire) == state::LIVE;
        let is = |row: &Row| {
            if !is_live(row) || row.parent.load(Ordering::Relaxed) != parent || !row.has_name(name)
            {
                return false;
            }
            // The destroying thread retires the row before it asks for this list.
            wait_until(Some(PATIENCE), || !row.refuses_children() || !is_live(row));
            is_live(row)
        };
        let same_tag = self.rows().filter(|&(_, tag, _)| tag == self.tag);
        same_tag.map(|(row, ..)| row).find(|&row| is(self.table.row(row)))
    }

    /// Adds a row with this name.
    pub(crate) fn add(&mut self, row: u32) {
        let link = self.tag << NEXT | self.first;
        self.table.link(row).store(link, Ordering::Relaxed);
        self.first = row;
        // Stored at once, so that a thread that dies here leaves the row in its list. Release, as in `drop`.
        self.head.store(row | LOCKED, Ordering::Release);
    }

    fn remove(&mut self, row: u32) {
        let Some((_, _, before)) = self.rows().find(|&(found, ..)| found == row) else { return };
        let (_, next) = parts(self.table.link(row).load(Ordering::Relaxed));
        match before {
            None => self.first = next,
            Some(before) => {
                let (tag, _) = parts(self.table.link(before).load(Ordering::Relaxed));
                let link = tag << NEXT | next;
                self.table.link(before).store(link, Ordering::Relaxed);
            }
        }
    }
}

/// Removes the name of a row whose group has ended. The caller must be inside the gate.
pub(crate) fn forget(table: &Table, index: u32) {
    let row = table.row(index);
    let bytes = row.name_bytes();
    let parent = row.parent.load(Ordering::Relaxed);
    table.list_of(parent, name::before_zeros(&bytes).0).remove(index);
}

#[cfg(test)]
mod tests {
    use crate::Ledger;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #![proptest_config(crate::cases::few(file!(), 64))]

        /// Uses few lists, so that each has many rows.
        #[test]
        fn a_group_is_found_by_its_name_as_long_as_it_lives(
            steps in prop::collection::vec((0u32..40, any::<bool>()), 1..300),
        ) {
            let ledger = Ledger::builder().capacity(64).anonymous().unwrap();
            let parents = [ledger.root(), ledger.root().create("parent").unwrap()];
            let mut live = BTreeMap::new();
            for (number, ends) in steps {
                let parent = parents[number as usize % 2];
                let name = format!("q{}", number / 2);
                if ends {
                    if let Some(group) = live.remove(&number) {
                        let group: crate::Group<'_> = group;
                        group.destroy().unwrap();
                    }
                } else if let Some(group) = live.get(&number) {
                    prop_assert_eq!(parent.create(&name), Err(crate::CreateError::Exists));
                    prop_assert_eq!(parent.get_or_create(&name), Ok(*group));
                } else {
                    live.insert(number, parent.create(&name).unwrap());
                }
                for number in 0..40 {
                    let found = parents[number as usize % 2].child(&format!("q{}", number / 2));
                    prop_assert_eq!(found, live.get(&number).copied());
                }
            }
        }
    }

    #[test]
    fn a_list_that_a_killed_thread_left_locked_is_taken_over() {
        let ledger = Ledger::builder().capacity(8).anonymous().unwrap();
        let group = ledger.root().create("q").unwrap();
        std::mem::forget(ledger.table().list_of(0, b"q"));
        assert_eq!(ledger.root().child("q"), Some(group));
        std::mem::forget(ledger.table().list_of(0, b"q"));
        group.destroy().unwrap();
        assert_eq!(ledger.root().child("q"), None);
    }

    #[test]
    fn a_list_that_was_written_over_has_an_end() {
        let ledger = Ledger::builder().capacity(8).anonymous().unwrap();
        let [a, b] = ["a", "b"].map(|name| ledger.root().create(name).unwrap());
        let table = ledger.table();
        for [of_a, of_b] in [[b, a].map(|it| it.id().index()), [9, 1 << 19], [u32::MAX; 2]] {
            for (group, link) in [(a, of_a), (b, of_b)] {
                table.link(group.id().index()).store(link, super::Ordering::Relaxed);
            }
            let _ = (ledger.root().child("c"), ledger.root().child("a"));
        }
        let _ = (a.destroy(), ledger.root().create("a"));
    }
}
