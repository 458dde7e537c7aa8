//! `/metrics`: the endpoint for Prometheus and compatible collectors.
//!
//! The encoder writes OpenMetrics. A client that does not ask for it gets the older text format, in which a counter's
//! own name ends in `_total`, and there are no units.

use crate::serve::api::items;
use crate::serve::frame::{Frame, holds};
use crate::serve::listing::Listed;
use crate::serve::watched::{Ledgers, Watched};
use crate::terminal::output::printable;
use crate::watch::{Counts, Row, State};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use std::fmt;
use std::sync::Arc;

/// The row for all unlisted groups. Paths begin with a slash, so no group has this name.
pub(crate) const OTHER: &str = "other";

pub(crate) const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
pub(crate) const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Returns whether a client's `Accept` names OpenMetrics, and does not refuse it.
pub(crate) fn wants_openmetrics(accept: &str) -> bool {
    accept.split(',').any(|kind| {
        let mut parts = kind.split(';').map(str::trim);
        let named = parts
            .next()
            .is_some_and(|name| name.eq_ignore_ascii_case("application/openmetrics-text"));
        let refused = |part: &str| {
            let weight = part.strip_prefix("q=").and_then(|weight| weight.parse::<f64>().ok());
            weight == Some(0.0)
        };
        named && !parts.any(refused)
    })
}

/// Returns all metrics as OpenMetrics, from a look at each ledger that is no older than the interval.
///
/// # Errors
/// None in practice: the type is the encoder's.
pub(crate) fn scrape(ledgers: &Ledgers) -> Result<String, fmt::Error> {
    let fresh = |ledger: Arc<Watched>| (ledger.clone(), ledger.fresh());
    of_frames(ledgers.all().into_iter().map(fresh))
}

/// Returns all metrics of these looks.
///
/// # Errors
/// As for [`scrape`].
pub(crate) fn of_frames(
    frames: impl IntoIterator<Item = (Arc<Watched>, Arc<Frame>)>,
) -> Result<String, fmt::Error> {
    let ledgers = frames.into_iter().map(|(ledger, frame)| {
        let listed = ledger.listing().update(&frame);
        let names = names(&frame, &listed);
        Scraped { name: label(&ledger.title), names, frame, listed }
    });
    encoded(Scrape(ledgers.collect()))
}

/// Returns a collector's metrics as OpenMetrics; all names begin with `ledgerline_`.
///
/// # Errors
/// None in practice: the type is the encoder's.
pub fn encoded(collector: impl Collector) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("ledgerline");
    registry.register_collector(Box::new(collector));
    let mut out = String::new();
    text::encode(&mut out, &registry)?;
    Ok(out)
}

/// One ledger.
#[derive(Debug)]
struct Scraped {
    name: String,
    /// The labels of its listed groups: escaped once, not for each figure.
    names: Vec<String>,
    frame: Arc<Frame>,
    listed: Listed,
}

#[derive(Debug)]
struct Scrape(Vec<Scraped>);

/// A figure of each ledger: its name and unit, its value, and its help.
type OfLedger = (&'static str, Option<Unit>, fn(&Scraped) -> f64, &'static str);

const OF_LEDGERS: [OfLedger; 4] = [
    ("groups", None, Scraped::groups, "Groups, those of ended processes included."),
    ("unlisted_groups", None, |of| of.listed.others as f64, "Groups that only `other` stands for."),
    ("damaged", None, Scraped::damaged, "1 if a program wrote over the ledger."),
    ("look", Some(Unit::Seconds), |of| of.frame.took.as_secs_f64(), "How long the last look took."),
];

/// Bytes of each group: their name, whether [`OTHER`] has them, their value from the row and the group's own holding,
/// and their help.
type Gauge = (&'static str, bool, fn(&Row, i64) -> Option<i64>, &'static str);

const GAUGES: [Gauge; 7] = [
    (
        "current",
        true,
        |row, _| Some(signed(holds(row))),
        "Charged now, to the group and those below it.",
    ),
    (
        "self",
        true,
        |_, own| Some(own),
        "Charged now to the group itself, not to one below it: adds up to what the root has.",
    ),
    ("peak", false, |row, _| Some(signed(row.peak)), "The most that was charged at a time."),
    ("max", false, |row, _| row.max.map(signed), "The hard limit, where there is one."),
    ("high", false, |row, _| row.high.map(signed), "The soft limit, where there is one."),
    ("low", false, |row, _| protection(row.low), "Protected unless nothing else is left."),
    ("min", false, |row, _| protection(row.min), "Protected always."),
];

/// A count of each group: its name and unit, its value, and its help.
type Counter = (&'static str, Option<Unit>, fn(&Counts) -> u64, &'static str);

const COUNTERS: [Counter; 8] = [
    ("charges", None, |of| of.charges, "Charges to the group and those below it."),
    ("uncharges", None, |of| of.uncharges, "Uncharges of the group and those below it."),
    (
        "refused",
        None,
        |of| of.refused,
        "Charges to the group and those below it that a limit refused.",
    ),
    (
        "max_events",
        None,
        |of| of.max_events,
        "How often the group's own max refused or was gone over.",
    ),
    ("high_events", None, |of| of.high_events, "How often the group's own high was gone over."),
    (
        "subtree_max_events",
        None,
        |of| of.subtree_max_events,
        "How often the max of the group or of one below it refused or was gone over.",
    ),
    (
        "subtree_high_events",
        None,
        |of| of.subtree_high_events,
        "How often the high of the group or of one below it was gone over.",
    ),
    (
        "reclaimed",
        Some(Unit::Bytes),
        |of| of.reclaimed,
        "What caches of the group and those below it gave back when asked.",
    ),
];

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        encoder
            .encode_descriptor("build", "The server's version.", None, MetricType::Info)?
            .encode_info(&version)?;
        let mut ledgers = encoder.encode_descriptor(
            "ledgers",
            "Ledgers that are served.",
            None,
            MetricType::Gauge,
        )?;
        ledgers.encode_gauge(&(self.0.len() as i64))?;
        self.of_ledgers(&mut encoder)?;
        self.of_groups(&mut encoder)
    }
}

impl Scrape {
    /// Writes the metrics of each ledger.
    fn of_ledgers(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        if self.0.is_empty() {
            return Ok(());
        }
        for (name, unit, of, help) in OF_LEDGERS {
            let mut family =
                encoder.encode_descriptor(name, help, unit.as_ref(), MetricType::Gauge)?;
            for scraped in &self.0 {
                family.encode_family(&[("ledger", &*scraped.name)])?.encode_gauge(&of(scraped))?;
            }
        }
        Ok(())
    }

    /// Writes the metrics of each group.
    fn of_groups(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        for (name, of_other, of, help) in GAUGES {
            // A family without a sample is not allowed.
            let has = |scraped: &Scraped| {
                let sound = scraped.rows().filter(|(row, _)| row.state != State::Damaged);
                (of_other && scraped.listed.others > 0)
                    || sound.into_iter().any(|(row, _)| of(row, 0).is_some())
            };
            if !self.0.iter().any(has) {
                continue;
            }
            let bytes = Some(&Unit::Bytes);
            let mut family = encoder.encode_descriptor(name, help, bytes, MetricType::Gauge)?;
            for scraped in &self.0 {
                for ((row, name), &own) in scraped.rows().zip(&scraped.listed.own) {
                    // The numbers of a damaged row are not facts.
                    let is_sound = row.state != State::Damaged;
                    if let Some(value) = of(row, own).filter(|_| is_sound) {
                        family.encode_family(&scraped.labels(name))?.encode_gauge(&value)?;
                    }
                }
                if of_other && scraped.listed.others > 0 {
                    let held = signed(scraped.listed.held);
                    family.encode_family(&scraped.labels(OTHER))?.encode_gauge(&held)?;
                }
            }
        }
        for (name, unit, of, help) in COUNTERS {
            let mut family =
                encoder.encode_descriptor(name, help, unit.as_ref(), MetricType::Counter)?;
            for scraped in &self.0 {
                let Listed { counted, counts, .. } = &scraped.listed;
                let names = scraped.names.iter().map(String::as_str);
                // `other` is written even while it is empty: its counts remain.
                for (name, counts) in names.zip(counted).chain([(OTHER, counts)]) {
                    let labels = scraped.labels(name);
                    let mut count = family.encode_family(&labels)?;
                    count.encode_counter::<[(&str, &str); 0], _, f64>(&of(counts), None)?;
                }
            }
        }
        self.items(encoder)
    }

    /// Writes the ledgers' own items, without those that are zero.
    fn items(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let mut all = self.0.iter().flat_map(Scraped::rows);
        if all.all(|(row, _)| items(row).next().is_none()) {
            return Ok(());
        }
        let help = "What the ledger's program counts in the group and those below it; without items of zero.";
        let mut family = encoder.encode_descriptor("item", help, None, MetricType::Gauge)?;
        for scraped in &self.0 {
            for (row, name) in scraped.rows() {
                let [ledger, group] = scraped.labels(name);
                for (item, value) in items(row) {
                    let labels = [ledger, group, ("item", &*label(item))];
                    family.encode_family(&labels)?.encode_gauge(&value)?;
                }
            }
        }
        Ok(())
    }
}

impl Scraped {
    fn groups(&self) -> f64 {
        self.frame.look.rows.len() as f64
    }

    fn damaged(&self) -> f64 {
        f64::from(self.frame.look.damaged)
    }

    /// Returns the listed rows, with their labels.
    fn rows(&self) -> impl Iterator<Item = (&Row, &str)> {
        rows(&self.frame, &self.listed).zip(self.names.iter().map(String::as_str))
    }

    fn labels<'s>(&'s self, group: &'s str) -> [(&'s str, &'s str); 2] {
        [("ledger", &self.name), ("group", group)]
    }
}

fn rows<'f>(frame: &'f Frame, listed: &'f Listed) -> impl Iterator<Item = &'f Row> {
    listed.places.iter().map(|&place| &frame.look.rows[place])
}

/// Returns the labels of the listed groups. Equal paths, which a damaged ledger may have, are distinguished by numbers.
fn names(frame: &Frame, listed: &Listed) -> Vec<String> {
    let mut taken = std::collections::HashSet::new();
    let name = |row: &Row| {
        let name = label(&row.path);
        if taken.insert(row.path.clone()) { name } else { format!("{name} ({})", row.id) }
    };
    rows(frame, listed).map(name).collect()
}

/// Returns a protection, if there is one.
fn protection(units: u64) -> Option<i64> {
    (units > 0).then(|| signed(units))
}

/// Returns the value for a gauge, limited to its range.
pub fn signed(units: u64) -> i64 {
    i64::try_from(units).unwrap_or(i64::MAX)
}

/// Returns the value of a label, as it stands between quotes: [`printable`], as on a terminal. The encoder does not
/// escape it.
pub fn label(value: &str) -> String {
    printable(value).replace('\\', r"\\").replace('"', "\\\"")
}

/// Returns OpenMetrics as the older text format.
pub(crate) fn older(openmetrics: &str) -> String {
    let mut out = String::with_capacity(openmetrics.len());
    // A family's help precedes its type, which decides its name.
    let mut help = None;
    for line in openmetrics.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ');
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                kind => ("", kind),
            };
            if let Some((_, help)) = help.take() {
                out += &format!("# HELP {name}{suffix} {help}\n");
            }
            out += &format!("# TYPE {name}{suffix} {kind}\n");
        } else if !line.starts_with('#') {
            out += line;
            out.push('\n');
        }
    }
    out
}

#[cfg(test)]
mod tests;
