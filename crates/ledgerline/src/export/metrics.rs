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
//! | `ledgerline_subtree_max_events_total`, `_subtree_high_events_total` | counter | the same, with those of the groups below |
//! | `ledgerline_reclaimed_bytes_total`        | counter | what caches gave back, of the group and those below      |
//! | `ledgerline_groups`, `ledgerline_unlisted_groups` | gauge | how many there are, and how many have no figures  |
//!
//! All but the last have the label `group`, a path. The names are those of `ledgerline serve`, which also labels the ledger,
//! and the values are those of [`GroupSnapshot`] and [`Group::stat`](crate::Group::stat): all counters are of the group's
//! subtree, ended groups included, and never decrease, except `_max_events_total` and `_high_events_total`, which are of the
//! group alone.

use crate::ledger::Ledger;
use crate::report::snapshot::{GroupSnapshot, GroupState};
use crate::table::id::GroupId;
use ::metrics::{Counter, Gauge, Unit, counter, describe_counter, describe_gauge, gauge};
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

/// How many groups have figures, unless the program sets another number.
const GROUPS: usize = 100;

/// How many levels below the root groups have figures, unless the program sets another number.
const DEPTH: u32 = 1;

/// Decides whether a group may have figures.
type Filter<'l> = Box<dyn Fn(&GroupSnapshot) -> bool + Send + Sync + 'l>;

/// Sets the gauges and counters of one ledger at each update.
///
/// A facade keeps each series that it ever got. So groups that come and go must not have series of their own:
///
/// | | default | |
/// |---|---|---|
/// | [`depth`](Self::depth) | 1 | the root and the groups right below it have figures |
/// | [`groups`](Self::groups) | 100 | the most groups that have figures at a time |
/// | [`names`](Self::names) | as many as `groups` | the most paths that ever have figures |
/// | [`filter`](Self::filter) | all | which groups may have figures |
///
/// The figures of a group without series are part of those of its nearest ancestor with series, since all but
/// `_max_events_total` and `_high_events_total` are of a subtree. A path has at most fourteen series, so there are never more
/// than 1402 by default, however many groups there were.
///
/// ```
/// use ledgerline::{Ledger, export::metrics::Metrics};
///
/// let ledger = Ledger::new()?.into_static();
/// // Tenants, and not their queries:
/// let mut metrics = Metrics::new(ledger).depth(1).groups(50);
/// // At an interval of the program's own:
/// metrics.update();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Metrics<'l> {
    ledger: &'l Ledger,
    most: usize,
    names: Option<usize>,
    depth: u32,
    filter: Option<Filter<'l>>,
    listed: HashMap<GroupId, Figures>,
    /// The paths that ever had figures.
    named: HashSet<String>,
    described: bool,
}

/// The figures of a group.
struct Figures {
    gauges: [Gauge; 2],
    limits: [Option<Gauge>; 4],
    counters: [Counter; COUNTERS],
    /// The counters' values as last reported.
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

const COUNTERS: usize = 8;
const COUNTS: [(&str, &str); COUNTERS] = [
    ("ledgerline_charges_total", "Charges to the group and those below it."),
    ("ledgerline_uncharges_total", "Uncharges of the group and those below it."),
    ("ledgerline_refused_total", "Charges to the group and those below it that a limit refused."),
    ("ledgerline_max_events_total", "How often the group's own max refused or was gone over."),
    ("ledgerline_high_events_total", "How often the group's own high was gone over."),
    (
        "ledgerline_subtree_max_events_total",
        "How often the max of the group or of one below it refused or was gone over.",
    ),
    (
        "ledgerline_subtree_high_events_total",
        "How often the high of the group or of one below it was gone over.",
    ),
    ("ledgerline_reclaimed_bytes_total", "What caches of the group and those below it gave back."),
];

impl<'l> Metrics<'l> {
    /// Returns an exporter for this ledger and the recorder that is installed when [`update`](Self::update) is called.
    pub fn new(ledger: &'l Ledger) -> Metrics<'l> {
        Metrics {
            ledger,
            most: GROUPS,
            names: None,
            depth: DEPTH,
            filter: None,
            listed: HashMap::new(),
            named: HashSet::new(),
            described: false,
        }
    }

    /// Gives figures to groups down to so many levels below the root. The default is 1, the groups right below the root.
    /// With 0 only the root has figures.
    #[must_use]
    pub fn depth(mut self, levels: u32) -> Metrics<'l> {
        self.depth = levels;
        self
    }

    /// Gives figures to at most so many groups at a time, the root included. The default is 100.
    ///
    /// A label for each of a million groups would bring down a collector. A group that has figures keeps them while it
    /// lives; free places go to the largest groups.
    #[must_use]
    pub fn groups(mut self, most: usize) -> Metrics<'l> {
        self.most = most.max(1);
        self
    }

    /// Gives figures to at most so many paths while this lives. The default is the number of [`groups`](Self::groups). A
    /// group at a path that had figures before has them again.
    ///
    /// A larger number is useful if the recorder drops series that are idle for long.
    #[must_use]
    pub fn names(mut self, most: usize) -> Metrics<'l> {
        self.names = Some(most.max(1));
        self
    }

    /// Gives figures only to the root and to groups for which `wanted` returns `true` at an update. A group that has figures
    /// loses them when `wanted` returns `false`.
    ///
    /// ```
    /// # use ledgerline::{Ledger, export::metrics::Metrics};
    /// # let ledger = Ledger::new()?;
    /// // Pools down to the third level, and nothing of a single request:
    /// let metrics = Metrics::new(&ledger).depth(3).filter(|group| !group.name.starts_with("request-"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn filter(
        mut self,
        wanted: impl Fn(&GroupSnapshot) -> bool + Send + Sync + 'l,
    ) -> Metrics<'l> {
        self.filter = Some(Box::new(wanted));
        self
    }

    /// Returns whether a group may have figures by its depth and the filter.
    fn wants(&self, group: &GroupSnapshot) -> bool {
        group.depth == 0
            || group.depth <= self.depth
                && group.state == GroupState::Live
                && self.filter.as_ref().is_none_or(|wanted| wanted(group))
    }

    /// Sets all gauges, and raises all counters by their increase since the previous call.
    ///
    /// The gauges of a group that is gone are set to zero once: the facade cannot remove a series, and exporters drop idle
    /// ones. Takes a [snapshot](Ledger::snapshot), and the recorder's own time. Not async-signal-safe.
    pub fn update(&mut self) {
        self.describe();
        let snapshot = self.ledger.snapshot();
        let groups: Vec<&GroupSnapshot> =
            snapshot.groups.iter().filter(|group| group.state != GroupState::Damaged).collect();
        let wanted: Vec<&GroupSnapshot> =
            groups.iter().copied().filter(|group| self.wants(group)).collect();
        self.forget(&wanted);
        let mut new: Vec<&GroupSnapshot> =
            wanted.into_iter().filter(|group| !self.listed.contains_key(&group.id)).collect();
        new.sort_by_key(|group| (group.depth > 0, Reverse(group.current)));
        for group in new {
            let names = self.names.unwrap_or(self.most);
            let has_name = self.named.contains(&group.path) || self.named.len() < names;
            if has_name && self.listed.len() < self.most {
                self.named.insert(group.path.clone());
                self.listed.insert(group.id, Figures::new(&group.path));
            }
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

    /// Sets the gauges of groups to zero that are gone or no longer have figures.
    fn forget(&mut self, groups: &[&GroupSnapshot]) {
        let live: HashSet<GroupId> = groups.iter().map(|group| group.id).collect();
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
        // A size is below 2^62, and a double represents it to sixteen digits.
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
                // No limit shows as infinity, no protection as zero.
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
            group.events.max,
            group.events.high,
            group.reclaimed,
        ];
        for (at, count) in counts.into_iter().enumerate() {
            self.counters[at].increment(count.saturating_sub(self.told[at]));
            self.told[at] = self.told[at].max(count);
        }
    }
}
