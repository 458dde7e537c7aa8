//! Chooses a victim if a group is full, nothing can be reclaimed, and a request asks to cancel another group rather
//! than be refused ([`Request::oom`](crate::Request::oom)).
//!
//! ```text
//! choose(full), the lowest full group                candidates: victims registered below full, not
//!   a cancelled victim still holds something           cancelled yet, whose group exists
//!     and has time left: wait for it
//!   first pass:  score each by the most that it may hold (one load)
//!   second pass: from the highest downwards, score by what it holds exactly, above its protection,
//!     until the next one's first score is no higher than the best so far
//!   with the choices' lock: another thread chose meanwhile, or there is room by now: start anew; otherwise
//!     note it; or, if it lies below a group with `oom_group` set, all below the topmost such group
//!   cancel what was noted
//! ```
//!
//! Scores and callbacks are the program's own code, and run while no lock is held. A victim is kept under every group
//! of its path, so that the victims below a full group are found without a look at any others. The cancelled victims
//! that may still hold units are kept apart, so that every waiter may query them cheaply. Only a choice looks at all
//! candidates.
//!
//! The first pass gives an upper bound: exact usage is less by idle stock and by protection, and a score must not
//! fall as its units grow. So the second pass finds the true maximum, and examines few candidates.

use crate::control::protection::Unclaimed;
use crate::control::token::{CancelToken, Killed};
use crate::control::{events, wait_queue};
use crate::gate::lock;
use crate::group::Group;
use crate::ledger::Ledger;
use crate::stock::{precise, refusal};
use crate::sync::{AtomicUsize, Ordering};
use crate::table::id::GroupId;
use crate::table::path::{self, RowPath};
use crate::table::row::flag;
use crate::table::sums::Sum;
use crate::whose;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The time for a cancelled victim, unless the builder sets another.
pub(crate) const VICTIM_TIME: Duration = Duration::from_secs(1);

/// A ledger's victims in this process.
#[derive(Default)]
pub(crate) struct Victims {
    entries: Mutex<Entries>,
    count: AtomicUsize,
    /// The number of them that the ledger cancelled.
    cancelled: AtomicUsize,
    /// Number of choices so far. Locked while a choice is noted.
    choices: Mutex<u64>,
}

#[derive(Default)]
struct Entries {
    /// The victims, by each group of their path, and by age.
    below: BTreeMap<(u64, u64), Arc<Entry>>,
    /// The victims that the ledger cancelled, by their own group.
    cancelled: BTreeSet<(u64, u64)>,
    /// The cancelled victims that may still hold units, by each group of their path, in the order of their
    /// cancellation: the last one has the most time left.
    dying: BTreeMap<(u64, u64), Arc<Entry>>,
    /// Number of cancellations.
    cancellations: u64,
    /// Number of victims.
    count: usize,
    numbers: u64,
}

type Score = Box<dyn Fn(u64) -> u64 + Send + Sync>;

struct Entry {
    number: u64,
    group: GroupId,
    /// The groups from its own to the root; empty if its group did not exist.
    path: Vec<GroupId>,
    token: CancelToken,
    score: Option<Score>,
    /// The time at which the ledger cancelled it, and the number of that cancellation.
    cancelled: Mutex<Option<(Instant, u64)>>,
}

impl Entries {
    /// Removes a cancelled victim, so that no request waits for it any more.
    fn forget_dying(&mut self, entry: &Entry) {
        if let Some((_, number)) = entry.cancelled() {
            for above in &entry.path {
                self.dying.remove(&(above.raw(), number));
            }
        }
    }
}

impl Victims {
    /// Calls `look` with the entries inside the gate, so that no fork finds them locked.
    fn with<T>(&self, look: impl FnOnce(&mut Entries) -> T) -> T {
        let mut entries = lock::gated(&self.entries);
        let seen = look(&mut entries);
        self.count.store(entries.count, Ordering::Relaxed);
        self.cancelled.store(entries.cancelled.len(), Ordering::Relaxed);
        seen
    }
}

impl Entry {
    /// Returns the score of `units`; zero if the score function panics.
    fn score(&self, units: u64) -> u64 {
        let Some(score) = &self.score else { return units };
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| score(units))).unwrap_or(0)
    }

    /// Notes that it is cancelled, for threads that look before its token fires.
    fn note_cancelled(self: &Arc<Self>, victims: &Victims) {
        victims.with(|entries| {
            entries.forget_dying(self);
            entries.cancellations += 1;
            let number = entries.cancellations;
            *lock::gated(&self.cancelled) = Some((Instant::now(), number));
            let own = (self.group.raw(), self.number);
            // Its registration may have ended meanwhile.
            if entries.below.contains_key(&own) {
                entries.cancelled.insert(own);
                let theirs = self.path.iter().map(|above| ((above.raw(), number), self.clone()));
                entries.dying.extend(theirs);
            }
        });
    }

    fn cancelled(&self) -> Option<(Instant, u64)> {
        *lock::gated(&self.cancelled)
    }
}

/// The registration of a group that may be cancelled to make room for others, until this is dropped.
#[must_use = "a victim that is dropped at once is taken out at once"]
pub struct Victim<'l> {
    ledger: &'l Ledger,
    entry: Arc<Entry>,
}

impl std::fmt::Debug for Victim<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Victim").field("group", &self.entry.group).finish_non_exhaustive()
    }
}

impl Drop for Victim<'_> {
    fn drop(&mut self) {
        // The last reference drops the score, which is foreign code, so that happens outside of the lock.
        self.ledger.control().victims.with(|entries| {
            entries.count -= 1;
            for above in &self.entry.path {
                entries.below.remove(&(above.raw(), self.entry.number));
            }
            entries.cancelled.remove(&(self.entry.group.raw(), self.entry.number));
            entries.forget_dying(&self.entry);
        });
    }
}

/// The result of the search for a victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// A victim was cancelled, and should return its units until then.
    Dying(Instant),
    /// The group of the request was itself cancelled.
    Yourself,
    /// There is room by now, at least in the group that was full.
    Room,
    /// There is no victim to cancel.
    Nobody,
}

impl<'l> Group<'l> {
    /// Registers this group as one that may be cancelled for a charge elsewhere that asks for it
    /// ([`Request::oom`](crate::Request::oom)). Its work watches `token`, and once that is cancelled, stops and
    /// returns its charges. The group with the most units above its protection is chosen; of equals, the one that
    /// registered last.
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
        whose::nobody(|| self.enroll(token, None))
    }

    /// Like [`add_victim`](Self::add_victim), with a score of the program's own. It maps the units above protection
    /// to the number that is compared. It must not fall as the units grow. A group with score zero is never chosen.
    pub fn add_victim_scored(
        self,
        token: &CancelToken,
        score: impl Fn(u64) -> u64 + Send + Sync + 'static,
    ) -> Victim<'l> {
        whose::nobody(|| self.enroll(token, Some(Box::new(score))))
    }

    fn enroll(self, token: &CancelToken, score: Option<Score>) -> Victim<'l> {
        let (ledger, group, token) = (self.ledger(), self.id(), token.clone());
        let path = path::ids_to_root(ledger.table(), group);
        let entry = ledger.control().victims.with(|entries| {
            entries.count += 1;
            entries.numbers += 1;
            let number = entries.numbers;
            let entry = Entry { number, group, path, token, score, cancelled: Mutex::new(None) };
            let entry = Arc::new(entry);
            for above in &entry.path {
                entries.below.insert((above.raw(), number), entry.clone());
            }
            entry
        });
        Victim { ledger, entry }
    }

    /// Sets whether the victims below this group are cancelled together if one of them is chosen (cgroup v2's
    /// `memory.oom.group`): for work whose parts are useless without each other.
    pub fn set_oom_group(self, together: bool) {
        self.change(|row| row.set(flag::OOM_GROUP, together));
    }

    /// Returns the setting of [`set_oom_group`](Self::set_oom_group); `false` for a group that is gone.
    pub fn oom_group(self) -> bool {
        self.read(|row| row.has(flag::OOM_GROUP)).unwrap_or(false)
    }
}

/// Chooses a victim below a full group for `asking` and cancels it, unless a cancelled victim there still holds
/// units. Its score must be more than `least`.
pub(crate) fn choose(full: Group<'_>, asking: GroupId, requested: u64, least: u64) -> Choice {
    let ledger = full.ledger();
    let victims = &ledger.control().victims;
    if !any(ledger) {
        return Choice::Nobody;
    }
    loop {
        let choices = *lock::gated(&victims.choices);
        if let Some(until) = dying_below(ledger, full.id()) {
            return verdict(ledger, asking, until);
        }
        let mut dying = victims_below(full);
        let Some(chosen) = highest(full, &dying, least) else { return Choice::Nobody };
        let top = oom_group_above(chosen.group, full);
        dying.retain(|entry| match top {
            None => Arc::ptr_eq(entry, &chosen),
            Some(top) => {
                let row = entry.group.index();
                !entry.token.is_cancelled() && path::leads_through(ledger.table(), row, top.index())
            }
        });
        let mut now = lock::gated(&victims.choices);
        if *now != choices {
            continue; // another thread chose meanwhile; one victim may be enough
        }
        // If there is room here, but none further up, other victims are due.
        if refusal::lowest_full(ledger.table(), asking, requested) != Some(full.id()) {
            return Choice::Room;
        }
        *now += 1;
        dying.iter().for_each(|entry| entry.note_cancelled(victims));
        drop(now);
        cancel(&dying, top, full, requested);
        return verdict(ledger, asking, Instant::now() + ledger.control().times.victim);
    }
}

/// Cancels the victims that are registered for a group whose work met a limit, but not those below it.
pub(crate) fn cancel_all_of(group: Group<'_>, full: Group<'_>, requested: u64) {
    let victims = &group.ledger().control().victims;
    let mut dying = victims_below(group);
    dying.retain(|entry| entry.group == group.id() && !entry.token.is_cancelled());
    if dying.is_empty() {
        return;
    }
    let mut choices = lock::gated(&victims.choices);
    *choices += 1;
    dying.iter().for_each(|entry| entry.note_cancelled(victims));
    drop(choices);
    cancel(&dying, None, full, requested);
}

/// Returns whether a victim below a full group may have a score of more than `least`. Calls no score.
pub(crate) fn may_outdo(full: Group<'_>, least: u64) -> bool {
    any(full.ledger())
        && victims_below(full).iter().any(|entry| {
            let most = full.ledger().group(entry.group).row().counter.usage();
            !entry.token.is_cancelled() && (entry.score.is_some() || most > least)
        })
}

/// Returns whether there is any victim, cancelled or not.
pub(crate) fn any(ledger: &Ledger) -> bool {
    ledger.control().victims.count.load(Ordering::Relaxed) != 0
}

/// Returns how long requests wait for the cancelled victims below a group; `None` if all of them hold nothing now, or
/// have had their time.
pub(crate) fn dying_below(ledger: &Ledger, full: GroupId) -> Option<Instant> {
    let victims = &ledger.control().victims;
    if victims.cancelled.load(Ordering::Relaxed) == 0 {
        return None;
    }
    // The last cancelled victim has the most time left.
    let mut before = u64::MAX;
    loop {
        let theirs = (full.raw(), 0)..(full.raw(), before);
        let last = |entries: &mut Entries| {
            let last = entries.dying.range(theirs.clone()).next_back();
            last.map(|(&(_, number), entry)| (number, entry.clone()))
        };
        let (number, entry) = victims.with(last)?;
        before = number;
        let until = entry.cancelled()?.0 + ledger.control().times.victim;
        if until <= Instant::now() || !ledger.group(entry.group).exists() {
            victims.with(|entries| entries.forget_dying(&entry));
        } else if precise::charged(ledger.table(), entry.group) > 0 {
            return Some(until);
        }
    }
}

/// Returns the victims below a group, cancelled or not, by age.
fn victims_below(full: Group<'_>) -> Vec<Arc<Entry>> {
    let (ledger, full) = (full.ledger(), full.id().raw());
    let mut below: Vec<Arc<Entry>> = ledger.control().victims.with(|entries| {
        let theirs = entries.below.range((full, 0)..=(full, u64::MAX));
        theirs.map(|(_, entry)| entry.clone()).collect()
    });
    below.retain(|entry| ledger.group(entry.group).exists());
    below
}

fn verdict(ledger: &Ledger, asking: GroupId, until: Instant) -> Choice {
    if is_cancelled(ledger, asking) { Choice::Yourself } else { Choice::Dying(until) }
}

/// Cancels the tokens of the chosen victims. Counts the events first, so that a notified victim sees them counted.
fn cancel(dying: &[Arc<Entry>], top: Option<GroupId>, full: Group<'_>, requested: u64) {
    let ledger = full.ledger();
    events::count(ledger, full.id(), Sum::Oom);
    if let Some(top) = top {
        events::count(ledger, top, Sum::OomGroupKill);
    }
    let path = full.path();
    for entry in dying {
        let group = ledger.group(entry.group);
        let (group, usage) = (group.path(), group.precise());
        events::count(ledger, entry.group, Sum::OomKill);
        entry.token.cancel(Killed { group, usage, full: path.clone(), requested });
        wait_queue::tell_below(ledger, entry.group);
    }
}

/// Returns whether the ledger cancelled this group or one above it.
pub(crate) fn is_cancelled(ledger: &Ledger, id: GroupId) -> bool {
    let victims = &ledger.control().victims;
    if victims.cancelled.load(Ordering::Relaxed) == 0 {
        return false;
    }
    let above = path::ids_to_root(ledger.table(), id);
    victims.with(|entries| {
        let mut above = above.iter().map(|id| (id.raw(), 0)..=(id.raw(), u64::MAX));
        above.any(|of_one| entries.cancelled.range(of_one).next().is_some())
    })
}

/// Makes the two passes of the module's documentation. Returns the victim with the highest score above `least`; of
/// equals, the one that registered last.
fn highest(full: Group<'_>, entries: &[Arc<Entry>], least: u64) -> Option<Arc<Entry>> {
    let ledger = full.ledger();
    let mut candidates: Vec<(u64, usize)> = entries
        .iter()
        .enumerate()
        .filter(|(_, entry)| !entry.token.is_cancelled())
        .map(|(age, entry)| (entry.score(ledger.group(entry.group).row().counter.usage()), age))
        .collect();
    candidates.sort_unstable_by_key(|&candidate| std::cmp::Reverse(candidate));
    let mut best: Option<(u64, usize)> = None;
    for (most, age) in candidates {
        if most <= least || best.is_some_and(|best| (most, age) < best) {
            break;
        }
        let group = ledger.group(entries[age].group);
        let protection = group.protection(full, Unclaimed::Lost);
        let above = precise::charged(ledger.table(), group.id())
            .saturating_sub(protection.low.max(protection.min));
        let score = entries[age].score(above);
        if score > least && best.is_none_or(|best| (score, age) > best) {
            best = Some((score, age));
        }
    }
    best.map(|(_, age)| entries[age].clone())
}

/// Returns the topmost group with `oom_group` set, from a victim's up to the full one.
fn oom_group_above(victim: GroupId, full: Group<'_>) -> Option<GroupId> {
    let path = RowPath::new(full.table(), victim.index())?;
    let below = path.rows().iter().position(|&row| row == full.id().index())?;
    let together = |row: &&u32| full.table().row(**row).has(flag::OOM_GROUP);
    let row = path.rows()[..=below].iter().rev().find(together)?;
    Some(full.table().id(*row))
}

#[cfg(test)]
mod tests;
