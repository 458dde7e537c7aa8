//! The walk from a row to the root: it changes the counter of every level for one charge.
//!
//! ```text
//! try_charge(path, n):                         uncharge(path, n):
//!   each level with a limit, row first: look     each level, row first:
//!     usage + n > max: refuse, name the level      usage    -= n   (never below zero)
//!   each level, root first: reserve n              reserved -= n
//!     does not fit: cancel what was reserved
//!   each level, root first: usage += n; raise the watermark to that
//! ```
//!
//! A refusal names the lowest full level, the one nearest to the row. While that level is full, reclaim in
//! groups outside of it does not help.
//!
//! A walk goes root first, so that at every instant a parent holds at least what its children hold. A
//! process that is killed in the middle of a walk leaves its ancestors too full by that one request, never
//! too empty.
//!
//! Cost: two atomic operations per level, and two more if a surplus is fetched (`in_flight`). They are paid
//! once per batch, not once per charge (`stock/mod.rs`). All are additions, which succeed at once however many
//! CPUs walk the same group; the limit's line is only read.

use crate::counter::{NotReserved, PageCounter, Underflow};
use crate::sync::Ordering;
#[cfg(loom)]
use crate::sync::PATIENCE;

/// The counters from a row (first) to the root (last).
pub(crate) type Path<'a> = [&'a PageCounter];

/// Why a level refused a walk. `level` counts from the row (0) to the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotGranted {
    /// `usage + n > max` was seen.
    Full { level: usize },
    /// The row was destroyed.
    Closed { level: usize },
    /// A level holds a value that no walk leaves there: another program wrote over it.
    Damaged,
}

/// The levels (the row is 0) whose closed rows lost their last unit: the caller frees them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "an emptied row that is not freed is lost"]
pub(crate) struct Emptied(u64);

impl Emptied {
    fn note(&mut self, level: usize, emptied: bool) {
        self.0 |= u64::from(emptied) << level;
    }

    /// Iterates over the levels, the row's first.
    pub(crate) fn levels(self) -> impl Iterator<Item = usize> {
        (0..64).filter(move |level| self.0 >> level & 1 != 0)
    }
}

/// The levels of a path at which something happened: one bit per level, the row's the lowest.
pub(crate) type Levels = u64;

/// Why a request was not granted, and the rows that cancelling it emptied.
type Stopped = (NotGranted, Emptied);

/// The treatment of a charge that a limit does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtLimit {
    /// It is refused.
    Refuse,
    /// It goes over the limit. It fails only for a destroyed row or beyond [`COUNTER_MAX`](super::COUNTER_MAX).
    Overrun,
    /// It goes over every limit but the root's, and no event is counted.
    OverrunBelowRoot,
}

impl AtLimit {
    /// Returns whether the limit of a level holds.
    fn holds(self, level: usize, levels: usize) -> bool {
        match self {
            AtLimit::Refuse => true,
            AtLimit::Overrun => false,
            AtLimit::OverrunBelowRoot => level + 1 == levels,
        }
    }
}

/// Grants `n` units on every level, or grants nothing and names the level that refused.
///
/// The limits of all levels hold at every instant (I1, I2). `n` is at most [`COUNTER_MAX`](super::COUNTER_MAX).
#[cfg(loom)]
pub(crate) fn try_charge(path: &Path<'_>, n: u64) -> Result<(), Stopped> {
    reserve(path, n, AtLimit::Refuse, PATIENCE)?;
    commit(path, n, AtLimit::Refuse);
    Ok(())
}

/// Reserves on every level without granting: the first half of a charge, for a caller that acts between the two
/// (`stock/mod.rs` trims idle units there).
#[inline]
pub(crate) fn reserve(path: &Path<'_>, n: u64, at: AtLimit, patience: u32) -> Result<(), Stopped> {
    let holds = |level| at.holds(level, path.len());
    // Looking first keeps a request that cannot be granted from reserving anything at all.
    let full = |(level, counter): (usize, &&PageCounter)| holds(level) && counter.refuses(n);
    if at != AtLimit::Overrun
        && let Some(level) = path.iter().enumerate().position(full)
    {
        return Err((NotGranted::Full { level }, Emptied::default()));
    }
    for (level, counter) in path.iter().enumerate().rev() {
        let reserved = match holds(level) {
            true => counter.reserve(n, patience),
            false => counter.force_reserve(n, patience),
        };
        reserved.map_err(|why| refuse(path, n, level, why, at))?;
    }
    Ok(())
}

/// Grants what [`reserve`] reserved, and counts a `max` event on each level that is over its limit then.
/// Returns the levels at which a limit was met.
#[inline]
pub(crate) fn commit(path: &Path<'_>, n: u64, at: AtLimit) -> Levels {
    let mut met = 0;
    for (level, counter) in path.iter().enumerate().rev() {
        let high = counter.commit(n);
        let over = at == AtLimit::Overrun && counter.usage() > counter.max();
        if over {
            counter.track.max_events.fetch_add(1, Ordering::Relaxed);
        }
        met |= u64::from(high || over) << level;
    }
    met
}

/// Cancels reservations that were never granted, from `first` up to the root.
pub(crate) fn cancel(path: &Path<'_>, first: usize, n: u64) -> Emptied {
    let mut emptied = Emptied::default();
    for (level, counter) in path.iter().enumerate().skip(first) {
        emptied.note(level, counter.cancel(n));
    }
    emptied
}

fn refuse(path: &Path<'_>, n: u64, level: usize, why: NotReserved, at: AtLimit) -> Stopped {
    let mut emptied = cancel(path, level + 1, n);
    emptied.note(level, why == NotReserved::Emptied);
    let no = match why {
        // A lower level may have filled up since it was looked at.
        NotReserved::Full => {
            let below = match at {
                // Levels below the root never refuse such a charge.
                AtLimit::OverrunBelowRoot => None,
                _ => path[..level].iter().position(|counter| counter.refuses(n)),
            };
            NotGranted::Full { level: below.unwrap_or(level) }
        }
        NotReserved::Closed | NotReserved::Emptied => NotGranted::Closed { level },
        NotReserved::Damaged => NotGranted::Damaged,
    };
    (no, emptied)
}

/// Uncharges `n` granted units on every level. Returns the levels whose closed rows became empty.
///
/// An uncharge of more than the row holds changes nothing and is an error. An ancestor holds at least as
/// much, unless its memory was overwritten; then the uncharge is skipped there and reported.
pub(crate) fn uncharge(path: &Path<'_>, n: u64) -> (Emptied, Result<(), Underflow>) {
    let mut emptied = Emptied::default();
    let mut result = Ok(());
    for (level, counter) in path.iter().enumerate() {
        match counter.remove(n) {
            Ok(was_last) => emptied.note(level, was_last),
            Err(underflow) => {
                result = Err(underflow);
                if level == 0 {
                    break;
                }
            }
        }
    }
    (emptied, result)
}
