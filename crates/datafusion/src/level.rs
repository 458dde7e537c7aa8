//! A level: a group with a limit, and the holdings below it. This module decides which consumer spills.
//!
//! ```text
//! |<------------------------------- room ------------------------------->|
//! |  not ours, cannot spill  |  can spill ...        | finish |   kept    |
//!                            |<---- growth ----------|        |           |
//!                            |<---- overdraft ----------------|           |
//!                            |<---- first ------------------------->|     |
//! ```
//!
//! The room is the level's max, or the remainder that a watch of RSS leaves. Consumers that cannot spill may take all
//! of it, and their holdings come off `kept` first. Consumers that can spill grow freely up to the `growth` line.
//! Beyond it the room is *short*. Then
//!
//! * the largest active spiller is refused, so that it spills;
//! * one that holds at most its share (overdraft line / active spillers) may grow up to the first line. Many operators
//!   that hold so little cannot spill at all: an aggregation that merges its spilled data is registered as one that
//!   can, and a refusal ends its query, while the largest sorts the results of that and does not ask for more;
//! * one that holds more and is not the largest may grow to half of the way to the overdraft line: the largest is asked
//!   first;
//! * one that was asked to spill and has not given back half of its holding then may grow up to the overdraft line, but
//!   at most an eighth beyond that holding: spilling takes memory too;
//! * one that holds nothing has nothing to spill, and a refusal would end its query. It, too, may take half of `kept`,
//!   up to the first line.
//!
//! DataFusion has no call by which a pool could ask an operator to spill: an operator spills when its own `try_grow`
//! fails, and `try_grow` cannot wait. So the largest spiller is asked when it requests more, and until then the others
//! live on the overdraft and half of `kept`. One that never requests more gives nothing back until it ends.
//!
//! The lines hold exactly among consumers that can spill, by one compare-and-swap per level. Against others they held
//! at a moment of the call. The max itself is the ledger's, and exact for all.
//!
//! All atomics of this file are counts, and no other memory depends on their values: Relaxed.

use crate::consumer::Consumer;
use crate::engine::Engine;
use crate::rss::Room;
use crate::settings::Settings;
use crossbeam_utils::CachePadded;
use ledgerline::{Group, OwnedGroup};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The time in milliseconds for which a consumer that was asked to spill counts as active while it holds nothing.
const RECENT: u64 = 1000;

pub(crate) struct Level {
    pub(crate) owned: OwnedGroup,
    engine: Arc<Engine>,
    /// Whether this is the level at which RSS is watched: the pool's top.
    is_top: bool,
    /// On lines of its own: each `try_grow` below changes it, and reads the fields above.
    counts: CachePadded<Counts>,
    /// The consumers below that can spill, by their numbers.
    spillers: Mutex<BTreeMap<usize, Arc<Consumer>>>,
}

/// The bytes of consumers below, added before the ledger is charged and removed after it is uncharged.
#[derive(Default)]
struct Counts {
    /// Bytes of consumers that can spill.
    spillable: AtomicU64,
    /// Bytes of consumers that cannot.
    fixed: AtomicU64,
}

/// The limits for the sum of consumers that can spill in a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lines {
    pub(crate) growth: u64,
    pub(crate) overdraft: u64,
    pub(crate) first: u64,
}

impl Lines {
    /// Returns the lines in a room, of which `fixed` bytes cannot be spilled.
    pub(crate) fn of(room: u64, fixed: u64, settings: &Settings) -> Lines {
        let kept = settings.kept.part(room).saturating_sub(fixed);
        let left = room.saturating_sub(fixed);
        let overdraft = left.saturating_sub(kept);
        Lines {
            growth: overdraft.saturating_sub(settings.finish.part(room)),
            overdraft,
            first: left.saturating_sub(kept / 2),
        }
    }

    /// Returns the smallest room whose lines suffice: they only rise with the room.
    fn least_room(
        fixed: u64,
        settings: &Settings,
        suffices: impl Fn(Lines) -> bool,
    ) -> Option<u64> {
        let suffices = |room| suffices(Lines::of(room, fixed, settings));
        let (mut low, mut high) = (0, u64::MAX);
        while low < high {
            let middle = low + (high - low) / 2;
            if suffices(middle) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        suffices(low).then_some(low)
    }
}

/// The competitors in a level that is short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Survey {
    /// The number of active spillers, with the one that asks.
    pub(crate) active: u64,
    /// The holding of the largest of the others.
    pub(crate) largest_other: u64,
}

impl Survey {
    const ALONE: Survey = Survey { active: 1, largest_other: 0 };
}

/// A consumer that asks for more in a level that is short.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker {
    pub(crate) held: u64,
    pub(crate) asks: u64,
    pub(crate) spilling_from: u64,
}

/// Returns the line for one asker in a level that is short.
pub(crate) fn line_when_short(lines: Lines, asker: Asker, survey: Survey) -> u64 {
    let Asker { held, asks, spilling_from } = asker;
    let wants = held.saturating_add(asks);
    if spilling_from > 0 && wants <= spilling_from.saturating_add(spilling_from / 8) {
        return lines.overdraft;
    }
    if held >= survey.largest_other {
        return lines.growth;
    }
    if wants <= lines.overdraft / survey.active.max(1) {
        return lines.first;
    }
    lines.growth + (lines.overdraft - lines.growth) / 2
}

/// The reason why a level did not let a consumer grow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Short {
    pub(crate) room: Room,
    pub(crate) lines: Lines,
    pub(crate) spillable: u64,
    pub(crate) survey: Survey,
}

impl Level {
    pub(crate) fn new(owned: OwnedGroup, engine: Arc<Engine>, is_top: bool) -> Level {
        let (counts, spillers) = (CachePadded::default(), Mutex::default());
        Level { owned, engine, is_top, counts, spillers }
    }

    pub(crate) fn group(&self) -> Group<'_> {
        self.owned.group()
    }

    /// Returns the milliseconds since the pool was made.
    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.engine.start.elapsed().as_millis()).unwrap_or(u64::MAX - 1)
    }

    /// Returns the bytes that all consumers below reserved.
    pub(crate) fn reserved(&self) -> u64 {
        self.counts.spillable.load(Relaxed).saturating_add(self.counts.fixed.load(Relaxed))
    }

    pub(crate) fn add_spiller(&self, consumer: &Arc<Consumer>) {
        self.spillers().insert(consumer.id, consumer.clone());
    }

    pub(crate) fn remove_spiller(&self, id: usize) {
        self.spillers().remove(&id);
    }

    fn spillers(&self) -> MutexGuard<'_, BTreeMap<usize, Arc<Consumer>>> {
        // No critical section panics in the middle of a change.
        self.spillers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a consumer take `bytes`, or returns why not.
    pub(crate) fn admit(&self, consumer: &Consumer, bytes: u64) -> Result<(), Short> {
        let Some(room) = self.room() else {
            self.add(consumer.can_spill, bytes);
            return Ok(());
        };
        if !consumer.can_spill {
            return self.admit_fixed(bytes, room);
        }
        let (fixed, settings) = (self.fixed_and_foreign(), &self.engine.settings);
        let lines = Lines::of(room.spill, fixed, settings);
        if consumer.held() == 0 {
            let first = Lines::of(room.refuse, fixed, settings).first;
            return self.take(bytes, first).map_err(|_| self.short(room, lines, Survey::ALONE));
        }
        if self.take(bytes, lines.growth).is_ok() {
            return Ok(());
        }
        let survey = self.survey(consumer);
        let (held, spilling_from) = (consumer.held(), consumer.spilling_from());
        let line = line_when_short(lines, Asker { held, asks: bytes, spilling_from }, survey);
        self.take(bytes, line).map_err(|_| self.short(room, lines, survey))
    }

    /// Returns how far beyond the charged units the max must be for a consumer to be admitted without asking any to
    /// spill. `None` if no max is enough.
    pub(crate) fn lacking(&self, consumer: &Consumer, bytes: u64) -> Option<u64> {
        if !consumer.can_spill {
            return Some(bytes);
        }
        let after = self.counts.spillable.load(Relaxed).saturating_add(bytes);
        let (fixed, begins) = (self.fixed_and_foreign(), consumer.held() == 0);
        let room = Lines::least_room(fixed, &self.engine.settings, |lines| {
            after <= if begins { lines.first } else { lines.growth }
        })?;
        Some(room.saturating_sub(self.group().precise()).max(bytes))
    }

    /// Admits a consumer that cannot spill. The ledger checks the max; this checks a watch of RSS.
    fn admit_fixed(&self, bytes: u64, room: Room) -> Result<(), Short> {
        if room.uncounted.is_some() && self.reserved().saturating_add(bytes) > room.refuse {
            let lines = Lines::of(room.refuse, self.fixed_and_foreign(), &self.engine.settings);
            return Err(self.short(room, lines, Survey::ALONE));
        }
        self.add(false, bytes);
        Ok(())
    }

    /// Adds bytes without checking a line.
    pub(crate) fn add(&self, can_spill: bool, bytes: u64) {
        self.count(can_spill).fetch_add(bytes, Relaxed);
    }

    /// Removes bytes, after they were returned to the ledger.
    pub(crate) fn sub(&self, can_spill: bool, bytes: u64) {
        self.count(can_spill).fetch_sub(bytes, Relaxed);
    }

    fn count(&self, can_spill: bool) -> &AtomicU64 {
        if can_spill { &self.counts.spillable } else { &self.counts.fixed }
    }

    /// Adds bytes that can be spilled, if all such bytes stay within the line.
    fn take(&self, bytes: u64, line: u64) -> Result<(), u64> {
        let take = |spillable: u64| spillable.checked_add(bytes).filter(|&after| after <= line);
        self.counts.spillable.fetch_update(Relaxed, Relaxed, take).map(drop)
    }

    /// Returns the room; `None` without a limit.
    fn room(&self) -> Option<Room> {
        let max = self.group().max().get();
        let watch = self.engine.settings.rss.as_ref().filter(|_| self.is_top);
        let watched = watch.map(|watch| watch.room(|| self.group().precise()));
        match (watched, max) {
            (None, None) => None,
            _ => Some(watched.unwrap_or(Room::ENDLESS).within(max.unwrap_or(u64::MAX))),
        }
    }

    /// Returns the bytes that no spill here gives back: of consumers that cannot, and other charges to the group.
    ///
    /// The counts of this level are never less than their part of the ledger, and idle stock is left out. So everything
    /// beyond them is foreign. They are read before and after the ledger: one of the readings includes bytes that came
    /// or went meanwhile.
    fn fixed_and_foreign(&self) -> u64 {
        let before = self.reserved();
        let usage = self.group().approximate();
        let ours = before.max(self.reserved());
        let foreign = usage.value.saturating_sub(usage.bound).saturating_sub(ours);
        self.counts.fixed.load(Relaxed).saturating_add(foreign)
    }

    /// Surveys all consumers below that can spill.
    fn survey(&self, asker: &Consumer) -> Survey {
        let now = self.now();
        let mut survey = Survey::ALONE;
        for (_, other) in self.spillers().iter().filter(|(id, _)| **id != asker.id) {
            survey.active += u64::from(other.is_active(now, RECENT));
            survey.largest_other = survey.largest_other.max(other.held());
        }
        survey
    }

    fn short(&self, room: Room, lines: Lines, survey: Survey) -> Short {
        Short { room, lines, spillable: self.counts.spillable.load(Relaxed), survey }
    }
}

impl std::fmt::Debug for Level {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (spillable, fixed) =
            (self.counts.spillable.load(Relaxed), self.counts.fixed.load(Relaxed));
        write!(f, "Level({} can spill {spillable}, cannot {fixed})", self.group().path())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::share::Share;

    fn lines() -> Lines {
        Lines::of(1600, 0, &Settings::default())
    }

    fn asker(held: u64, asks: u64) -> Asker {
        Asker { held, asks, spilling_from: 0 }
    }

    #[test]
    fn what_cannot_spill_uses_up_what_is_kept_before_it_moves_the_lines() {
        let settings = Settings::default();
        assert_eq!(lines(), Lines { growth: 1300, overdraft: 1400, first: 1500 });
        assert_eq!(
            Lines::of(1600, 200, &settings),
            Lines { growth: 1300, overdraft: 1400, first: 1400 }
        );
        assert_eq!(
            Lines::of(1600, 300, &settings),
            Lines { growth: 1200, overdraft: 1300, first: 1300 }
        );
        assert_eq!(Lines::of(1600, 9999, &settings), Lines { growth: 0, overdraft: 0, first: 0 });
    }

    #[test]
    fn the_least_room_that_suffices_is_found_or_there_is_none() {
        let usual = Settings::default();
        for (fixed, growth) in [(0, 1300), (300, 1200), (0, 1)] {
            let suffices = |lines: Lines| lines.growth >= growth;
            let room = Lines::least_room(fixed, &usual, suffices).unwrap();
            assert!(suffices(Lines::of(room, fixed, &usual)));
            assert!(!suffices(Lines::of(room - 1, fixed, &usual)));
        }
        let nothing = Settings { kept: Share::of(1.0), ..usual };
        assert_eq!(Lines::least_room(0, &nothing, |lines| lines.growth > 0), None);
    }

    #[test]
    fn in_a_short_room_the_largest_is_refused_and_the_others_go_on() {
        let survey = Survey { active: 4, largest_other: 600 };
        assert_eq!(line_when_short(lines(), asker(700, 1), survey), 1300, "the largest");
        assert_eq!(
            line_when_short(lines(), asker(600, 1), survey),
            1300,
            "as large as the largest"
        );
        assert_eq!(line_when_short(lines(), asker(300, 50), survey), 1500, "at its share");
        assert_eq!(line_when_short(lines(), asker(300, 51), survey), 1350, "above its share");
    }

    #[test]
    fn who_was_asked_to_spill_may_take_an_eighth_more_to_do_so() {
        let alone = Survey { active: 1, largest_other: 0 };
        let spilling = |held, asks| Asker { held, asks, spilling_from: 800 };
        assert_eq!(line_when_short(lines(), spilling(800, 100), alone), 1400);
        assert_eq!(line_when_short(lines(), spilling(800, 101), alone), 1300);
        assert_eq!(line_when_short(lines(), asker(800, 100), alone), 1300);
    }
}
