//! A ledger as gauges and counters of the `metrics` facade (feature `metrics`).
//!
//! | name                                      | kind    | what                                                      |
//! |-------------------------------------------|---------|-----------------------------------------------------------|
//! | `ledgerline_current_bytes`                | gauge   | charged now                                              |
//! | `ledgerline_peak_bytes`                   | gauge   | the most that was charged at a time                      |
//! | `ledgerline_max_bytes`, `_high_bytes`     | gauge   | the limits, where there are some                         |
//! | `ledgerline_low_bytes`, `_min_bytes`      | gauge   | the protections, where there are some                    |
//! | `ledgerline_charges_total`, `_uncharges_total` | counter | charges and uncharges, of the group and those below |
//! | `ledgerline_refused_total`                | counter | charges to the group and those below that a limit refused |
//! | `ledgerline_max_events_total`, `_high_events_total` | counter | how often its own limits were met              |
//! | `ledgerline_reclaimed_bytes_total`        | counter | what caches gave back, of the group and those below      |
//! | `ledgerline_groups`, `ledgerline_unlisted_groups` | gauge | how many there are, and how many have no figures  |
//!
//! All but the last have the label `group`, a path. They are the names that `ledgerline serve` has, which also labels
//! the ledger, and they say the same as [`GroupSnapshot`] and [`Group::stat`](crate::Group::stat): all counters are of the
//! group's subtree and never go back, except `_max_events_total` and `_high_events_total`, which are of the group alone.

use crate::ledger::Ledger;
use crate::report::snapshot::{GroupSnapshot, GroupState};
use crate::table::id::GroupId;
use ::metrics::{Counter, Gauge, Unit, counter, describe_counter, describe_gauge, gauge};
use std::cmp::Reverse;
use std::collections::HashMap;

/// Groups that have figures, unless the program asks for more or fewer.
const GROUPS: usize = 100;

/// Sets the gauges and counters of one ledger, whenever it is asked to.
///
/// ```
/// use ledgerline::{Ledger, export::metrics::Metrics};
///
/// let ledger = Ledger::new()?.into_static();
/// let mut metrics = Metrics::new(ledger).groups(50);
/// // At an interval of the program's own:
/// metrics.update();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Metrics<'l> {
    ledger: &'l Ledger,
    most: usize,
    listed: HashMap<GroupId, Figures>,
    described: bool,
}

/// The figures of a group that has some.
struct Figures {
    gauges: [Gauge; 2],
    limits: [Option<Gauge>; 4],
    counters: [Counter; COUNTERS],
    /// What was told of the counters.
    told: [u64; COUNTERS],
}

const GAUGES: [(&str, &str); 2] = [
    ("ledgerline_current_bytes", "Charged now."),
    ("ledgerline_peak_bytes", "The most that was charged at a time."),
];

const LIMITS: [(&str, &str); 4] = [
    ("ledgerline_max_bytes", "The hard limit, where there is one."),
    ("ledgerline_high_bytes", "The soft limit, where there is one."),
    ("ledgerline_low_bytes", "Protected unless nothing else is left."),
    ("ledgerline_min_bytes", "Protected always."),
];

const COUNTERS: usize = 6;
const COUNTS: [(&str, &str); COUNTERS] = [
    ("ledgerline_charges_total", "Charges to the group and those below it."),
    ("ledgerline_uncharges_total", "Uncharges of the group and those below it."),
    ("ledgerline_refused_total", "Charges to the group and those below it that a limit refused."),
    ("ledgerline_max_events_total", "How often the group's own max refused or was gone over."),
    ("ledgerline_high_events_total", "How often the group's own high was gone over."),
    ("ledgerline_reclaimed_bytes_total", "What caches of the group and those below it gave back."),
];

impl<'l> Metrics<'l> {
    /// For this ledger, and the recorder that is installed when [`update`](Self::update) is called.
    pub fn new(ledger: &'l Ledger) -> Metrics<'l> {
        Metrics { ledger, most: GROUPS, listed: HashMap::new(), described: false }
    }

    /// Has at most so many groups have figures, the root among them: 100 unless this is called.
    ///
    /// A label for each of a million groups would bring down who collects them. A group that has figures keeps them while
    /// it lives; room goes to the largest.
    #[must_use]
    pub fn groups(mut self, most: usize) -> Metrics<'l> {
        self.most = most.max(1);
        self
    }

    /// Sets all gauges, and raises all counters by what was counted since the call before.
    ///
    /// The gauges of a group that is gone are set to zero once. (The facade has no way to take a figure back; exporters
    /// drop those that are idle.) Takes a [snapshot](Ledger::snapshot), and what the recorder takes. Not async-signal-safe.
    pub fn update(&mut self) {
        self.describe();
        let snapshot = self.ledger.snapshot();
        let groups: Vec<&GroupSnapshot> =
            snapshot.groups.iter().filter(|group| group.state != GroupState::Damaged).collect();
        self.forget(&groups);
        let mut new: Vec<&GroupSnapshot> =
            groups.iter().copied().filter(|group| !self.listed.contains_key(&group.id)).collect();
        new.sort_by_key(|group| (group.depth > 0, Reverse(group.current)));
        new.truncate(self.most.saturating_sub(self.listed.len()));
        for group in new {
            self.listed.insert(group.id, Figures::new(&group.path));
        }
        for group in &groups {
            if let Some(figures) = self.listed.get_mut(&group.id) {
                figures.set(group);
            }
        }
        gauge!("ledgerline_groups").set(groups.len() as f64);
        let unlisted = groups.len().saturating_sub(self.listed.len());
        gauge!("ledgerline_unlisted_groups").set(unlisted as f64);
    }

    fn describe(&mut self) {
        if std::mem::replace(&mut self.described, true) {
            return;
        }
        for (name, help) in GAUGES.into_iter().chain(LIMITS) {
            describe_gauge!(name, Unit::Bytes, help);
        }
        for (name, help) in COUNTS {
            let unit = if name.contains("bytes") { Unit::Bytes } else { Unit::Count };
            describe_counter!(name, unit, help);
        }
        describe_gauge!("ledgerline_groups", Unit::Count, "Groups.");
        describe_gauge!("ledgerline_unlisted_groups", Unit::Count, "Groups without figures.");
    }

    /// Sets to zero what groups held that are gone.
    fn forget(&mut self, groups: &[&GroupSnapshot]) {
        let live: std::collections::HashSet<GroupId> =
            groups.iter().map(|group| group.id).collect();
        self.listed.retain(|id, figures| {
            let lives = live.contains(id);
            if !lives {
                let limits = figures.limits.iter().flatten();
                figures.gauges.iter().chain(limits).for_each(|gauge| gauge.set(0.0));
            }
            lives
        });
    }
}

impl std::fmt::Debug for Metrics<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let listed = self.listed.len();
        f.debug_struct("Metrics").field("most", &self.most).field("listed", &listed).finish()
    }
}

impl Figures {
    fn new(path: &str) -> Figures {
        let label = || ::metrics::SharedString::from(path.to_owned());
        Figures {
            gauges: GAUGES.map(|(name, _)| gauge!(name, "group" => label())),
            limits: [const { None }; 4],
            counters: COUNTS.map(|(name, _)| counter!(name, "group" => label())),
            told: [0; COUNTERS],
        }
    }

    fn set(&mut self, group: &GroupSnapshot) {
        // (A size is below 2^62: a double says it to sixteen digits.)
        let values = [group.current, group.peak.value];
        for (gauge, value) in self.gauges.iter().zip(values) {
            gauge.set(value as f64);
        }
        let protection = |limit: crate::size::Limit| limit.get().filter(|&units| units > 0);
        let limits =
            [group.max.get(), group.high.get(), protection(group.low), protection(group.min)];
        for (at, limit) in limits.into_iter().enumerate() {
            match (limit, &self.limits[at]) {
                (None, None) => {}
                // No limit is as large as can be; no protection is none.
                (None, Some(gauge)) => gauge.set(if at < 2 { f64::INFINITY } else { 0.0 }),
                (Some(units), _) => {
                    let name = LIMITS[at].0;
                    let path = || group.path.clone();
                    let gauge =
                        self.limits[at].get_or_insert_with(|| gauge!(name, "group" => path()));
                    gauge.set(units as f64);
                }
            }
        }
        let counts = [
            group.charges,
            group.uncharges,
            group.refused,
            group.max_events,
            group.high_events,
            group.reclaimed,
        ];
        for (at, count) in counts.into_iter().enumerate() {
            self.counters[at].increment(count.saturating_sub(self.told[at]));
            self.told[at] = self.told[at].max(count);
        }
    }
}
