//! Keeps the peaks that the readers of groups noted (`report/peak.rs`).

use crate::gate::lock::{self, Gated};
use crate::table::id::GroupId;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// The peaks that readers in this process noted.
#[derive(Debug, Default)]
pub(crate) struct Peaks(Mutex<Noted>);

#[derive(Debug, Default)]
pub(crate) struct Noted {
    /// The least and the most, by group and reader.
    by_reader: BTreeMap<(u64, u64), (u64, u64)>,
    numbers: u64,
}

impl Peaks {
    /// Locks the peaks inside the gate, so that no fork finds them locked.
    pub(crate) fn lock(&self) -> Gated<'_, Noted> {
        lock::gated(&self.0)
    }
}

impl Noted {
    /// Adds a reader and returns its number.
    pub(crate) fn add(&mut self, group: GroupId) -> u64 {
        self.numbers += 1;
        self.by_reader.insert((group.raw(), self.numbers), (0, 0));
        self.numbers
    }

    pub(crate) fn remove(&mut self, group: GroupId, reader: u64) {
        self.by_reader.remove(&(group.raw(), reader));
    }

    /// Returns the peak that a reader noted.
    pub(crate) fn of(&self, group: GroupId, reader: u64) -> (u64, u64) {
        self.by_reader.get(&(group.raw(), reader)).copied().unwrap_or_default()
    }

    /// Removes a reader's peak.
    pub(crate) fn forget(&mut self, group: GroupId, reader: u64) {
        if let Some(noted) = self.by_reader.get_mut(&(group.raw(), reader)) {
            *noted = (0, 0);
        }
    }

    /// Notes a peak for each reader of a group.
    pub(crate) fn note(&mut self, group: GroupId, (least, most): (u64, u64)) {
        let theirs = (group.raw(), 0)..=(group.raw(), u64::MAX);
        for (_, noted) in self.by_reader.range_mut(theirs) {
            *noted = (noted.0.max(least), noted.1.max(most));
        }
    }
}
