//! A wrong uncharge, and the other charges and uncharges of its size, by line of the program.

use super::Site;
use super::account::{Account, Tally};
use crate::ledger::Ledger;
use crate::table::follow;
use crate::table::id::GroupId;
use crate::table::name::NAME_MAX;
use crate::table::path::{DEPTH_MAX, RowPath};
use std::fmt::{self, Write};
use std::panic::Location;

/// The most wrong uncharges that an [`AuditReport`](crate::AuditReport) distinguishes by group, units and line.
pub const AUDIT_REPORTS_MAX: usize = 256;
/// The most lines that a report names.
const SITES_SHOWN: usize = 8;
/// The most sizes that a report shows on either side of the returned size.
const SIZES_SHOWN: usize = 2;
/// Room for the longest path, so that it is written without allocating (`audit.rs`, A1).
const PATH_ROOM: usize = DEPTH_MAX * (NAME_MAX + 1) + 16;

/// A line that charged or uncharged, with its counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SiteCount {
    /// The line.
    pub site: &'static Location<'static>,
    /// Number of charges that it made.
    pub charged: u64,
    /// Number of charges that it returned, excluding known wrong uncharges.
    pub returned: u64,
}

/// Charges that one line made for one group and that are not returned yet.
///
/// It formats as a sentence: `/acme/q1 holds 3 charges of 1500 units in all, charged at src/sort.rs:12:9`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outstanding {
    /// The group.
    pub group: GroupId,
    /// Its path.
    pub path: String,
    /// The line that charged.
    pub site: &'static Location<'static>,
    /// Whether the charges are held by [`Charge`](crate::Charge)s, which return them when they drop.
    pub guard: bool,
    /// Number of charges.
    pub charges: u64,
    /// Sum of their units.
    pub units: u64,
}

/// An uncharge by [`Group::uncharge_units`](crate::Group::uncharge_units) of units that no charge had taken. It had
/// no effect. Wrong uncharges of the same group, size and line are kept as one, which describes the last of them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WrongUncharge {
    /// The group that was uncharged.
    pub group: GroupId,
    /// Its path. If the group is gone, the path that it had when it was charged, if known;
    /// otherwise empty.
    pub path: String,
    /// Whether the group was destroyed and had nothing left in it.
    pub gone: bool,
    /// The units of the wrong uncharge.
    pub units: u64,
    /// The line that uncharged.
    pub site: &'static Location<'static>,
    /// Number of wrong uncharges at that line.
    pub times: u64,
    /// Number of charges that the group held then, those of guards included.
    pub charges_held: u64,
    /// Sum of their units.
    pub units_held: u64,
    /// The lines that charged this size in this group or returned it before, as far back as is known. The line that
    /// returned most is first. At most eight.
    pub sites: Vec<SiteCount>,
    /// Number of further lines.
    pub more_sites: usize,
    /// Outstanding charges of the group in the sizes next to this one (and of this size in guards): at most two
    /// sizes in each direction.
    pub nearest: Vec<Outstanding>,
}

impl WrongUncharge {
    /// Creates an empty report with room for the output of [`describe`](Self::describe) and [`copy`](Self::copy).
    pub(crate) fn blank(site: Site) -> WrongUncharge {
        WrongUncharge {
            group: GroupId::NOBODY,
            path: String::with_capacity(PATH_ROOM),
            gone: false,
            units: 0,
            site,
            times: 0,
            charges_held: 0,
            units_held: 0,
            sites: Vec::with_capacity(SITES_SHOWN),
            more_sites: 0,
            nearest: Vec::with_capacity(SITES_SHOWN),
        }
    }

    pub(crate) fn is(&self, id: GroupId, units: u64, site: Site) -> bool {
        self.group == id && self.units == units && self.site == site
    }

    /// Records the present state, without the number of times.
    pub(crate) fn describe(
        &mut self,
        ledger: &Ledger,
        account: Option<&Account>,
        id: GroupId,
        units: u64,
    ) {
        self.group = id;
        self.units = units;
        self.gone = RowPath::of(ledger.table(), id).is_none();
        self.path.clear();
        if !self.gone {
            // The audit frees this allocation itself (A1).
            self.path.push_str(&follow::path_of(ledger.table(), id));
        } else if let Some(account) = account {
            self.path.push_str(&account.path);
        }
        self.sites.clear();
        self.nearest.clear();
        self.more_sites = 0;
        let Some(account) = account else { return };
        (self.charges_held, self.units_held) = (account.charges, account.units);
        if let Some(size) = account.sizes.get(&units) {
            for tally in size.tallies.iter().filter(|tally| !tally.guard) {
                self.name(tally);
            }
        }
        let below = account.sizes.range(..units).rev().filter(|(_, size)| size.is_held());
        let from = account.sizes.range(units..).filter(|(_, size)| size.is_held());
        for (&units, size) in below.take(SIZES_SHOWN).chain(from.take(SIZES_SHOWN)) {
            let held = size.tallies.iter().find(|tally| tally.held > 0);
            self.nearest.extend(held.map(|tally| Outstanding {
                group: id,
                path: String::new(),
                site: tally.site,
                guard: tally.guard,
                charges: tally.held,
                units: units.saturating_mul(tally.held),
            }));
        }
    }

    /// Inserts a line into the sorted list of named lines, or counts it.
    fn name(&mut self, tally: &Tally) {
        let &Tally { site, charged, returned, .. } = tally;
        let at = self.sites.partition_point(|named| named.returned >= returned);
        if self.sites.len() == SITES_SHOWN {
            self.more_sites += 1;
            if at == SITES_SHOWN {
                return;
            }
            self.sites.pop();
        }
        self.sites.insert(at, SiteCount { site, charged, returned });
    }

    /// Copies another report into this blank one without allocating.
    pub(crate) fn copy(self, other: &WrongUncharge) -> WrongUncharge {
        let WrongUncharge { mut path, mut sites, mut nearest, .. } = self;
        path.push_str(&other.path);
        sites.extend_from_slice(&other.sites);
        // Their paths are empty, so this allocates nothing.
        nearest.extend_from_slice(&other.nearest);
        WrongUncharge { path, sites, nearest, ..*other }
    }
}

fn times(n: u64) -> impl fmt::Display {
    std::fmt::from_fn(move |f| match n {
        1 => f.write_str("once"),
        2 => f.write_str("twice"),
        n => write!(f, "{n} times"),
    })
}

fn plural(n: u64, one: &'static str) -> impl fmt::Display {
    std::fmt::from_fn(move |f| write!(f, "{n} {one}{}", if n == 1 { "" } else { "s" }))
}

impl fmt::Display for Outstanding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outstanding { path, site, charges, units, .. } = self;
        let of = if *charges == 1 { "" } else { " in all" };
        let guard = if self.guard { " in a guard" } else { "" };
        let (charges, units) = (plural(*charges, "charge"), plural(*units, "unit"));
        write!(f, "{path} holds {charges} of {units}{of}{guard}, charged at {site}")
    }
}

impl fmt::Display for WrongUncharge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (id, units) = (self.group, plural(self.units, "unit"));
        match (&*self.path, self.gone) {
            ("", true) => f.write_str("a group that is gone")?,
            (path, true) => write!(f, "{path}, which is gone")?,
            (path, false) => f.write_str(path)?,
        }
        write!(
            f,
            " (row {}, generation {}): {} uncharged {units} {} that no charge had taken, which changed \
             nothing.",
            id.index(),
            id.generation(),
            self.site,
            times(self.times),
        )?;
        for (index, count) in self.sites.iter().enumerate() {
            f.write_str(if index == 0 { " Of this size, " } else { "; " })?;
            match (count.charged, count.returned) {
                (0, returned) => write!(f, "{} returned a charge {}", count.site, times(returned))?,
                (charged, 0) => write!(f, "{} charged {}", count.site, times(charged))?,
                (charged, returned) => write!(
                    f,
                    "{} charged {} and returned a charge {}",
                    count.site,
                    times(charged),
                    times(returned)
                )?,
            }
        }
        if self.more_sites > 0 {
            write!(f, "; and {}", plural(self.more_sites as u64, "more line"))?;
        }
        if !self.sites.is_empty() {
            f.write_char('.')?;
        }
        if self.charges_held == 0 {
            return f.write_str(" The group held nothing.");
        }
        write!(
            f,
            " The group held {} of {} in all",
            plural(self.charges_held, "charge"),
            plural(self.units_held, "unit")
        )?;
        for (index, held) in self.nearest.iter().enumerate() {
            f.write_str(if index == 0 { "; next to this in size, " } else { "; " })?;
            let guard = if held.guard { " in a guard" } else { "" };
            let each = plural(held.units / held.charges.max(1), "unit");
            write!(f, "{} of {each}{guard}, charged at {}", held.charges, held.site)?;
        }
        f.write_char('.')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sites() -> [Site; 11] {
        macro_rules! here {
            () => {
                Location::caller()
            };
        }
        // Each call must be on a line of its own.
        [
            here!(),
            here!(),
            here!(),
            here!(),
            here!(),
            here!(),
            here!(),
            here!(),
            here!(),
            here!(),
            here!(),
        ]
    }

    #[test]
    fn the_eight_lines_that_returned_most_are_named_and_the_others_counted() {
        let sites = sites();
        let tally = |returned: usize| Tally {
            site: sites[returned],
            guard: false,
            charged: 20,
            returned: returned as u64,
            held: 0,
        };
        for order in [
            (0..11).collect::<Vec<_>>(),
            (0..11).rev().collect(),
            vec![5, 0, 10, 3, 8, 1, 9, 2, 7, 4, 6],
        ] {
            let mut wrong = WrongUncharge::blank(sites[0]);
            order.iter().for_each(|&returned| wrong.name(&tally(returned)));
            let named: Vec<u64> = wrong.sites.iter().map(|named| named.returned).collect();
            assert_eq!((named, wrong.more_sites), ((3..11).rev().collect(), 3), "{order:?}");
            assert!(wrong.sites.iter().all(|named| named.site == sites[named.returned as usize]));
            assert_eq!(wrong.sites.capacity(), SITES_SHOWN, "nothing was allocated");
        }
    }
}
