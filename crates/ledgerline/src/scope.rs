//! Scopes: pieces of work that a limit ends as a whole.
//!
//! A scope belongs to work, not to a thread. Each thread, task, stream and job carries the number of its scope beside its
//! current group ([`Current`](crate::whose::Current)). So a job that a waiting worker runs on top of another's stack has its
//! own scope, and the worker has its own again afterwards.
//!
//! ```text
//! Group::catch, catch_future, ...    begin a scope, and take its first refusal when the work ends
//! the allocator                      marks the scope of an allocation that a limit refused
//! checkpoint, polls, spawn helpers   end work whose scope is marked, or a scope around it
//! reclaim                            runs reclaimers in a scope that is marked as such
//! ```
//!
//! A scope's number is its place and a generation. `Current` is copied freely and keeps nothing alive; the number of a scope
//! that ended finds none. [`Held`] keeps a scope as long as a part of the work may run: handed-on closures and tasks have
//! one.
//!
//! All of it is lock-free. Marking allocates nothing, so the allocator may mark.

use crate::os;
use crate::region::free_list::FreeList;
use crate::stock::refusal::Refusal;
use crate::sync::{AtomicU32, AtomicU64};
use crate::table::Table;
use crate::table::handle::Packed;
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ptr::{self, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Duration;

/// The scope of some work: its number, and whether its allocations are granted over any limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScopeId(u64);

/// A flag in a [`ScopeId`]: allocations are granted over any limit. Set for the ledger's own work, and for the end of refused
/// work.
const GRANTING: u64 = 1 << 31;
const PLACE: u64 = GRANTING - 1;

impl ScopeId {
    /// Names no scope: work that is entered with it stays in the scope around it.
    pub(crate) const UNSAID: ScopeId = ScopeId(0);
    /// Work that is in no scope, whatever scope is around it on the stack.
    pub(crate) const NONE: ScopeId = ScopeId(1 << 32);

    /// Returns whether it names a scope, which may have ended.
    #[inline(always)]
    pub(crate) fn is_named(self) -> bool {
        self.0 & PLACE != 0
    }

    #[inline(always)]
    pub(crate) fn is_unsaid(self) -> bool {
        self.0 == 0
    }

    #[inline(always)]
    pub(crate) fn is_granting(self) -> bool {
        self.0 & GRANTING != 0
    }

    pub(crate) fn granting(self) -> ScopeId {
        ScopeId(self.0 | GRANTING)
    }

    fn place(self) -> u32 {
        (self.0 & PLACE) as u32
    }

    fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// The fate of an allocation that a limit refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnLimit {
    /// It is granted over the limit, and the work is marked: it ends at its next checkpoint, poll or end.
    Overrun,
    /// It is null. `try_reserve` returns an error for that. Other code aborts the process, or unwinds with the feature
    /// `unwind` inside a `catch`.
    Null,
}

/// The policy of some work at a limit: the fate of an allocation, and the distance over the limit at full speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Policy {
    /// The fate of an allocation that a limit refuses.
    pub on_limit: OnLimit,
    /// How many bytes over the limit are granted at full speed.
    pub allowance: u64,
}

impl Policy {
    /// Grants over the limit and ends the work, at full speed up to 1 MiB over it.
    pub const OVERRUN: Policy = Policy { on_limit: OnLimit::Overrun, allowance: 1 << 20 };
    /// Refuses each allocation that does not fit, by null.
    pub const NULL: Policy = Policy { on_limit: OnLimit::Null, allowance: 0 };

    /// Returns the policy with another allowance.
    pub const fn within(self, allowance: u64) -> Policy {
        Policy { allowance, ..self }
    }
}

/// A policy that threads read and set at any time.
#[derive(Debug)]
pub(crate) struct SharedPolicy {
    null: AtomicU32,
    allowance: AtomicU64,
}

impl SharedPolicy {
    pub(crate) fn new(policy: Policy) -> SharedPolicy {
        let shared = SharedPolicy { null: AtomicU32::new(0), allowance: AtomicU64::new(0) };
        shared.set(policy);
        shared
    }

    pub(crate) fn set(&self, policy: Policy) {
        // Relaxed, here and below: each number stands alone.
        self.allowance.store(policy.allowance, Ordering::Relaxed);
        self.null.store(u32::from(policy.on_limit == OnLimit::Null), Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> Policy {
        let on_limit = match self.null.load(Ordering::Relaxed) {
            0 => OnLimit::Overrun,
            _ => OnLimit::Null,
        };
        Policy { on_limit, allowance: self.allowance.load(Ordering::Relaxed) }
    }
}

/// The state of an entry: the generation above, then two flags and the number of holders.
const REFUSED: u64 = 1 << 31;
const CLAIMED: u64 = 1 << 30;
const HOLDERS: u64 = CLAIMED - 1;

/// The place of a scope.
///
/// S1: `first` is written only by the thread that set `CLAIMED`, before it sets `REFUSED`, until the scope has ended; it is
/// read by holders that saw `REFUSED`. A scope ends when its last holder goes.
#[repr(align(64))]
struct Entry {
    state: AtomicU64,
    /// The group, packed.
    group: AtomicU64,
    /// The scope around it.
    outer: AtomicU64,
    /// How many bytes were granted over limits.
    granted: AtomicU64,
    /// The time at which it was marked, in nanoseconds of the system's clock.
    marked: AtomicU64,
    policy: SharedPolicy,
    /// The ledger that runs a reclaimer here; null for others.
    reclaims: AtomicPtr<Table>,
    next: AtomicU32,
    first: UnsafeCell<MaybeUninit<(Packed, Refusal)>>,
}

// SAFETY: S1 (guarded by `of_threads_that_mark_a_scope_at_once_one_is_first_and_its_refusal_is_whole`).
unsafe impl Sync for Entry {}

const CHUNK: u32 = 1024;
const CHUNKS: u32 = 1024;

/// Entries, in chunks that stay for good. Place 0 belongs to no scope.
static ENTRIES: [AtomicPtr<[Entry; CHUNK as usize]>; CHUNKS as usize] =
    [const { AtomicPtr::new(null_mut()) }; CHUNKS as usize];
/// The lowest place that no scope ever had.
static FRESH: AtomicU32 = AtomicU32::new(1);
static FREE: FreeList = FreeList::new();

#[inline(always)]
fn at(place: u32) -> Option<&'static Entry> {
    let chunk = ENTRIES.get((place / CHUNK) as usize)?;
    // SAFETY: null, or a chunk that stays for good. Acquire, partner of the Release in `make`: its entries are initialized.
    let chunk = unsafe { chunk.load(Ordering::Acquire).as_ref() }?;
    Some(&chunk[(place % CHUNK) as usize])
}

/// Returns the entry of a place that no scope had before.
fn make(place: u32) -> Option<&'static Entry> {
    if let Some(entry) = at(place) {
        return Some(entry);
    }
    let chunk = ENTRIES.get((place / CHUNK) as usize)?;
    let entry = |_| Entry {
        state: AtomicU64::new(2 << 32),
        group: AtomicU64::new(0),
        outer: AtomicU64::new(0),
        granted: AtomicU64::new(0),
        marked: AtomicU64::new(0),
        policy: SharedPolicy::new(Policy::OVERRUN),
        reclaims: AtomicPtr::new(null_mut()),
        next: AtomicU32::new(0),
        first: UnsafeCell::new(MaybeUninit::uninit()),
    };
    let made: Box<[Entry]> = (0..CHUNK).map(entry).collect();
    let made: Box<[Entry; CHUNK as usize]> = made.try_into().ok()?;
    let made = Box::into_raw(made);
    // Release, partner of the Acquire in `at`.
    if chunk.compare_exchange(null_mut(), made, Ordering::Release, Ordering::Relaxed).is_err() {
        // SAFETY: it was made here, and no other thread has seen it.
        drop(unsafe { Box::from_raw(made) });
    }
    at(place)
}

/// Returns a place for a scope, or `None` once a million have begun and not ended.
fn place() -> Option<u32> {
    let next = |place: u32| at(place).map(|entry| &entry.next);
    FREE.pop(next).or_else(|| {
        let more = |place: u32| (place < CHUNK * CHUNKS).then(|| place + 1);
        // Relaxed: the number stands alone.
        let fresh = FRESH.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        make(fresh).map(|_| fresh)
    })
}

/// Keeps a scope alive.
#[derive(Debug)]
pub(crate) struct Held(ScopeId);

impl Held {
    /// Begins a scope of a group inside of `outer`. Allocates now and then; the caller exempts that from charging.
    pub(crate) fn begin(group: Option<Packed>, outer: ScopeId, policy: Policy) -> Option<Held> {
        Held::begin_with(group, outer, policy, ptr::null())
    }

    /// Begins a scope in which reclaimers of a ledger run.
    pub(crate) fn begin_reclaim(outer: ScopeId, table: &Table) -> Option<Held> {
        Held::begin_with(None, outer, Policy::OVERRUN, table)
    }

    fn begin_with(
        group: Option<Packed>,
        outer: ScopeId,
        policy: Policy,
        table: *const Table,
    ) -> Option<Held> {
        let place = place()?;
        let entry = at(place)?;
        entry.group.store(group.map_or(0, Packed::raw), Ordering::Relaxed);
        entry.outer.store(outer.0, Ordering::Relaxed);
        entry.granted.store(0, Ordering::Relaxed);
        entry.policy.set(policy);
        entry.reclaims.store(table.cast_mut(), Ordering::Relaxed);
        let generation = entry.state.load(Ordering::Relaxed) >> 32;
        // Release, partner of the Acquires in `live` and `Held::new`: the fields belong to this scope.
        entry.state.store(generation << 32 | 1, Ordering::Release);
        Some(Held(ScopeId(generation << 32 | u64::from(place))))
    }

    /// Keeps the scope with a number, if it has not ended.
    pub(crate) fn new(id: ScopeId) -> Option<Held> {
        if !id.is_named() {
            return None;
        }
        let entry = at(id.place())?;
        let more = |state: u64| {
            let live = (state >> 32) as u32 == id.generation() && state & HOLDERS != 0;
            (live && state & HOLDERS != HOLDERS).then(|| state + 1)
        };
        // Acquire, partner of the Releases in `begin_with` and `mark`.
        entry.state.fetch_update(Ordering::Acquire, Ordering::Relaxed, more).ok()?;
        Some(Held(id))
    }

    pub(crate) fn id(&self) -> ScopeId {
        self.0
    }

    fn entry(&self) -> &'static Entry {
        at(self.0.place()).expect("a scope that began has an entry")
    }

    /// Returns the first refusal of this scope, and the group that was to be charged.
    pub(crate) fn refused(&self) -> Option<(Packed, Refusal)> {
        let entry = self.entry();
        // Acquire, partner of the Release in `mark`.
        let refused = entry.state.load(Ordering::Acquire) & REFUSED != 0;
        // SAFETY: S1: this holds the scope, and `REFUSED` was seen.
        refused.then(|| unsafe { (*entry.first.get()).assume_init() })
    }

    /// Marks the scope as refused, unless it is. Returns whether this was the first refusal. Async-signal-safe.
    pub(crate) fn mark(&self, group: Packed, refusal: Refusal) -> bool {
        let entry = self.entry();
        // AcqRel: one thread claims, and its writes below come after.
        if entry.state.fetch_or(CLAIMED, Ordering::AcqRel) & CLAIMED != 0 {
            return false;
        }
        // SAFETY: S1: this thread set `CLAIMED`.
        unsafe { (*entry.first.get()).write((group, refusal)) };
        entry.marked.store(now(), Ordering::Relaxed);
        // Release, partner of the Acquires of readers: the refusal is complete.
        entry.state.fetch_or(REFUSED, Ordering::Release);
        true
    }

    /// Notes bytes that are granted over a limit. Returns the total with these.
    pub(crate) fn grant(&self, units: u64) -> u64 {
        // Relaxed: the sum stands alone.
        self.entry().granted.fetch_add(units, Ordering::Relaxed).saturating_add(units)
    }

    pub(crate) fn policy(&self) -> Policy {
        self.entry().policy.get()
    }
}

impl Clone for Held {
    fn clone(&self) -> Held {
        // A billion holders would take more memory than there is, so the number never reaches the flags.
        self.entry().state.fetch_add(1, Ordering::Relaxed);
        Held(self.0)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let entry = self.entry();
        let generation = u64::from(self.0.generation());
        let less = |state: u64| {
            let last = state & HOLDERS == 1;
            // A generation of zero would make a number with a small place look as if it named no scope.
            let next = (generation + 1).max(2) & u64::from(u32::MAX);
            Some(if last { next.max(2) << 32 } else { state - 1 })
        };
        // AcqRel: the last holder comes after all other holders' uses of the scope.
        let before = entry.state.fetch_update(Ordering::AcqRel, Ordering::Relaxed, less);
        if before.is_ok_and(|state| state & HOLDERS == 1) {
            FREE.push(self.0.place(), &entry.next);
        }
    }
}

/// Returns the time of the system's clock in nanoseconds.
fn now() -> u64 {
    u64::try_from(os::monotonic().as_nanos()).unwrap_or(u64::MAX)
}

/// A scope that a refusal can end.
#[derive(Clone, Copy)]
pub(crate) struct Endable {
    pub(crate) id: ScopeId,
    pub(crate) group: Packed,
    /// How long ago it was marked; `None` if it was not.
    pub(crate) marked: Option<Duration>,
}

/// Calls `look` for each scope of a group that has not ended, except those with the policy [`OnLimit::Null`], which must not be
/// ended. Passes over as many entries as there were scopes at a time. Scopes that begin or end meanwhile may be missed.
pub(crate) fn each_endable(mut look: impl FnMut(Endable)) {
    // Relaxed: any scope that this thread caused to begin before the call is below it.
    for place in 1..FRESH.load(Ordering::Relaxed) {
        // A thread may have taken the place and not initialized the entry yet.
        let Some(entry) = at(place) else { continue };
        // Acquire, partner of the Releases in `begin_with` and `mark`.
        let state = entry.state.load(Ordering::Acquire);
        let group = Packed::from_raw(entry.group.load(Ordering::Relaxed));
        let Some(group) = group.filter(|_| state & HOLDERS != 0) else { continue };
        let marked = (state & REFUSED != 0).then(|| {
            let marked = entry.marked.load(Ordering::Relaxed);
            Duration::from_nanos(now().saturating_sub(marked))
        });
        let null = entry.policy.get().on_limit == OnLimit::Null;
        // The fields belong to this scope if it has not ended since.
        if !null && entry.state.load(Ordering::Acquire) >> 32 == state >> 32 {
            let id = ScopeId(state >> 32 << 32 | u64::from(place));
            look(Endable { id, group, marked });
        }
    }
}

/// Returns the scopes from one outwards, as long as they have not ended, each with its state.
fn outwards(id: ScopeId) -> impl Iterator<Item = (ScopeId, &'static Entry, u64)> {
    let live = |id: ScopeId| {
        let entry = at(id.place()).filter(|_| id.is_named())?;
        // Acquire, partner of the Release in `begin_with`.
        let state = entry.state.load(Ordering::Acquire);
        let same = (state >> 32) as u32 == id.generation() && state & HOLDERS != 0;
        same.then_some((id, entry, state))
    };
    // Work may nest scopes without end; none beyond the thousandth is visited.
    std::iter::successors(live(id), move |(_, entry, _)| {
        live(ScopeId(entry.outer.load(Ordering::Relaxed)))
    })
    .take(1000)
}

/// Returns the innermost refused scope, of a scope and those around it. A reclaimer works for others than the work whose charge
/// asked it, so it does not end with that work.
#[inline]
pub(crate) fn refused(id: ScopeId) -> Option<Held> {
    for (id, entry, state) in outwards(id) {
        if state & REFUSED != 0 {
            return Held::new(id);
        }
        if !entry.reclaims.load(Ordering::Relaxed).is_null() {
            return None;
        }
    }
    None
}

/// Returns whether reclaimers of a ledger, or of any for `None`, run in this scope or in one around it.
pub(crate) fn reclaims(id: ScopeId, table: Option<&Table>) -> bool {
    outwards(id).any(|(_, entry, _)| {
        let reclaims = entry.reclaims.load(Ordering::Relaxed).cast_const();
        !reclaims.is_null() && table.is_none_or(|table| ptr::eq(table, reclaims))
    })
}

/// Returns the group of a scope that has not ended.
pub(crate) fn group(id: ScopeId) -> Option<Packed> {
    outwards(id)
        .next()
        .and_then(|(_, entry, _)| Packed::from_raw(entry.group.load(Ordering::Relaxed)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ledger;
    use crate::stock::refusal::Reason;
    use std::sync::Barrier;

    fn refusal(number: u64) -> (Packed, Refusal) {
        let root = Ledger::builder().capacity(2).anonymous().unwrap().into_static().root();
        let refusal = Refusal {
            group: root.id(),
            charged: root.id(),
            limit: number,
            usage: number,
            requested: number,
            reason: Reason::Limit,
        };
        (root.pack(), refusal)
    }

    #[test]
    fn a_number_of_a_scope_that_ended_finds_none_also_when_another_has_the_place() {
        let (group, first) = refusal(1);
        let scope = Held::begin(None, ScopeId::NONE, Policy::OVERRUN).unwrap();
        let id = scope.id();
        let part = Held::new(id).unwrap();
        drop(scope);
        assert!(part.mark(group, first) && refused(id).is_some(), "a part keeps it");
        drop(part);
        assert!(refused(id).is_none() && Held::new(id).is_none());
        // Some of these take its place.
        let next: Vec<Held> =
            (0..100).map(|_| Held::begin(None, ScopeId::NONE, Policy::OVERRUN).unwrap()).collect();
        assert!(next.iter().all(|scope| scope.refused().is_none() && scope.id() != id));
        assert!(Held::new(id).is_none());
    }

    #[test]
    fn a_refusal_ends_what_is_inside_and_not_what_is_around() {
        let (group, first) = refusal(1);
        let outer = Held::begin(None, ScopeId::NONE, Policy::OVERRUN).unwrap();
        let inner = Held::begin(None, outer.id(), Policy::OVERRUN).unwrap();
        assert!(inner.mark(group, first));
        assert!(refused(outer.id()).is_none());
        assert_eq!(refused(inner.id()).unwrap().id(), inner.id());
        let second = Held::begin(None, outer.id(), Policy::OVERRUN).unwrap();
        assert!(outer.mark(group, first));
        assert_eq!(refused(second.id()).unwrap().id(), outer.id());
        assert_eq!(refused(second.id().granting()).unwrap().id(), outer.id());
    }

    #[test]
    fn of_threads_that_mark_a_scope_at_once_one_is_first_and_its_refusal_is_whole() {
        let (group, base) = refusal(0);
        for _ in 0..200 {
            let scope = Held::begin(None, ScopeId::NONE, Policy::OVERRUN).unwrap();
            let begin = Barrier::new(3);
            let firsts: usize = std::thread::scope(|threads| {
                let marks: Vec<_> = (1..4)
                    .map(|number| {
                        let (part, begin) = (scope.clone(), &begin);
                        threads.spawn(move || {
                            begin.wait();
                            let mine =
                                Refusal { limit: number, usage: number, requested: number, ..base };
                            let first = part.mark(group, mine);
                            if first {
                                assert_eq!(part.refused().unwrap().1, mine);
                            }
                            usize::from(first)
                        })
                    })
                    .collect();
                marks.into_iter().map(|mark| mark.join().unwrap()).sum()
            });
            let told = scope.refused().unwrap().1;
            assert_eq!(firsts, 1);
            assert!(told.limit == told.usage && told.usage == told.requested && told.limit > 0);
        }
    }
}
