//! Follows a container: takes a sample, draws conclusions, and sets the root's max and the row's charge.
//!
//! ```text
//! a sample
//!   once a second: read the limits anew
//!   tracked = usage of the root - the row's charge         idle units count as tracked, as no other program has them
//!   for each limit:
//!     untracked = the kernel's charge against it - tracked, at least 0; the largest of the last moments
//!     room      = limit - margin - untracked
//!   the limit with the least room is the one that binds
//!   charge the row or uncharge it, to its untracked; set the root's max, to its limit - margin
//!
//! Each limit has its own measure. That of a cgroup further up includes the use of its other children; that on address
//! space includes mapped, untouched memory. So the smallest limit need not be the one that binds.

use super::limits::{self, Bound, Events, Limits, Source};
use super::pressure::Pressure;
use super::{Settings, cgroup::Version};
use crate::charge::guard::Charge;
use crate::group::Group;
use crate::size::{self, Limit};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often the limits are read anew.
const REREAD: Duration = Duration::from_secs(1);
/// The row keeps the largest number of the last one to two of these periods. The period is long compared with the time
/// between a charge and the first write to its memory, and short compared with the time in which a program reuses the
/// memory that its allocator kept.
const HOLD: Duration = Duration::from_millis(50);
/// The assumed growth in bytes a millisecond, a GiB a second. The next sample comes before memory that grows this fast has
/// used up the room and the margin.
const GROWTH: u64 = (1 << 30) / 1000;
const SHORTEST: Duration = Duration::from_millis(5);

/// The state of a ledger's container, as of the last sample. All sizes are bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// The limit that leaves the least room; `None` if there is none.
    pub limit: Option<Bound>,
    /// The part of that limit that the root's max leaves to the kernel.
    pub margin: u64,
    /// The max that was set for the root.
    pub max: Limit,
    /// The kernel's charge against the limit, with page cache up to a sixteenth of the limit; `None` if that cannot be
    /// measured.
    pub kernel: Option<u64>,
    /// The charge of the row [`UNTRACKED`](super::UNTRACKED): the maximum over the last 50 to 100 ms of the memory that the
    /// kernel charged and the ledger did not know.
    pub untracked: u64,
    /// Memory that was charged in the ledger, but not yet by the kernel, at that moment: it was not touched yet.
    pub untouched: u64,
    /// When the sample was taken.
    pub time: Instant,
    /// How many samples were taken.
    pub samples: u64,
    /// The most that a sample was late because the thread did not get a CPU. Untracked memory could grow for that much
    /// longer.
    pub late: Duration,
    /// How often the kernel reported pressure.
    pub pressure: u64,
    /// Units that reclaimers gave back for pressure, and because the row took the root above its max.
    pub reclaimed: u64,
    /// The kernel's files that are watched for pressure, and those that are not, with the reason.
    pub watched: Vec<String>,
}

impl fmt::Display for Status {
    /// `256.0M, memory.max of /sys/fs/cgroup/job: 197.3M in use, 12.1M untracked`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(limit) = &self.limit else { return f.write_str("no limit") };
        let untracked = size::format(self.untracked);
        match self.kernel {
            Some(kernel) => {
                write!(f, "{limit}: {} in use, {untracked} untracked", size::format(kernel))
            }
            None => write!(f, "{limit}; what is untracked is not known"),
        }
    }
}

/// A limit, and the untracked memory below it.
struct Followed {
    bound: Bound,
    margin: u64,
    held: Held,
}

/// The largest number of the last one to two [`HOLD`]s.
struct Held {
    now: u64,
    before: u64,
    since: Instant,
}

impl Held {
    fn new(now: Instant) -> Held {
        Held { now: 0, before: 0, since: now }
    }

    fn add(&mut self, number: u64, now: Instant) -> u64 {
        let age = now.saturating_duration_since(self.since);
        if age >= HOLD {
            self.before = if age < 2 * HOLD { self.now } else { 0 };
            (self.now, self.since) = (0, now);
        }
        self.now = self.now.max(number);
        self.now.max(self.before)
    }

    /// Subtracts a number that is no longer untracked.
    fn lower(&mut self, number: u64) {
        self.now = self.now.saturating_sub(number);
        self.before = self.before.saturating_sub(number);
    }
}

/// A ledger's root, its row, and the state of the container.
pub(super) struct Follower {
    root: Group<'static>,
    row: Group<'static>,
    settings: Settings,
    /// Whether processes share the ledger. Limits of a single process do not bind such a ledger.
    shared: bool,
    followed: Vec<Followed>,
    read: Option<Instant>,
    events: Events,
    /// The row's charge.
    held: Option<Charge<'static>>,
    pub(super) status: Status,
}

/// The requests of a sample, to be carried out when no lock is held.
pub(super) struct Next {
    /// The time until the next sample.
    pub(super) after: Duration,
    /// Units by which the root is above its max.
    pub(super) above: u64,
    /// Whether the cgroup's events tell of pressure.
    pub(super) pressure: bool,
    /// How many units to ask for in that case.
    pub(super) relief: u64,
}

/// Returns the lowest cgroup of this process that has a limit.
fn cgroup(followed: &[Followed]) -> Option<(Version, &Path)> {
    followed.iter().find_map(|followed| limits::folder(&followed.bound.source))
}

impl Follower {
    pub(super) fn new(
        root: Group<'static>,
        row: Group<'static>,
        shared: bool,
        settings: Settings,
    ) -> Follower {
        let status = Status {
            limit: None,
            margin: 0,
            max: Limit::MAX,
            kernel: None,
            untracked: 0,
            untouched: 0,
            time: Instant::now(),
            samples: 0,
            late: Duration::ZERO,
            pressure: 0,
            reclaimed: 0,
            watched: Vec::new(),
        };
        let (followed, events) = (Vec::new(), Events::default());
        Follower { root, row, settings, shared, followed, read: None, events, held: None, status }
    }

    /// Watches that cgroup for pressure, or the machine if no cgroup has a limit.
    pub(super) fn watch(&self) -> Pressure {
        Pressure::watch(&self.settings.system, cgroup(&self.followed))
    }

    /// Returns the folder of the watched cgroup, to notice when it changes.
    pub(super) fn watched(&self) -> Option<PathBuf> {
        cgroup(&self.followed).map(|(_, folder)| folder.to_owned())
    }

    fn read(&mut self, now: Instant) {
        self.read = Some(now);
        let limits = Limits::read_in(&self.settings.system);
        let mut old = std::mem::take(&mut self.followed);
        // Of limits with one measure the smallest binds. A limit that each process has for itself does not bind several.
        let counts = |bound: &&Bound| {
            let others = limits.all().iter().filter(|other| limits::have_one_measure(bound, other));
            let smallest = others.min_by_key(|other| other.bytes);
            smallest.is_some_and(|smallest| smallest.source == bound.source)
                && !(self.shared && matches!(bound.source, Source::AddressSpace | Source::Data))
        };
        self.followed = limits
            .all()
            .iter()
            .filter(counts)
            .map(|bound| {
                let same = old.iter().position(|it| it.bound.source == bound.source);
                let held = same.map_or_else(|| Held::new(now), |at| old.swap_remove(at).held);
                let margin = self.settings.margin_below(bound.bytes);
                Followed { bound: bound.clone(), margin, held }
            })
            .collect();
    }

    /// Returns the kernel's charge against a limit, or `None` if that cannot be measured.
    fn measure(&self, bound: &Bound) -> Option<u64> {
        // The share of the machine's memory that several processes have together is not known.
        if bound.source == Source::Machine && self.shared {
            return None;
        }
        limits::usage(&self.settings.system, &bound.source, bound.bytes)
    }

    /// Returns the units that the ledger knows of.
    fn tracked(&self) -> u64 {
        let usage = |group: Group<'static>| group.row().counter.usage();
        usage(self.root).saturating_sub(usage(self.row))
    }

    /// Returns for each limit the kernel's charge, and the units that the ledger knows of.
    pub(super) fn look(&self) -> Vec<(Source, u64, u64)> {
        let one = |followed: &Followed| {
            let source = followed.bound.source.clone();
            self.measure(&followed.bound).map(|kernel| (source, kernel, self.tracked()))
        };
        self.followed.iter().filter_map(one).collect()
    }

    /// Subtracts from the untracked memory what the kernel reclaimed since that look and no caller uncharged.
    pub(super) fn lower(&mut self, before: &[(Source, u64, u64)]) {
        for (source, kernel, tracked) in self.look() {
            let then = before.iter().find(|(other, ..)| *other == source);
            let Some(&(_, kernel_then, tracked_then)) = then else { continue };
            let back = kernel_then.saturating_sub(kernel);
            let back = back.saturating_sub(tracked_then.saturating_sub(tracked));
            let mut followed = self.followed.iter_mut();
            if let Some(followed) = followed.find(|followed| followed.bound.source == source) {
                followed.held.lower(back);
            }
        }
    }

    /// Takes a sample. With `fresh`, reads the limits anew.
    pub(super) fn sample(&mut self, fresh: bool) -> Next {
        let now = Instant::now();
        if fresh || self.read.is_none_or(|read| now.duration_since(read) >= REREAD) {
            self.read(now);
        }
        let mut least: Option<(u64, usize, u64, Option<u64>)> = None;
        for place in 0..self.followed.len() {
            let measured = self.measure(&self.followed[place].bound);
            // Read after the kernel's number: memory charged in between is not yet in that number, and memory freed in
            // between still is.
            let untracked = measured.map_or(0, |kernel| kernel.saturating_sub(self.tracked()));
            let followed = &mut self.followed[place];
            let untracked = followed.held.add(untracked, now);
            let room =
                followed.bound.bytes.saturating_sub(followed.margin).saturating_sub(untracked);
            if least.is_none_or(|(other, ..)| room < other) {
                least = Some((room, place, untracked, measured));
            }
        }
        let bound = least.map(|(_, place, ..)| &self.followed[place]);
        let margin = bound.map_or(0, |it| it.margin);
        let max = bound.map_or(Limit::MAX, |it| Limit::units(it.bound.bytes - it.margin));
        let max = max.min(self.settings.at_most);
        let max =
            max.get().map_or(max, |max| Limit::units(max.saturating_sub(self.settings.reserve)));
        let kernel = least.and_then(|(.., kernel)| kernel);
        let untracked = least.map_or(0, |(_, _, untracked, _)| untracked);
        let limit = bound.map(|it| it.bound.clone());

        // First the steps that take room, then those that make room, so that no charge in between gets room that neither
        // state allows.
        if max < self.root.max() {
            let _ = self.root.set_max_only(max);
        }
        self.charge(untracked);
        if max != self.root.max() {
            let _ = self.root.set_max_only(max);
        }

        let usage = self.root.row().counter.usage();
        let untouched = kernel.map_or(0, |kernel| self.tracked().saturating_sub(kernel));
        let pressure = self.events.are_more(cgroup(&self.followed));
        let samples = self.status.samples + 1;
        self.status = Status {
            limit,
            margin,
            max,
            kernel,
            untracked,
            untouched,
            time: now,
            samples,
            ..self.status.clone()
        };
        let room = max.raw().saturating_sub(usage).saturating_add(margin);
        let after = Duration::from_millis(room / GROWTH).min(self.settings.longest).max(SHORTEST);
        let above = if max == Limit::MAX { 0 } else { usage.saturating_sub(max.raw()) };
        Next { after, above, pressure, relief: margin }
    }

    /// Sets the row's charge, regardless of limits.
    fn charge(&mut self, untracked: u64) {
        let held = self.held.as_ref().map_or(0, Charge::units);
        if untracked > held {
            // A program may have destroyed the row. Then only the limit is followed.
            let Ok(more) = self.row.charge(untracked - held) else { return };
            match &mut self.held {
                Some(charge) => drop(charge.merge(more)),
                None => self.held = Some(more),
            }
        } else if untracked == 0 {
            self.held = None;
        } else if let Some(charge) = &mut self.held {
            drop(charge.split(held - untracked));
        }
        // Drains the row, so that none of its units lie idle in a cell.
        if untracked != held {
            self.row.drain();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_number_is_held_for_one_to_two_times_and_then_forgotten() {
        let start = Instant::now();
        let at = |quarters: u32| start + HOLD * quarters / 4;
        let mut held = Held::new(start);
        let mut add = |number, quarters| held.add(number, at(quarters));
        assert_eq!([add(5, 0), add(90, 2), add(7, 3)], [5, 90, 90]);
        // The maximum stays for one more period, though less was seen.
        assert_eq!([add(8, 4), add(6, 7)], [90, 90]);
        assert_eq!([add(6, 8), add(1, 11), add(1, 12)], [8, 8, 6]);
        // After a long time without a sample, nothing is known of that time.
        assert_eq!([add(3, 100), add(2, 101)], [3, 3]);
        held.lower(2);
        assert_eq!(held.add(0, at(102)), 1);
        held.lower(9);
        assert_eq!(held.add(0, at(103)), 0);
    }
}
