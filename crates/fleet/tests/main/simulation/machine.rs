//! A simulated machine: a process with its groups, the node code for each of its organisations, and its own clock.

use std::collections::BTreeMap;

use ledgerline_fleet::message::above;
use ledgerline_fleet::node::{AtEnd, Node, Reading, Settings};

/// A group of a ledger, as far as limits are concerned.
#[derive(Clone, Debug, Default)]
pub struct Group {
    pub max: u64,
    pub used: u64,
    pub refused: u64,
}

/// A charge that the machine holds.
#[derive(Clone, Debug)]
pub struct Charge {
    pub organisation: usize,
    pub path: String,
    pub units: u64,
}

/// The machine's part in one organisation.
#[derive(Debug)]
pub struct Party {
    pub node: Node,
    pub groups: BTreeMap<String, Group>,
    /// The budgets that its work uses.
    pub opened: Vec<String>,
    /// Time of the current wake event, in true time. Others are ignored.
    pub wake: u64,
    pub looked: u64,
    /// The earliest true time at which the book frees its units, unless it renews their leases.
    pub freed: u64,
    /// When it last renewed them, in the book's time.
    pub renewed: u64,
}

#[derive(Debug)]
pub struct Machine {
    pub name: String,
    pub incarnation: u64,
    pub alive: bool,
    pub at_end: AtEnd,
    /// Rate of its clock, in thousandths of the true time.
    pub rate: u64,
    pub offset: u64,
    pub paused: u64,
    pub cut_off: u64,
    /// Probability that it charges rather than frees, in thousandths.
    pub appetite: u64,
    pub parties: BTreeMap<usize, Party>,
    pub charges: Vec<Charge>,
}

impl Machine {
    /// Returns its clock at a true time.
    pub fn clock(&self, now: u64) -> u64 {
        self.offset + now * self.rate / 1000
    }

    /// Returns the true time at which its clock shows `local`, or a moment later.
    pub fn when(&self, local: u64) -> u64 {
        (local.saturating_sub(self.offset) * 1000).div_ceil(self.rate)
    }

    pub fn join(&mut self, now: u64, organisation: usize, reserve: u64, paths: Vec<String>) {
        let settings = Settings { at_end: self.at_end, reserve };
        let mut node = Node::new(&self.name, self.incarnation, settings);
        let clock = self.clock(now);
        for path in &paths {
            node.open(clock, path);
        }
        let groups = node.budgets().map(|b| (b.path.to_owned(), Group::default())).collect();
        let party =
            Party { node, groups, opened: paths, wake: u64::MAX, looked: 0, freed: 0, renewed: 0 };
        self.parties.insert(organisation, party);
    }

    /// Charges like a ledger does: on all levels, or none.
    pub fn try_charge(&mut self, organisation: usize, path: &str, units: u64) -> bool {
        let Some(party) = self.parties.get_mut(&organisation) else { return false };
        let mut level = Some(path);
        while let Some(path) = level {
            let Some(group) = party.groups.get_mut(path) else { return false };
            if group.used + units > group.max {
                group.refused += 1;
                return false;
            }
            level = above(path);
        }
        party.add(path, units);
        self.charges.push(Charge { organisation, path: path.to_owned(), units });
        true
    }

    /// Returns one of its charges.
    pub fn free(&mut self, which: usize) -> Charge {
        let charge = self.charges.swap_remove(which);
        if let Some(party) = self.parties.get_mut(&charge.organisation) {
            party.take(&charge.path, charge.units);
        }
        charge
    }

    /// Acts as a reclaimer: returns charges below `path` until no more than `max` is used there, or none is left.
    pub fn reclaim(&mut self, organisation: usize, path: &str, max: u64) -> Vec<Charge> {
        let below = format!("{path}/");
        let mut freed = Vec::new();
        while self.used(organisation, path) > max {
            let which = self.charges.iter().position(|charge| {
                charge.organisation == organisation
                    && (charge.path == path || charge.path.starts_with(&below))
            });
            let Some(which) = which else { break };
            freed.push(self.free(which));
        }
        freed
    }

    pub fn used(&self, organisation: usize, path: &str) -> u64 {
        let group = self.parties.get(&organisation).and_then(|party| party.groups.get(path));
        group.map_or(0, |group| group.used)
    }
}

impl Party {
    fn add(&mut self, path: &str, units: u64) {
        let mut level = Some(path);
        while let Some(path) = level {
            self.groups.get_mut(path).expect("a level of the path").used += units;
            level = above(path);
        }
    }

    fn take(&mut self, path: &str, units: u64) {
        let mut level = Some(path);
        while let Some(path) = level {
            self.groups.get_mut(path).expect("a level of the path").used -= units;
            level = above(path);
        }
    }

    /// Returns each group with the units that could be used there: at most the limit of each level.
    pub fn usable(&self) -> impl Iterator<Item = (&String, &Group, u64)> {
        // The levels above the present one with their usable units. Paths are in order.
        let mut above: Vec<(&str, u64)> = Vec::new();
        self.groups.iter().map(move |(path, group)| {
            let is_below =
                |level: &str| path.strip_prefix(level).is_some_and(|rest| rest.starts_with('/'));
            while above.pop_if(|(level, _)| !is_below(level)).is_some() {}
            let most = above.last().map_or(u64::MAX, |(_, most)| *most).min(group.max);
            above.push((path, most));
            (path, group, most)
        })
    }
}

/// Returns the node's readings of its groups. The node reads each once, in the order of their paths.
pub fn readings(groups: &BTreeMap<String, Group>) -> impl FnMut(&str) -> Reading {
    let mut rest = groups.iter();
    move |path| {
        let found = rest.by_ref().find(|(known, _)| *known == path);
        let (_, group) = found.expect("a group for each of its budgets");
        Reading { used: group.used, refused: group.refused }
    }
}
