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
//!   with the choices' lock: somebody chose meanwhile, or there is room by now: start anew; otherwise
//!     mark it; or, if it lies below a group with `oom_group` set, everything below the topmost such
//!   cancel what was marked
//! ```
//!
//! Scores and callbacks, which are the program's own code, run with nothing locked.
//!
//! The first pass is an upper bound (exact usage is less by idle stock and by protection, and a score must
//! not fall as its units grow), so the second finds the true maximum and looks closely at few.

use crate::group::Group;
use crate::ledger::Ledger;
use crate::lock::{self, Gated};
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
    /// How often somebody was chosen; held to mark who is.
    choices: Mutex<u64>,
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
            choices: Mutex::new(0),
        }
    }

    /// Looks at the entries, or changes them, inside the gate, so that no fork finds them locked.
    fn with<T>(&self, look: impl FnOnce(&mut BTreeMap<u64, Arc<Entry>>) -> T) -> T {
        let mut entries = lock::gated(&self.entries);
        let seen = look(&mut entries);
        self.count.store(entries.len(), Ordering::Relaxed);
        seen
    }
}

impl Victims {
    /// The choices so far, with their lock.
    fn choices(&self) -> Gated<'_, u64> {
        lock::gated(&self.choices)
    }
}

impl Entry {
    /// The score of so many units; what a score that panics would have said is nothing.
    fn score(&self, units: u64) -> u64 {
        let Some(score) = &self.score else { return units };
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| score(units))).unwrap_or(0)
    }

    /// Notes that it is cancelled, for who looks before it is told.
    fn mark(&self, victims: &Victims) {
        let mut cancelled = self.cancelled.lock().unwrap_or_else(PoisonError::into_inner);
        if cancelled.replace(Instant::now()).is_none() {
            victims.cancelled.fetch_add(1, Ordering::Relaxed);
        }
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
    /// There is room by now.
    Room,
    /// There is nobody to cancel.
    Nobody,
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
        loop {
            let choices = *victims.choices();
            let entries = self.victims_below(full);
            let now = Instant::now();
            let dying = entries.iter().filter_map(|entry| {
                let until = entry.cancelled()? + self.table().victim_time;
                (until > now && self.group(entry.group).precise() > 0).then_some(until)
            });
            if let Some(until) = dying.max() {
                return self.verdict(asking, until);
            }
            let Some(chosen) = self.highest(full, &entries) else { return Choice::Nobody };
            let top = self.oom_group_above(chosen.group, full);
            let dying = match top {
                None => vec![chosen],
                Some(top) => {
                    let together = |entry: &&Arc<Entry>| {
                        !entry.token.is_cancelled() && self.lies_below(entry.group, top.index())
                    };
                    entries.iter().filter(together).cloned().collect()
                }
            };
            let mut marked = victims.choices();
            if *marked != choices {
                continue; // Two would go where one was enough.
            }
            if self.would_fit(asking, requested) {
                return Choice::Room;
            }
            *marked += 1;
            dying.iter().for_each(|entry| entry.mark(victims));
            drop(marked);
            self.cancel(&dying, top, full, requested);
            return self.verdict(asking, Instant::now() + self.table().victim_time);
        }
    }

    /// The victims that may be chosen, or were, by age.
    fn victims_below(&self, full: Group<'_>) -> Vec<Arc<Entry>> {
        let below = |entry: &&Arc<Entry>| {
            self.group(entry.group).exists() && self.lies_below(entry.group, full.id().index())
        };
        self.table().victims.with(|entries| entries.values().filter(below).cloned().collect())
    }

    fn lies_below(&self, id: GroupId, top: u32) -> bool {
        RowPath::new(self, id.index()).is_some_and(|path| path.leads_through(top))
    }

    fn verdict(&self, asking: GroupId, until: Instant) -> Choice {
        if self.is_cancelled(asking) { Choice::Yourself } else { Choice::Dying(until) }
    }

    /// Tells those who were marked, and counts it first: whoever is told sees it counted.
    fn cancel(&self, dying: &[Arc<Entry>], top: Option<GroupId>, full: Group<'_>, requested: u64) {
        self.count_event(full.id(), Sum::Oom);
        if let Some(top) = top {
            self.count_event(top, Sum::OomGroupKill);
        }
        let path = full.path();
        for entry in dying {
            let group = self.group(entry.group);
            let (group, usage) = (group.path(), group.precise());
            self.count_event(entry.group, Sum::OomKill);
            entry.token.cancel(Killed { group, usage, full: path.clone(), requested });
            self.tell_cancelled(entry.group);
        }
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

    /// The two passes of the module's documentation: the victim with the highest score; of equals the one
    /// that registered last.
    fn highest(&self, full: Group<'_>, entries: &[Arc<Entry>]) -> Option<Arc<Entry>> {
        let mut candidates: Vec<(u64, usize)> = entries
            .iter()
            .enumerate()
            .filter(|(_, entry)| !entry.token.is_cancelled())
            .map(|(age, entry)| (entry.score(self.group(entry.group).row().counter.usage()), age))
            .collect();
        candidates.sort_unstable_by_key(|&candidate| std::cmp::Reverse(candidate));
        let mut best: Option<(u64, usize)> = None;
        for (most, age) in candidates {
            if most == 0 || best.is_some_and(|best| (most, age) < best) {
                break;
            }
            let group = self.group(entries[age].group);
            let protection = group.protection(full, Unclaimed::Lost);
            let above = group.precise().saturating_sub(protection.low.max(protection.min));
            let score = entries[age].score(above);
            if score > 0 && best.is_none_or(|best| (score, age) > best) {
                best = Some((score, age));
            }
        }
        best.map(|(_, age)| entries[age].clone())
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
