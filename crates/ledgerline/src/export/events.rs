//! Limits that were met, as events of `tracing` (feature `tracing-events`).
//!
//! | message                                | level | fields besides `group` and `count`          |
//! |----------------------------------------|-------|---------------------------------------------|
//! | `charges met the group's max`          | warn  | `max`, `current`                            |
//! | `charges went over the group's high`   | info  | `high`, `current`                           |
//! | `caches gave back memory`              | info  | `bytes`, in place of `count`                |
//! | `low was not kept`                     | warn  | `low`                                       |
//! | `a victim was looked for: the group was full` | warn | `max`, `current`                      |
//! | `victims were cancelled`               | error | `current`                                   |
//! | `limits were set`                      | info  | `max`, `high`, as they are now              |
//! | `more groups met limits`               | warn  | `count` of groups; no `group`               |
//!
//! Their target is `ledgerline`. One event summarizes all occurrences of its kind in its group since the previous call: a
//! query that is refused a million times a second makes one line.

use crate::control::events::Events;
use crate::group::Group;
use crate::report::snapshot::{GroupSnapshot, GroupState};
use crate::stock::totals;
use crate::table::id::GroupId;
use crate::table::sums::{COUNTED, FIXED, Sum};
use std::array;
use std::collections::HashMap;
use tracing::{error, info, warn};

/// How many groups one call reports, unless the program sets another number.
const GROUPS: usize = 20;

/// Emits the limit events since the previous call.
///
/// ```
/// use ledgerline::{Ledger, Limit, export::events::LimitEvents};
/// use std::time::Duration;
///
/// let ledger = Ledger::new()?.into_static();
/// let mut events = LimitEvents::new(ledger.root());
/// let watch = ledger.root().watch()?;
///
/// let query = ledger.root().create("q1")?;
/// query.set_max(Limit::units(100))?;
/// query.try_charge(101).unwrap_err();
/// // In a thread or a task of the program's: wait for something to happen, and then a second, so that there is one
/// // event of each kind a second at most.
/// if watch.wait(Some(Duration::from_secs(60)))?.is_some() {
///     assert_eq!(events.emit(), 1);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct LimitEvents<'l> {
    group: Group<'l>,
    most: usize,
    before: HashMap<GroupId, Words>,
}

/// The words that a group counted itself (`table/sums.rs`). Groups below it have their own.
type Words = [i64; COUNTED + FIXED];

/// The counts that are reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counted {
    events: Events,
    reclaimed: u64,
}

impl<'l> LimitEvents<'l> {
    /// Returns an emitter for a group and all below it. Earlier events are not reported.
    pub fn new(group: Group<'l>) -> LimitEvents<'l> {
        let mut events = LimitEvents { group, most: GROUPS, before: HashMap::new() };
        events.before = events.look().into_iter().map(|(group, now)| (group.id, now)).collect();
        events
    }

    /// Limits the number of groups that one call reports; of the others it reports only the number. The default is 20.
    #[must_use]
    pub fn groups(mut self, most: usize) -> LimitEvents<'l> {
        self.most = most;
        self
    }

    /// Emits an event for each kind of occurrence in each group since the previous call, and returns the number of groups
    /// with any. Groups in which the most charges met a limit come first.
    ///
    /// The subscriber is called on this thread, with no lock of the ledger held: it may allocate, charge, and wait. The
    /// program determines the rate by its calls. Takes a [snapshot](crate::Ledger::snapshot) and some two microseconds a
    /// group. Not async-signal-safe.
    pub fn emit(&mut self) -> usize {
        let looked = self.look();
        let mut happened: Vec<(&GroupSnapshot, Counted)> = Vec::new();
        for (group, now) in &looked {
            let before = self.before.get(&group.id).unwrap_or(&[0; COUNTED + FIXED]);
            let since = array::from_fn(|word| now[word].saturating_sub(before[word]).max(0));
            let since = Counted::of(&since);
            if since != Counted::default() {
                happened.push((group, since));
            }
        }
        happened.sort_by_key(|(_, since)| std::cmp::Reverse(since.events.max));
        let shown = happened.len().min(self.most);
        for (group, since) in &happened[..shown] {
            since.tell(group);
        }
        if shown < happened.len() {
            warn!(target: "ledgerline", count = happened.len() - shown, "more groups met limits");
        }
        let many = happened.len();
        self.before = looked.into_iter().map(|(group, now)| (group.id, now)).collect();
        many
    }

    fn look(&self) -> Vec<(GroupSnapshot, Words)> {
        let ledger = self.group.ledger();
        let mut groups = ledger.snapshot().groups.into_iter();
        // The group, and the entries after it that have a greater depth. A group that is gone has no more events.
        let Some(top) = groups.find(|group| group.id == self.group.id()) else {
            return Vec::new();
        };
        let depth = top.depth;
        let below = groups.take_while(|group| group.depth > depth);
        let whole = [top].into_iter().chain(below);
        let live = whole.filter(|group| group.state != GroupState::Damaged);
        let counted = |group: GroupSnapshot| {
            let totals = totals::of(ledger.table(), group.id);
            (group, *totals.first_chunk().expect("the group's own come first"))
        };
        live.map(counted).collect()
    }
}

impl Counted {
    fn of(words: &Words) -> Counted {
        let reclaimed = words[COUNTED + Sum::Reclaimed as usize].cast_unsigned();
        Counted { events: Events::of_words(words), reclaimed }
    }

    fn tell(&self, group: &GroupSnapshot) {
        let (path, current) = (&*group.path, group.current);
        // A reclaimer that hangs is named on standard error at once.
        let Events { low, high, max, oom, oom_kill, oom_group_kill, reclaimer_hung: _, limits } =
            self.events;
        if max > 0 {
            warn!(target: "ledgerline", group = path, count = max, max = %group.max, current, "charges met the group's max");
        }
        if high > 0 {
            info!(target: "ledgerline", group = path, count = high, high = %group.high, current, "charges went over the group's high");
        }
        if self.reclaimed > 0 {
            info!(target: "ledgerline", group = path, bytes = self.reclaimed, "caches gave back memory");
        }
        if low > 0 {
            warn!(target: "ledgerline", group = path, count = low, low = %group.low, "low was not kept");
        }
        if oom > 0 {
            warn!(target: "ledgerline", group = path, count = oom, max = %group.max, current, "a victim was looked for: the group was full");
        }
        if oom_kill + oom_group_kill > 0 {
            let count = oom_kill.max(oom_group_kill);
            error!(target: "ledgerline", group = path, count, current, "victims were cancelled");
        }
        if limits > 0 {
            info!(target: "ledgerline", group = path, count = limits, max = %group.max, high = %group.high, "limits were set");
        }
    }
}
