//! A diagnosis explains why a charge was refused: which groups hold the units, from the charged group to the root and below
//! the full one.

use crate::control::protection;
use crate::control::protection::{Protection, Unclaimed};
use crate::control::watchdog::{self, HungReclaimer};
use crate::group::Group;
use crate::ledger::Ledger;
use crate::os;
use crate::report::scan::Scan;
use crate::size::Limit;
use crate::sync::{AtomicU64, Ordering};
use crate::table::follow;
use crate::table::id::GroupId;
use crate::table::row::state;
use crate::whose;
use std::io::Read;

/// How many consumers a [`Diagnosis`] lists by default.
pub const CONSUMERS: usize = 10;

/// The state of the groups on a charge's path, and the groups that fill the full one.
///
/// It prints as a table for a terminal.
///
/// ```
/// # use ledgerline::{Ledger, Limit};
/// let ledger = Ledger::new()?;
/// let tenant = ledger.root().create("acme")?;
/// tenant.set_max("512K".parse()?)?;
/// let [small, large] = [tenant.create("small")?, tenant.create("large")?];
/// let _held = large.try_charge(500 << 10)?;
///
/// let refused = small.try_charge(64 << 10).unwrap_err();
/// let diagnosis = ledger.diagnose(&refused);
/// assert_eq!(diagnosis.full().path, "/acme");
/// assert_eq!(diagnosis.holders[0].path, "/acme/large");
/// eprintln!("{diagnosis}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Diagnosis {
    /// How many units were requested, if this explains a refusal.
    pub requested: Option<u64>,
    /// The groups from the charged one (first) to the root (last). A charged group that is gone by now is left out, with its
    /// ancestors up to the group that refused.
    pub chain: Vec<ChainLevel>,
    /// The index in `chain` of the full group: the one that refused, or else the one with the least room, or the root if none
    /// has a limit.
    pub full: usize,
    /// How many groups below the full one, itself included, hold units themselves.
    pub groups: usize,
    /// The groups that hold most themselves, without their children.
    pub holders: Vec<Consumer>,
    /// The groups below the full one that hold most together with all groups below them.
    pub subtrees: Vec<Consumer>,
    /// The reclaimers of the full group and of those below it that have run for ten times as long as they may
    /// ([`LedgerBuilder::reclaim_time`](crate::LedgerBuilder::reclaim_time)).
    pub hung: Vec<HungReclaimer>,
    /// Units that lie idle below the full group. They are returned before a charge is refused.
    pub idle: u64,
    /// Units charged in the whole ledger.
    pub charged: u64,
    /// Resident memory of this process in bytes; `None` if it is not known, and in a ledger that processes share. Comparable
    /// with `charged` only if the ledger counts bytes.
    pub resident: Option<u64>,
    /// See [`Snapshot::steady`](crate::Snapshot::steady).
    pub steady: bool,
}

/// A group that a charge passes on its way to the root.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChainLevel {
    /// Its number.
    pub id: GroupId,
    /// Its path.
    pub path: String,
    /// Units charged in its subtree, without idle ones.
    pub current: u64,
    /// Units that are reserved, but not granted: for a moment those of charges under way, and for good those of a process
    /// that was killed in the middle of a charge. They are charged to no group, but reduce the room.
    pub reserved: u64,
    /// The most units that may lie idle in its subtree.
    pub idle_bound: u64,
    /// The hard limit.
    pub max: Limit,
    /// The soft limit.
    pub high: Limit,
    /// Its `low`: protected unless no other memory is left.
    pub low: Limit,
    /// Its `min`: always protected.
    pub min: Limit,
    /// Its effective protection when the root is reclaimed. Protection that no child claims is lost.
    pub protection: Protection,
    /// How many charges met its own limit, and were refused or granted above it.
    pub max_events: u64,
}

impl ChainLevel {
    /// Returns the units that it can still be charged; `None` without a limit.
    pub fn room(&self) -> Option<u64> {
        let taken = self.current.saturating_add(self.reserved);
        self.max.get().map(|max| max.saturating_sub(taken))
    }
}

/// A group that holds units.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Consumer {
    /// Its number.
    pub id: GroupId,
    /// Its path.
    pub path: String,
    /// How many units it holds.
    pub units: u64,
    /// Its share of the units charged below the full group, in thousandths.
    pub permille: u32,
    /// Whether it was destroyed before all its charges were returned.
    pub destroyed: bool,
}

impl Diagnosis {
    /// Returns the full group.
    pub fn full(&self) -> &ChainLevel {
        &self.chain[self.full]
    }

    /// Returns the resident bytes that are charged to no group: code, stacks, memory that the allocator keeps, and memory
    /// that was never charged. Useful only if the ledger counts bytes.
    pub fn uncharged(&self) -> Option<u64> {
        self.resident.map(|resident| resident.saturating_sub(self.charged))
    }
}

impl Group<'_> {
    /// Returns which groups hold the units: each group from this one to the root, and the [`CONSUMERS`] largest below the
    /// one of them with the least room.
    ///
    /// Costs a pass over the rows in use (milliseconds in a large ledger) and one more for each level of the chain. Not
    /// async-signal-safe. For a group that is gone, returns the root's diagnosis.
    pub fn diagnose(self) -> Diagnosis {
        self.diagnose_with(CONSUMERS)
    }

    /// Like [`diagnose`](Self::diagnose), but with the given number of largest consumers.
    pub fn diagnose_with(self, consumers: usize) -> Diagnosis {
        let id = self.read(|_| self.id()).unwrap_or(GroupId::NOBODY);
        self.ledger().diagnose_from(id, None, None, consumers)
    }
}

impl Ledger {
    pub(crate) fn diagnose_from(
        &self,
        charged: GroupId,
        full: Option<GroupId>,
        requested: Option<u64>,
        most: usize,
    ) -> Diagnosis {
        // The caller itself may be charged to a group that is full, so this is exempt from charging.
        whose::nobody(|| {
            let mut scan = Scan::of(self.table());
            scan.sum_up();
            let known = |id: GroupId| {
                let line = scan.lines.get(id.index() as usize);
                line.is_some_and(|line| {
                    line.state != state::FREE && line.generation == id.generation()
                })
            };
            let first = [Some(charged), full].into_iter().flatten().find(|&id| known(id));
            let mut rows = vec![first.unwrap_or(GroupId::ROOT).index()];
            while let Some(&row) = rows.last().filter(|&&row| row != 0) {
                rows.push(scan.lines[row as usize].parent);
            }
            let chain = self.chain(&scan, &rows);
            let refused_by = full.and_then(|full| chain.iter().position(|level| level.id == full));
            let tightest = || {
                let limited = chain.iter().enumerate().filter(|(_, level)| level.room().is_some());
                limited.min_by_key(|(_, level)| level.room()).map(|(at, _)| at)
            };
            let full = refused_by.or_else(tightest).unwrap_or(chain.len() - 1);
            let [own, subtrees] = below(&scan, rows[full]);
            Diagnosis {
                requested,
                full,
                groups: own.len(),
                holders: self.consumers(&scan, rows[full], own, most),
                subtrees: self.consumers(&scan, rows[full], subtrees, most),
                hung: watchdog::hung_below(self, chain[full].id),
                idle: scan.lines[rows[full] as usize].idle,
                charged: scan.lines[0].current(),
                resident: if self.is_shared() { None } else { resident() },
                steady: scan.steady,
                chain,
            }
        })
    }

    fn chain(&self, scan: &Scan, rows: &[u32]) -> Vec<ChainLevel> {
        // The root is not protected from its own reclaim.
        let mut protections = vec![Protection::default()];
        protection::down(self, &rows[..rows.len() - 1], Unclaimed::Lost, |of_row| {
            protections.push(of_row);
        });
        protections.reverse();
        let level = |(&row, protection): (&u32, Protection)| {
            let line = &scan.lines[row as usize];
            let id = GroupId::from_parts(row, line.generation);
            // A group that has gone since the look no longer has limits. If its row still belongs to it now, it did so
            // while the protection was read.
            let gone = ChainLevel {
                id,
                path: follow::path_of(self.table(), id),
                current: line.current(),
                reserved: 0,
                idle_bound: 0,
                max: Limit::MAX,
                high: Limit::MAX,
                low: Limit::ZERO,
                min: Limit::ZERO,
                protection: Protection::default(),
                max_events: 0,
            };
            let read = follow::read_held(self.table(), id, |row| {
                let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
                let (track, limits) = (&row.counter.track, &row.counter.limits);
                ChainLevel {
                    reserved: row.counter.reserved_by_charges(),
                    idle_bound: track.prepaid.units(),
                    max: Limit::units(row.counter.max_as_set()),
                    high: Limit::units(load(&limits.high)),
                    low: Limit::units(load(&limits.low)),
                    min: Limit::units(load(&limits.min)),
                    protection,
                    max_events: load(&track.max_events),
                    ..gone.clone()
                }
            });
            read.unwrap_or(gone)
        };
        rows.iter().zip(protections).map(level).collect()
    }

    /// Returns the largest of some rows, each given with its units.
    fn consumers(
        &self,
        scan: &Scan,
        full: u32,
        mut rows: Vec<(u64, u32)>,
        most: usize,
    ) -> Vec<Consumer> {
        rows.sort_unstable_by_key(|&(units, row)| (std::cmp::Reverse(units), row));
        rows.truncate(most);
        let all = u128::from(scan.lines[full as usize].current()).max(1);
        let consumer = |(units, row): (u64, u32)| {
            let line = &scan.lines[row as usize];
            let id = GroupId::from_parts(row, line.generation);
            Consumer {
                id,
                path: follow::path_of(self.table(), id),
                units,
                // Groups that change meanwhile may seem to hold more than their parent.
                permille: (u128::from(units) * 1000 / all).min(1000) as u32,
                destroyed: line.is_destroyed(),
            }
        };
        rows.into_iter().map(consumer).collect()
    }
}

/// Returns the units that the rows of a subtree hold by themselves, and those that they hold with all groups below, each
/// with the row's number. Rows that hold nothing are left out.
fn below(scan: &Scan, top: u32) -> [Vec<(u64, u32)>; 2] {
    let lines = &scan.lines;
    let mut inside = vec![false; lines.len()];
    inside[top as usize] = true;
    let mut children = vec![0u64; lines.len()];
    let mut rows = scan.deepest_first();
    // Parents before their children.
    rows.reverse();
    for &row in rows.iter().filter(|&&row| row != top && row != 0) {
        let line = &lines[row as usize];
        inside[row as usize] = inside[line.parent as usize];
        let sum = &mut children[line.parent as usize];
        *sum = sum.saturating_add(line.current());
    }
    rows.retain(|&row| inside[row as usize]);
    let all = |row: u32| lines[row as usize].current();
    let own = rows.iter().map(|&row| (all(row).saturating_sub(children[row as usize]), row));
    let subtrees = rows.iter().filter(|&&row| row != top).map(|&row| (all(row), row));
    let holding = |&(units, _): &(u64, u32)| units > 0;
    [own.filter(holding).collect(), subtrees.filter(holding).collect()]
}

/// Returns the resident bytes of this process. Allocates nothing.
fn resident() -> Option<u64> {
    let mut text = [0u8; 128];
    let length = std::fs::File::open("/proc/self/statm").ok()?.read(&mut text).ok()?;
    let text = std::str::from_utf8(&text[..length]).ok()?;
    let pages: u64 = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    pages.checked_mul(os::page_size() as u64)
}
