//! `/api/…`: the JSON documents: ledgers, groups and history.

use crate::serve::frame::{Frame, holds};
use crate::watch::{Point, Rates, Row, State};
use ledgerline::GroupId;
use ledgerline_protocol::Item;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// The document of `/api/ledgers`.
#[derive(Serialize)]
pub(crate) struct Index {
    pub(crate) schema: &'static str,
    pub(crate) version: &'static str,
    /// Milliseconds from look to look.
    pub(crate) interval: u64,
    pub(crate) history: bool,
    pub(crate) ledgers: Vec<Summary>,
}

/// A ledger in short.
#[derive(Serialize)]
pub(crate) struct Summary {
    id: u32,
    title: String,
    path: String,
    groups: usize,
    current: u64,
    peak: u64,
    max: Option<u64>,
    refused: u64,
    damaged: bool,
    steady: bool,
    at: f64,
}

/// The document of `/api/ledgers/ID/groups`, and the first event.
#[derive(Serialize)]
pub(crate) struct Groups<'f> {
    schema: &'static str,
    id: u32,
    title: &'f str,
    number: u64,
    at: f64,
    unit: &'static str,
    damaged: bool,
    steady: bool,
    groups: Vec<GroupRow<'f>>,
}

/// One group.
#[derive(Serialize)]
pub(crate) struct GroupRow<'f> {
    id: Id,
    parent: Option<Id>,
    path: &'f str,
    name: &'f str,
    depth: u32,
    #[serde(skip_serializing_if = "is_zero")]
    pid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    program: Option<&'f str>,
    #[serde(flatten)]
    figures: Figures,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    items: BTreeMap<&'f str, i64>,
}

/// The changing fields of a group.
#[derive(Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Figures {
    pub(crate) state: &'static str,
    pub(crate) current: u64,
    pub(crate) peak: u64,
    pub(crate) charges: u64,
    pub(crate) uncharges: u64,
    pub(crate) refused: u64,
    pub(crate) max_events: u64,
    pub(crate) high_events: u64,
    pub(crate) reclaimed: u64,
    pub(crate) max: Option<u64>,
    pub(crate) high: Option<u64>,
    pub(crate) low: u64,
    pub(crate) min: u64,
    pub(crate) rates: PerSecond,
}

/// A group's rates per second: rounded, so that an invisible change counts as none.
#[derive(Clone, Copy, PartialEq, Serialize)]
pub(crate) struct PerSecond {
    pub(crate) growth: i64,
    pub(crate) charges: f64,
    pub(crate) refused: f64,
    pub(crate) max_events: f64,
    pub(crate) high_events: f64,
    pub(crate) reclaimed: i64,
}

/// The document of `/api/ledgers/ID/history`.
#[derive(Serialize)]
pub(crate) struct Hour<'f> {
    schema: &'static str,
    group: Id,
    path: &'f str,
    unit: &'static str,
    at: f64,
    current: u64,
    max: Option<u64>,
    points: Vec<OnePoint>,
}

/// A span of a group's history.
#[derive(Serialize)]
pub(crate) struct OnePoint {
    at: f64,
    seconds: f64,
    least: u64,
    most: u64,
    last: u64,
    refused: u64,
    reclaimed: u64,
}

/// A group's number, as text.
#[derive(Clone, Copy)]
pub(crate) struct Id(pub(crate) GroupId);

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&self.0)
    }
}

fn is_zero(pid: &u32) -> bool {
    *pid == 0
}

impl Summary {
    pub(crate) fn of(id: u32, title: &str, path: &Path, frame: &Frame) -> Summary {
        let root = frame.look.root();
        Summary {
            id,
            title: title.to_owned(),
            path: path.display().to_string(),
            groups: frame.look.rows.len(),
            current: root.current,
            peak: root.peak,
            max: root.max,
            refused: root.counts.refused,
            damaged: frame.look.damaged,
            steady: frame.look.steady,
            at: frame.at(),
        }
    }
}

impl<'f> Groups<'f> {
    pub(crate) fn of(id: u32, title: &'f str, frame: &'f Frame) -> Groups<'f> {
        Groups {
            schema: "ledgerline/serve-groups.v1",
            id,
            title,
            number: frame.number,
            at: frame.at(),
            unit: frame.look.unit,
            damaged: frame.look.damaged,
            steady: frame.look.steady,
            groups: (0..frame.look.rows.len()).map(|place| GroupRow::of(frame, place)).collect(),
        }
    }
}

impl<'f> GroupRow<'f> {
    pub(crate) fn of(frame: &'f Frame, place: usize) -> GroupRow<'f> {
        let row = &frame.look.rows[place];
        GroupRow {
            id: Id(row.id),
            parent: (place > 0).then(|| Id(frame.look.rows[frame.parents[place]].id)),
            path: &row.path,
            name: &row.name,
            depth: row.depth,
            pid: row.pid,
            program: (row.pid > 0).then_some(&*row.program),
            figures: Figures::of(row, &frame.rates[place]),
            items: items(row).collect(),
        }
    }
}

/// Returns the items of a group that are meaningful as a sum, without those that are zero.
pub(crate) fn items(row: &Row) -> impl Iterator<Item = (&str, i64)> {
    let items = row.items.iter().map(|(name, value)| (&**name, *value));
    let is_sum =
        |name: &str| !Item::REFUSED.into_iter().chain(Item::ORIGIN).any(|item| item.name() == name);
    items.filter(move |&(name, value)| value != 0 && is_sum(name))
}

impl Figures {
    pub(crate) fn of(row: &Row, rates: &Rates) -> Figures {
        Figures {
            state: match row.state {
                State::Live => "live",
                State::Exited => "exited",
                State::Damaged => "damaged",
            },
            current: row.current,
            peak: row.peak,
            charges: row.counts.charges,
            uncharges: row.counts.uncharges,
            refused: row.counts.refused,
            max_events: row.counts.max_events,
            high_events: row.counts.high_events,
            reclaimed: row.counts.reclaimed,
            max: row.max,
            high: row.high,
            low: row.low,
            min: row.min,
            rates: PerSecond::of(rates),
        }
    }
}

impl PerSecond {
    fn of(rates: &Rates) -> PerSecond {
        let tenths = |rate: f64| (rate * 10.0).round() / 10.0;
        PerSecond {
            growth: rates.growth.round() as i64,
            charges: tenths(rates.counts.charges),
            refused: tenths(rates.counts.refused),
            max_events: tenths(rates.counts.max_events),
            high_events: tenths(rates.counts.high_events),
            reclaimed: rates.counts.reclaimed.round() as i64,
        }
    }
}

impl<'f> Hour<'f> {
    pub(crate) fn of(frame: &'f Frame, row: &'f Row, points: &[Point]) -> Hour<'f> {
        let seconds = |time: Duration| (time.as_secs_f64() * 1e3).round() / 1e3;
        // Points use the clock of looks, which readers do not have.
        let ahead = frame.at() - seconds(frame.look.clock);
        let points = points.iter().map(|point| OnePoint {
            at: ((seconds(point.start) + ahead) * 1e3).round() / 1e3,
            seconds: seconds(point.length),
            least: point.least,
            most: point.most,
            last: point.last,
            refused: point.refused,
            reclaimed: point.reclaimed,
        });
        Hour {
            schema: "ledgerline/serve-history.v1",
            group: Id(row.id),
            path: &row.path,
            unit: frame.look.unit,
            at: frame.at(),
            current: holds(row),
            max: row.max,
            points: points.collect(),
        }
    }
}
