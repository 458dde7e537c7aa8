//! `--count resident`: a limit on the memory that the kernel holds for the processes of a run.
//!
//! The kernel refuses nothing by itself, so the supervisor looks, and moves a mark: the max of the ledger's root.
//!
//! ```text
//! sum = the resident memory of all processes below the supervisor, shared pages once
//! sum <= limit    open: mark = what is charged + limit - sum
//! sum >  limit    closed: mark = what is charged, until it is open again
//! ```
//!
//! A request that would go above an open mark waits for the next look, a few milliseconds, and is granted whatever its size
//! if the mark is open then: a reservation costs nothing until it is touched. Above a closed mark it is refused
//! (`preload/src/refuse/resident.rs`). The mark's lowest bit tells the two from each other, and a look that leaves the mark
//! where it was moves it by [`STEP`], so that a waiting request sees that there was one.
//!
//! So what is asked for and touched at once stays within the limit, as long as looks are in time: the next one comes before
//! memory that grows by a GiB a second has used up the room, after 5 ms at the earliest and 100 ms at the latest, and
//! looks take at most a twentieth of a CPU. Memory that was granted earlier and is touched later may go above the limit by
//! any amount. No process is refused for that at the time: touching is no request.
//!
//! **Shared pages count once.** The sum of resident sizes counts them once for each process. It is at least as large as the
//! true sum. The kernel is asked for each process's part (`smaps_rollup`) when that sum is above the limit, when a process
//! came or ended, and once a second. It takes a millisecond for each 100 MiB. The difference is kept for each process until
//! the next such look.

use super::descendants::{below, processes};
use ledgerline::{Ledger, Limit};
use ledgerline_protocol::{Item, MOST_BYTES};
use ledgerline_run::account::model;
use std::collections::{HashMap, VecDeque};
use std::fs;
use std::time::{Duration, Instant};

/// The assumed growth, in bytes a millisecond: a GiB a second.
const GROWTH: u64 = (1 << 30) / 1000;
const SHORTEST: Duration = Duration::from_millis(5);
const LONGEST: Duration = Duration::from_millis(100);
/// Looks take at most one part in this many of a CPU's time.
const PART: u32 = 20;
/// The interval between looks for new processes.
const LIST: Duration = Duration::from_millis(100);
/// The interval between looks at shared pages if no limit depends on them.
const SHARE: Duration = Duration::from_secs(1);
/// The lowest bit of a closed mark.
const CLOSED: u64 = ledgerline_protocol::MARK_CLOSED;
/// A mark moves by this if it would stay where it is.
const STEP: u64 = 2;
/// The most closings that are remembered, the last ones, for the sizes at which requests were refused.
const CLOSINGS: usize = 1000;

/// The limit on resident memory, and what is known of that memory.
pub(super) struct Resident<'l> {
    ledger: &'l Ledger,
    limit: Limit,
    /// The part of a limit that `ledgerline set` leaves out of the root's max.
    reserve: u64,
    /// The root's max, as it was set here last. Another value is the user's new limit (`ledgerline set`).
    set: Limit,
    is_closed: bool,
    system: System,
    looked: Instant,
    next: Duration,
    /// The time that must pass after that look in any case.
    rest: Duration,
    now: u64,
    peak: u64,
    /// When the mark was closed, in milliseconds of `CLOCK_MONOTONIC`, with the resident memory then.
    closings: VecDeque<(u64, u64)>,
}

impl<'l> Resident<'l> {
    pub(super) fn new(ledger: &'l Ledger, limit: Limit, reserve: u64) -> Resident<'l> {
        let resident = Resident {
            ledger,
            limit,
            reserve,
            set: Limit::MAX,
            is_closed: false,
            system: System::default(),
            looked: Instant::now(),
            next: Duration::ZERO,
            rest: Duration::ZERO,
            now: 0,
            peak: 0,
            closings: VecDeque::new(),
        };
        resident.note(Item::RESIDENT_MAX, of_limit(limit), 0);
        resident
    }

    /// Looks if a look is due; returns the time until this is to be called again. Processes of the sessions `others` are not
    /// the run's.
    pub(super) fn look(&mut self, others: &[u32]) -> Duration {
        self.take_over();
        let limited = self.limit != Limit::MAX;
        let elapsed = self.looked.elapsed();
        let left = self.next.saturating_sub(elapsed);
        let is_due = left.is_zero() || (limited && elapsed >= self.rest && self.is_awaited());
        if !is_due {
            return if limited { left.min(SHORTEST) } else { left };
        }
        let begun = Instant::now();
        let now = self.system.sum(self.limit, others);
        // Until shared pages were counted, the sum is too large.
        let peak = if self.system.changed { self.peak } else { self.peak.max(now) };
        self.note(Item::Resident, peak, self.peak);
        (self.now, self.peak) = (now, peak);
        self.mark();
        self.looked = Instant::now();
        let room = self.limit.get().unwrap_or(u64::MAX).saturating_sub(now);
        let wanted = Duration::from_millis(room / GROWTH).clamp(SHORTEST, LONGEST);
        self.rest = (self.looked - begun) * (PART - 1);
        self.next = wanted.max(self.rest);
        if limited { SHORTEST } else { self.next }
    }

    /// Returns whether charges have used up most of the room that the last look left, so that a request may wait.
    fn is_awaited(&self) -> bool {
        let room = self.limit.get().map_or(u64::MAX, |limit| limit.saturating_sub(self.now));
        let left = self.set.get().map_or(u64::MAX, |mark| mark.saturating_sub(self.charged()));
        left <= room / 8
    }

    fn charged(&self) -> u64 {
        self.ledger.root().approximate().value.min(MOST_BYTES)
    }

    /// Makes a new limit of the user's the one that holds.
    fn take_over(&mut self) {
        let max = self.ledger.root().max();
        if max != self.set {
            let limit = max.get().map_or(max, |max| Limit::units(max.saturating_add(self.reserve)));
            self.note(Item::RESIDENT_MAX, of_limit(limit), of_limit(self.limit));
            (self.limit, self.set, self.is_closed) = (limit, max, false);
        }
    }

    /// Moves the mark after a look. A limit that the user set during the look is taken over first.
    fn mark(&mut self) {
        self.take_over();
        let root = self.ledger.root();
        let Some(limit) = self.limit.get() else { return };
        let room = limit.saturating_sub(self.now);
        let is_over = self.now > limit;
        let wanted = match (is_over, self.is_closed) {
            // Freed memory may be requested again: an allocator may have kept it.
            (true, true) => self.set.get().unwrap_or(0),
            (true, false) => self.charged() & !1 | CLOSED,
            (false, _) => self.charged().saturating_add(room) & !1,
        };
        let other = Limit::units(wanted.saturating_add(STEP));
        let wanted = Limit::units(wanted);
        let wanted = if wanted == self.set { other } else { wanted };
        if is_over && !self.is_closed {
            if self.closings.len() == CLOSINGS {
                self.closings.pop_front();
            }
            self.closings.push_back((milliseconds(), self.now));
        }
        // The first fails where more is charged by now. The root of a run is never destroyed, and this command made the
        // ledger.
        if root.set_max(wanted).is_ok() || root.set_max_now(wanted).is_ok() {
            (self.set, self.is_closed) = (wanted, is_over);
        }
    }

    /// Changes an item of the root.
    fn note(&self, item: Item, to: u64, from: u64) {
        if let Some(item) = self.ledger.item(item.name())
            && to != from
        {
            self.ledger.root().add_stat(item, to.cast_signed().wrapping_sub(from.cast_signed()));
        }
    }

    /// Returns the limit and the peak, and the closings of the root.
    pub(super) fn state(&self) -> model::Resident {
        let (limit, peak) = (self.limit.get(), self.peak);
        model::Resident { limit, peak, closings: self.closings.iter().copied().collect() }
    }
}

/// Returns a limit as [`Item::RESIDENT_MAX`] has it.
fn of_limit(limit: Limit) -> u64 {
    limit.get().map_or(0, |limit| limit.min(MOST_BYTES - 1) + 1)
}

fn milliseconds() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    (now.tv_sec * 1000 + now.tv_nsec / 1_000_000).unsigned_abs()
}

/// The resident memory of the processes below this one.
#[derive(Default)]
struct System {
    listed: Option<(Instant, Duration)>,
    processes: HashMap<u32, Process>,
    shared: Option<(Instant, Duration)>,
    /// Whether a process came or ended since the shared pages were counted: the parts of the others changed.
    changed: bool,
}

/// The resident memory of a process.
#[derive(Clone, Copy, Default)]
struct Process {
    resident: u64,
    /// The part of that which other processes have, too, and which is counted as theirs.
    others: u64,
    /// The page tables.
    tables: u64,
}

impl Process {
    fn size(&self) -> u64 {
        self.resident.saturating_sub(self.others).saturating_add(self.tables)
    }
}

impl System {
    /// Returns the resident bytes of all processes.
    fn sum(&mut self, limit: Limit, others: &[u32]) -> u64 {
        if is_due(self.listed, LIST) {
            let begun = Instant::now();
            let of = below(&processes(others), std::process::id());
            let there: HashMap<u32, Process> = of
                .into_iter()
                .map(|pid| (pid, self.processes.get(&pid).copied().unwrap_or_default()))
                .collect();
            self.changed |= self.processes.len() != there.len()
                || self.processes.keys().any(|pid| !there.contains_key(pid));
            self.processes = there;
            self.listed = Some((Instant::now(), begun.elapsed()));
        }
        for (pid, process) in &mut self.processes {
            process.resident = resident(*pid);
        }
        let sum = self.total();
        let above = limit.get().is_some_and(|limit| sum > limit);
        let wait = if above || self.changed { SHORTEST } else { SHARE };
        if !is_due(self.shared, wait) {
            return sum;
        }
        let begun = Instant::now();
        let several = self.processes.len() > 1;
        for (pid, process) in &mut self.processes {
            process.tables = tables(*pid);
            // A process of another user keeps its whole size.
            let part = if several { part(*pid) } else { None };
            process.others = part.map_or(0, |part| process.resident.saturating_sub(part));
        }
        self.shared = Some((Instant::now(), begun.elapsed()));
        self.changed = false;
        self.total()
    }

    fn total(&self) -> u64 {
        self.processes.values().map(Process::size).fold(0, u64::saturating_add)
    }
}

/// Returns whether something that was done at that time, and took so long, is to be done again.
fn is_due(done: Option<(Instant, Duration)>, every: Duration) -> bool {
    done.is_none_or(|(at, took)| at.elapsed() >= every.max(took * PART))
}

/// Returns the resident bytes of a process; zero for one that has ended.
fn resident(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let pages: u64 =
        text.split_ascii_whitespace().nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages.saturating_mul(rustix::param::page_size() as u64)
}

/// Returns the part of a process's resident bytes that counts as its own: of a page that n processes have, the nth part.
fn part(pid: u32) -> Option<u64> {
    field(&fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?, "Pss:")
}

/// Returns the bytes of a process's page tables.
fn tables(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    field(&text, "VmPTE:").unwrap_or(0)
}

/// Returns a field of a file of `/proc` that is a size: `Pss:    1234 kB`.
fn field(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = value.split_ascii_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_read_in_bytes_and_a_missing_one_is_not_there() {
        let text = "Rss:     8 kB\nPss:    1234 kB\nPss_Dirty: 7 kB\n";
        assert_eq!((field(text, "Pss:"), field(text, "Swap:")), (Some(1234 << 10), None));
        assert_eq!(field("Pss: x kB", "Pss:"), None);
    }

    #[test]
    fn this_process_has_a_size_and_one_that_is_not_there_has_none() {
        let own = std::process::id();
        assert!((1 << 20..1 << 40).contains(&resident(own)) && tables(own) > 0);
        let part = part(own).expect("its own");
        assert!(part > 0 && part <= resident(own) + (1 << 20), "{part}");
        let nobody = (1 << 22) - 1;
        assert_eq!((resident(nobody), tables(nobody), super::part(nobody)), (0, 0, None));
    }

    #[test]
    fn a_part_that_others_have_and_the_page_tables_count_once() {
        let process = Process { resident: 100, others: 30, tables: 5 };
        assert_eq!(process.size(), 75);
        // The parts were counted earlier, and the process gave memory back since.
        assert_eq!(Process { resident: 20, ..process }.size(), 5);
    }

    fn ledger() -> Ledger {
        Ledger::builder().items(&Item::NAMES).anonymous().unwrap()
    }

    #[test]
    fn what_was_granted_since_the_last_look_counts_and_a_closed_mark_refuses() {
        let ledger = ledger();
        let root = ledger.root();
        let query = root.create("job").unwrap();
        // Without the prepaid units that a charge leaves on its CPU.
        let charge = |units| {
            query.try_charge_units(units).unwrap();
            root.drain();
        };
        let mark = || root.max().get().unwrap();
        charge(1000);
        let mut resident = Resident::new(&ledger, Limit::units(400), 0);
        (resident.now, resident.next) = (100, Duration::from_secs(9));
        resident.mark();
        assert_eq!(mark(), 1300, "1000 are charged, and 300 may be touched");
        assert!(query.try_charge_units(301).is_err());
        root.drain();
        assert!(!resident.is_awaited());
        charge(290);
        assert!(resident.is_awaited());
        resident.mark();
        assert_eq!((mark(), mark() & CLOSED), (1590, 0));
        resident.now = 401;
        resident.mark();
        let closed = mark();
        assert_eq!((closed & !1, closed & CLOSED), (1290, CLOSED));
        assert!(query.try_charge_units(2).is_err());
        // A second look above the limit moves it, but makes no room.
        resident.mark();
        assert_ne!(mark(), closed);
        assert!(query.try_charge_units(8).is_err());
        let state = resident.state();
        assert_eq!((state.limit, state.closings.len()), (Some(400), 1), "it was closed once");
        resident.now = 0;
        resident.mark();
        assert!(query.try_charge_units(390).is_ok());
    }

    #[test]
    fn a_limit_of_the_user_is_taken_over_and_a_mark_is_none() {
        let ledger = ledger();
        let root = ledger.root();
        let mut resident = Resident::new(&ledger, Limit::MAX, 10);
        resident.mark();
        assert_eq!(root.max(), Limit::MAX);
        // As `ledgerline set` does it.
        root.set_max_now(Limit::units(390)).unwrap();
        resident.take_over();
        assert_eq!(resident.limit, Limit::units(400));
        assert_eq!(root.stat().get(Item::RESIDENT_MAX.name()).unwrap().own, 401);
        resident.now = 100;
        resident.mark();
        resident.take_over();
        assert_eq!((resident.limit, root.max()), (Limit::units(400), Limit::units(300)));
        root.set_max_now(Limit::MAX).unwrap();
        resident.take_over();
        assert_eq!(resident.state().limit, None);
    }
}
