//! The charges that one group holds, by size and by line of the program.

use super::Site;
use std::collections::BTreeMap;

/// The least number of sizes, or groups, before unused ones are forgotten.
const SWEEP_LEAST: usize = 64;

/// The outstanding charges of one group.
#[derive(Debug, Default)]
pub(crate) struct Account {
    /// The group's path when it was first charged: the group may be gone when the path is needed.
    pub(crate) path: String,
    pub(crate) charges: u64,
    pub(crate) units: u64,
    pub(crate) sizes: BTreeMap<u64, Size>,
    pub(super) sweep_at: usize,
    pub(super) used: bool,
}

/// The outstanding charges of one size in a group.
#[derive(Debug, Default)]
pub(crate) struct Size {
    pub(crate) tallies: Vec<Tally>,
    pub(super) used: bool,
}

/// The charges and uncharges of one size at one line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tally {
    pub(crate) site: Site,
    pub(crate) guard: bool,
    /// Charges made at this line and not returned yet.
    pub(crate) held: u64,
    /// Charges made at this line, and charges returned at it.
    pub(crate) charged: u64,
    pub(crate) returned: u64,
}

impl Size {
    pub(crate) fn is_held(&self) -> bool {
        self.tallies.iter().any(|tally| tally.held > 0)
    }

    pub(super) fn tally(&mut self, site: Site, guard: bool) -> &mut Tally {
        self.used = true;
        let same = |tally: &Tally| {
            tally.guard == guard && (std::ptr::eq(tally.site, site) || tally.site == site)
        };
        let at = self.tallies.iter().position(same).unwrap_or_else(|| {
            self.tallies.push(Tally { site, guard, held: 0, charged: 0, returned: 0 });
            self.tallies.len() - 1
        });
        &mut self.tallies[at]
    }
}

/// Returns whether a sweep is due: `known` has reached `sweep_at`.
pub(super) fn due(known: usize, sweep_at: usize) -> bool {
    known >= sweep_at.max(SWEEP_LEAST)
}

impl Account {
    pub(super) fn add(&mut self, units: u64, site: Site, guard: bool) {
        if due(self.sizes.len(), self.sweep_at) {
            self.sizes.retain(|_, size| std::mem::take(&mut size.used) || size.is_held());
            self.sweep_at = self.sizes.len() * 2;
        }
        self.used = true;
        self.charges += 1;
        self.units = self.units.saturating_add(units);
        let tally = self.sizes.entry(units).or_default().tally(site, guard);
        tally.held += 1;
        tally.charged += 1;
    }

    /// Takes one charge of a size out. Returns the line that made it, and the remaining charges of the size.
    pub(super) fn take(&mut self, units: u64, guard: bool) -> Option<(Site, &mut Size)> {
        let size = self.sizes.get_mut(&units)?;
        let held = |tally: &&mut Tally| tally.guard == guard && tally.held > 0;
        let tally = size.tallies.iter_mut().find(held)?;
        tally.held -= 1;
        let site = tally.site;
        size.used = true;
        self.used = true;
        self.charges -= 1;
        self.units = self.units.saturating_sub(units);
        Some((site, size))
    }
}
