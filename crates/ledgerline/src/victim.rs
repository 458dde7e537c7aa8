//! Choosing a victim: when a group is full, nothing can be reclaimed, and the caller prefers somebody
//! else's end to being refused ([`Request::oom`](crate::Request::oom)).
//!
//! ```text
//! choose(full)                                       candidates: victims registered below full, not
//!   one that was cancelled still holds something       cancelled yet, whose group exists
//!     and has time left: wait for it
//!   first pass:  score each by what it holds at most (one load)
//!   second pass: from the highest downwards, score by what it holds exactly, above its protection,
//!     until the next one's first score is no higher than the best so far
//!   cancel it; or, if it lies below a group with `oom_group` set, everything below the topmost such
//! ```
//!
//! The first pass is an upper bound (exact usage is less by idle stock and by protection, and a score must
//! not fall as its units grow), so the second finds the true maximum and looks closely at few.

use crate::group::Group;
use crate::ledger::Ledger;
use crate::lock;
use crate::memory_stat::Sum;
use crate::path::RowPath;
use crate::protection::Unclaimed;
use crate::row::{GroupId, flag};
use crate::sync::{AtomicUsize, Ordering};
use crate::token::{CancelToken, Killed};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Unless the builder says otherwise.
pub(crate) const VICTIM_TIME: Duration = Duration::from_secs(1);

/// A ledger's victims in this process.
pub(crate) struct Victims {
    /// By age.
    entries: Mutex<BTreeMap<u64, Arc<Entry>>>,
    count: AtomicUsize,
    /// Those of them that were cancelled from here.
    cancelled: AtomicUsize,
}

type Score = Box<dyn Fn(u64) -> u64 + Send + Sync>;

struct Entry {
    group: GroupId,
    token: CancelToken,
    score: Option<Score>,
    /// When it was cancelled from here.
    cancelled: Mutex<Option<Instant>>,
}

impl std::fmt::Debug for Victims {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Victims").field("count", &self.count).finish_non_exhaustive()
    }
}

impl Victims {
    pub(crate) fn new() -> Victims {
        Victims {
            entries: Mutex::new(BTreeMap::new()),
            count: AtomicUsize::new(0),
            cancelled: AtomicUsize::new(0),
        }
    }

    /// Looks at the entries, or changes them, inside the gate, so that no fork finds them locked.
    fn with<T>(&self, look: impl FnOnce(&mut BTreeMap<u64, Arc<Entry>>) -> T) -> T {
        let _pass = lock::pass();
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = look(&mut entries);
        self.count.store(entries.len(), Ordering::Relaxed);
        seen
    }
}

impl Entry {
    /// The score of so many units; what a score that panics would have said is nothing.
    fn score(&self, units: u64) -> u64 {
        let Some(score) = &self.score else { return units };
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| score(units))).unwrap_or(0)
    }

    fn cancelled(&self) -> Option<Instant> {
        *self.cancelled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A group that may be cancelled to make room for others; it no longer may when this is dropped.
pub struct Victim<'l> {
    ledger: &'l Ledger,
    number: u64,
}

impl std::fmt::Debug for Victim<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Victim").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Drop for Victim<'_> {
    fn drop(&mut self) {
        let victims = &self.ledger.table().victims;
        let entry = victims.with(|entries| entries.remove(&self.number));
        if entry.as_ref().is_some_and(|entry| entry.cancelled().is_some()) {
            victims.cancelled.fetch_sub(1, Ordering::Relaxed);
        }
        // Outside of the lock: the score is somebody else's code.
        drop(entry);
    }
}

/// What came of looking for a victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// Somebody was cancelled and is expected to let go until then.
    Dying(Instant),
    /// The one who asks was cancelled itself.
    Yourself,
    /// There is nobody to cancel.
    Nobody,
}

/// A victim that may be chosen, with what it scores at most.
struct Candidate {
    number: u64,
    entry: Arc<Entry>,
    most: u64,
}

impl<'l> Group<'l> {
    /// Registers this group as one that may be cancelled when a charge elsewhere asks for that
    /// ([`Request::oom`](crate::Request::oom)): its work watches `token` and, once that is cancelled,
    /// stops and returns what it charged. The one with the most units above its protection is chosen
    /// (of equals the one that registered last).
    ///
    /// ```
    /// # use ledgerline::{CancelToken, Ledger, Limit};
    /// let ledger = Ledger::new()?;
    /// let tenant = ledger.root().create("acme")?;
    /// tenant.set_max(Limit::units(100))?;
    ///
    /// let runaway = tenant.create("q1")?;
    /// let token = CancelToken::new();
    /// let _victim = runaway.add_victim(&token);
    /// let hoard = runaway.try_charge(90)?;
    ///
    /// let small = tenant.create("q2")?;
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| {
    ///         while !token.is_cancelled() {
    ///             std::thread::yield_now();
    ///         }
    ///         drop(hoard);
    ///     });
    ///     small.request(50).oom().charge().map(drop)
    /// })?;
    /// assert_eq!(runaway.local_events().oom_kill, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn add_victim(self, token: &CancelToken) -> Victim<'l> {
        self.register(token, None)
    }

    /// As [`add_victim`](Self::add_victim), with a score of the program's own: from the units above
    /// protection to what is compared. It must not fall as the units grow; zero is never chosen.
    pub fn add_victim_scored(
        self,
        token: &CancelToken,
        score: impl Fn(u64) -> u64 + Send + Sync + 'static,
    ) -> Victim<'l> {
        self.register(token, Some(Box::new(score)))
    }

    fn register(self, token: &CancelToken, score: Option<Score>) -> Victim<'l> {
        let entry =
            Entry { group: self.id(), token: token.clone(), score, cancelled: Mutex::new(None) };
        let ledger = self.ledger();
        let number = ledger.table().victims.with(|entries| {
            let number = entries.last_key_value().map_or(0, |(number, _)| number + 1);
            entries.insert(number, Arc::new(entry));
            number
        });
        Victim { ledger, number }
    }

    /// Whether the victims below this group are cancelled together, whichever of them is chosen
    /// (cgroup v2's `memory.oom.group`): for work in parts that is of no use without each other.
    pub fn set_oom_group(self, together: bool) {
        if self.exists() {
            self.row().set(flag::OOM_GROUP, together);
        }
    }

    /// See [`set_oom_group`](Self::set_oom_group).
    pub fn oom_group(self) -> bool {
        self.row().has(flag::OOM_GROUP)
    }
}

impl Ledger {
    /// Chooses a victim below a full group for `asking` and cancels it, unless one that was cancelled
    /// before is still on its way out.
    pub(crate) fn choose_victim(&self, full: Group<'_>, asking: GroupId, requested: u64) -> Choice {
        let victims = &self.table().victims;
        if victims.count.load(Ordering::Relaxed) == 0 {
            return Choice::Nobody;
        }
        let below = |id: GroupId| {
            self.group(id).exists()
                && RowPath::new(self, id.index())
                    .is_some_and(|path| path.leads_through(full.id().index()))
        };
        let entries: Vec<(u64, Arc<Entry>)> = victims.with(|entries| {
            let below = entries.iter().filter(|(_, entry)| below(entry.group));
            below.map(|(&number, entry)| (number, entry.clone())).collect()
        });
        let now = Instant::now();
        let verdict = |until: Instant| match self.is_cancelled(asking) {
            true => Choice::Yourself,
            false => Choice::Dying(until),
        };
        let dying = entries.iter().filter_map(|(_, entry)| {
            let until = entry.cancelled()? + self.table().victim_time;
            (until > now && self.group(entry.group).precise() > 0).then_some(until)
        });
        if let Some(until) = dying.max() {
            return verdict(until);
        }
        let Some((chosen, usage)) = self.highest(full, &entries) else { return Choice::Nobody };
        self.count_event(full.id(), Sum::Oom);
        let until = Instant::now() + self.table().victim_time;
        let path = full.path();
        let cancel = |entry: &Entry, usage: u64| {
            let group = self.group(entry.group);
            let why = Killed { group: group.path(), usage, full: path.clone(), requested };
            // Counted first: whoever is told sees it counted.
            self.count_event(entry.group, Sum::OomKill);
            let mut cancelled = entry.cancelled.lock().unwrap_or_else(PoisonError::into_inner);
            if cancelled.replace(Instant::now()).is_none() {
                victims.cancelled.fetch_add(1, Ordering::Relaxed);
            }
            drop(cancelled);
            entry.token.cancel(why);
            self.tell_cancelled(entry.group);
        };
        match self.oom_group_above(chosen.group, full) {
            None => cancel(&chosen, usage),
            Some(top) => {
                self.count_event(top, Sum::OomGroupKill);
                let together = |entry: &Entry| {
                    !entry.token.is_cancelled()
                        && RowPath::new(self, entry.group.index())
                            .is_some_and(|path| path.leads_through(top.index()))
                };
                for (_, entry) in entries.iter().filter(|(_, entry)| together(entry)) {
                    cancel(entry, self.group(entry.group).precise());
                }
            }
        }
        verdict(until)
    }

    /// Whether the work that charges this group was cancelled from here.
    pub(crate) fn is_cancelled(&self, id: GroupId) -> bool {
        let victims = &self.table().victims;
        if victims.cancelled.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let Some(path) = self.path(id) else { return false };
        let above = |entry: &Entry| {
            path.leads_through(entry.group.index()) && self.group(entry.group).exists()
        };
        victims.with(|entries| {
            entries.values().any(|entry| entry.cancelled().is_some() && above(entry))
        })
    }

    /// The two passes of the module's documentation: the victim with the highest score, and its usage.
    fn highest(&self, full: Group<'_>, entries: &[(u64, Arc<Entry>)]) -> Option<(Arc<Entry>, u64)> {
        let mut candidates: Vec<Candidate> = entries
            .iter()
            .filter(|(_, entry)| !entry.token.is_cancelled())
            .map(|(number, entry)| {
                let most = entry.score(self.group(entry.group).row().counter.usage());
                Candidate { number: *number, entry: entry.clone(), most }
            })
            .collect();
        candidates.sort_by_key(|candidate| std::cmp::Reverse((candidate.most, candidate.number)));
        let mut best: Option<(u64, u64, Arc<Entry>, u64)> = None;
        for candidate in candidates {
            if candidate.most == 0
                || best.as_ref().is_some_and(|(score, number, ..)| {
                    (candidate.most, candidate.number) < (*score, *number)
                })
            {
                break;
            }
            let group = self.group(candidate.entry.group);
            let usage = group.precise();
            let protection = group.protection(full, Unclaimed::Lost);
            let score =
                candidate.entry.score(usage.saturating_sub(protection.low.max(protection.min)));
            let better = best
                .as_ref()
                .is_none_or(|(best, number, ..)| (score, candidate.number) > (*best, *number));
            if score > 0 && better {
                best = Some((score, candidate.number, candidate.entry, usage));
            }
        }
        best.map(|(_, _, entry, usage)| (entry, usage))
    }

    /// The topmost group from a victim's up to the full one with `oom_group` set.
    fn oom_group_above(&self, victim: GroupId, full: Group<'_>) -> Option<GroupId> {
        let path = RowPath::new(self, victim.index())?;
        let below = path.rows().iter().position(|&row| row == full.id().index())?;
        let together = |row: &&u32| self.row(**row).has(flag::OOM_GROUP);
        let row = *path.rows()[..=below].iter().rev().find(together)?;
        Some(GroupId::from_parts(row, self.row(row).generation()))
    }
}
