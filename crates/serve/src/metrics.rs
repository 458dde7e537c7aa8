//! `/metrics`: what Prometheus and those who read like it scrape.
//!
//! OpenMetrics is what the encoder writes. Whoever does not ask for it gets the older text format, in which a counter's
//! own name ends in `_total`, and there are no units.

use crate::api::items;
use crate::frame::{Frame, holds};
use crate::listing::{Counts, Listed};
use crate::watched::{Ledgers, Watched};
use ledgerline_watch::Row;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use std::fmt;
use std::sync::Arc;

/// The group that stands for all that are not listed. (Paths begin with a slash, so no group is called so.)
pub(crate) const OTHER: &str = "other";

pub(crate) const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
pub(crate) const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Whether what a client accepts names OpenMetrics, and does not refuse it.
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

/// All metrics, by a look at each ledger that is no older than the interval.
///
/// # Errors
/// None that is known: the encoder says that it may fail.
pub(crate) fn scrape(ledgers: &Ledgers, openmetrics: bool) -> Result<String, fmt::Error> {
    let fresh = |ledger: Arc<Watched>| (ledger.clone(), ledger.fresh());
    of_frames(ledgers.all().into_iter().map(fresh), openmetrics)
}

/// All metrics of these looks.
///
/// # Errors
/// As [`scrape`].
pub(crate) fn of_frames(
    frames: impl IntoIterator<Item = (Arc<Watched>, Arc<Frame>)>,
    openmetrics: bool,
) -> Result<String, fmt::Error> {
    let ledgers = frames.into_iter().map(|(ledger, frame)| {
        let listed = ledger.listing().update(&frame);
        Scraped { name: label(&ledger.title), frame, listed }
    });
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Scrape(ledgers.collect())));
    let mut out = String::new();
    text::encode(&mut out, &registry)?;
    Ok(if openmetrics { out } else { older(&out) })
}

/// One ledger.
#[derive(Debug)]
struct Scraped {
    name: String,
    frame: Arc<Frame>,
    listed: Listed,
}

#[derive(Debug)]
struct Scrape(Vec<Scraped>);

/// One figure of a group.
struct Gauge {
    name: &'static str,
    help: &'static str,
    of: fn(&Row) -> Option<u64>,
}

/// One count of a group.
struct Counter {
    name: &'static str,
    help: &'static str,
    unit: Option<Unit>,
    of: fn(&Counts) -> u64,
}

const GAUGES: [Gauge; 5] = [
    Gauge {
        name: "ledgerline_peak",
        help: "The most that was charged at a time.",
        of: |row| Some(row.peak),
    },
    Gauge {
        name: "ledgerline_max",
        help: "The hard limit, where there is one.",
        of: |row| row.max,
    },
    Gauge {
        name: "ledgerline_high",
        help: "The soft limit, where there is one.",
        of: |row| row.high,
    },
    Gauge {
        name: "ledgerline_low",
        help: "Protected unless nothing else is left.",
        of: |row| (row.low > 0).then_some(row.low),
    },
    Gauge {
        name: "ledgerline_min",
        help: "Protected always.",
        of: |row| (row.min > 0).then_some(row.min),
    },
];

const COUNTERS: [Counter; 6] = [
    Counter {
        name: "ledgerline_charges",
        help: "Charges to the group and those below it.",
        unit: None,
        of: |counts| counts.charges,
    },
    Counter {
        name: "ledgerline_uncharges",
        help: "Uncharges of the group and those below it.",
        unit: None,
        of: |counts| counts.uncharges,
    },
    Counter {
        name: "ledgerline_refused",
        help: "Charges to the group and those below it that a limit refused.",
        unit: None,
        of: |counts| counts.refused,
    },
    Counter {
        name: "ledgerline_max_events",
        help: "How often the group's own max refused or was gone over.",
        unit: None,
        of: |counts| counts.max_events,
    },
    Counter {
        name: "ledgerline_high_events",
        help: "How often the group's own high was gone over.",
        unit: None,
        of: |counts| counts.high_events,
    },
    Counter {
        name: "ledgerline_reclaimed",
        help: "What caches of the group and those below it gave back when asked.",
        unit: Some(Unit::Bytes),
        of: |counts| counts.reclaimed,
    },
];

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        encoder
            .encode_descriptor("ledgerline_build", "The server's version.", None, MetricType::Info)?
            .encode_info(&version)?;
        let mut ledgers = encoder.encode_descriptor(
            "ledgerline_ledgers",
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
    /// What there is once for each ledger.
    fn of_ledgers(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        if self.0.is_empty() {
            return Ok(());
        }
        let mut each = |name, help, unit: Option<Unit>, of: &dyn Fn(&Scraped) -> f64| {
            let mut family =
                encoder.encode_descriptor(name, help, unit.as_ref(), MetricType::Gauge)?;
            for scraped in &self.0 {
                family.encode_family(&[("ledger", &*scraped.name)])?.encode_gauge(&of(scraped))?;
            }
            Ok(())
        };
        each(
            "ledgerline_groups",
            "Groups, those of ended processes included.",
            None,
            &|scraped| scraped.frame.look.rows.len() as f64,
        )?;
        each(
            "ledgerline_unlisted_groups",
            "Groups that only `other` stands for.",
            None,
            &|scraped| scraped.listed.others as f64,
        )?;
        each("ledgerline_damaged", "1 if a program wrote over the ledger.", None, &|scraped| {
            f64::from(u8::from(scraped.frame.look.damaged))
        })?;
        each("ledgerline_look", "How long the last look took.", Some(Unit::Seconds), &|scraped| {
            scraped.frame.took.as_secs_f64()
        })
    }

    /// What there is once for each group.
    fn of_groups(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        // Escaped once, not once a figure.
        let names: Vec<Vec<String>> = self.0.iter().map(Scraped::names).collect();
        let bytes = Some(&Unit::Bytes);
        let each = || self.0.iter().zip(&names);

        let help = "Charged now, to the group and those below it.";
        let mut current =
            encoder.encode_descriptor("ledgerline_current", help, bytes, MetricType::Gauge)?;
        for (scraped, names) in each() {
            for (row, name) in scraped.rows().zip(names) {
                scraped.gauge(&mut current, name, holds(row))?;
            }
            if scraped.listed.others > 0 {
                scraped.gauge(&mut current, OTHER, scraped.listed.held)?;
            }
        }
        let help =
            "Charged now to the group itself, not to one below it: adds up to what the root has.";
        let mut own =
            encoder.encode_descriptor("ledgerline_self", help, bytes, MetricType::Gauge)?;
        for (scraped, names) in each() {
            for (own_bytes, name) in scraped.listed.own.iter().zip(names) {
                scraped.with(name, |labels| own.encode_family(labels)?.encode_gauge(own_bytes))?;
            }
            if scraped.listed.others > 0 {
                scraped.gauge(&mut own, OTHER, scraped.listed.held)?;
            }
        }
        for Gauge { name, help, of } in GAUGES {
            // (A family without a sample is not allowed.)
            if !self.0.iter().any(|scraped| scraped.rows().any(|row| of(row).is_some())) {
                continue;
            }
            let mut family = encoder.encode_descriptor(name, help, bytes, MetricType::Gauge)?;
            for (scraped, names) in each() {
                for (row, name) in scraped.rows().zip(names) {
                    if let Some(value) = of(row) {
                        scraped.gauge(&mut family, name, value)?;
                    }
                }
            }
        }
        for Counter { name, help, unit, of } in COUNTERS {
            let mut family =
                encoder.encode_descriptor(name, help, unit.as_ref(), MetricType::Counter)?;
            for (scraped, names) in each() {
                for (counts, name) in scraped.listed.counted.iter().zip(names) {
                    scraped.counter(&mut family, name, of(counts))?;
                }
                // Also while nothing is in it: what it counted stays counted.
                scraped.counter(&mut family, OTHER, of(&scraped.listed.counts))?;
            }
        }
        self.items(encoder, &names)
    }

    /// The ledgers' own items, without those that are zero.
    fn items(&self, encoder: &mut DescriptorEncoder, names: &[Vec<String>]) -> fmt::Result {
        let all = || self.0.iter().flat_map(Scraped::rows);
        if all().all(|row| items(row).next().is_none()) {
            return Ok(());
        }
        let help = "What the ledger's program counts in the group and those below it; without items of zero.";
        let mut family =
            encoder.encode_descriptor("ledgerline_item", help, None, MetricType::Gauge)?;
        for (scraped, names) in self.0.iter().zip(names) {
            for (row, name) in scraped.rows().zip(names) {
                for (item, value) in items(row) {
                    let item = label(item);
                    let labels = [("ledger", &*scraped.name), ("group", &**name), ("item", &*item)];
                    family.encode_family(&labels)?.encode_gauge(&value)?;
                }
            }
        }
        Ok(())
    }
}

impl Scraped {
    /// The listed rows.
    fn rows(&self) -> impl Iterator<Item = &Row> {
        self.listed.places.iter().map(|&place| &self.frame.look.rows[place])
    }

    /// The labels of the listed groups. Two groups of one path, as a damaged ledger may have, differ by their numbers.
    fn names(&self) -> Vec<String> {
        let mut taken = std::collections::HashSet::new();
        let name = |row: &Row| {
            let name = label(&row.path);
            if taken.insert(row.path.clone()) { name } else { format!("{name} ({})", row.id) }
        };
        self.rows().map(name).collect()
    }

    fn with<T>(&self, group: &str, then: impl FnOnce(&[(&str, &str); 2]) -> T) -> T {
        then(&[("ledger", &self.name), ("group", group)])
    }

    fn gauge(&self, family: &mut MetricEncoder, group: &str, value: u64) -> fmt::Result {
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        self.with(group, |labels| family.encode_family(labels)?.encode_gauge(&value))
    }

    fn counter(&self, family: &mut MetricEncoder, group: &str, value: u64) -> fmt::Result {
        self.with(group, |labels| {
            family.encode_family(labels)?.encode_counter::<[(&str, &str); 0], _, f64>(&value, None)
        })
    }
}

/// The value of a label, as it stands between quotes. (The encoder writes it as it is.)
pub(crate) fn label(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    for letter in value.chars() {
        match letter {
            '\\' => escaped.push_str(r"\\"),
            '"' => escaped.push_str("\\\""),
            '\n' => escaped.push_str(r"\n"),
            letter => escaped.push(letter),
        }
    }
    escaped
}

/// OpenMetrics as the older text format.
pub(crate) fn older(openmetrics: &str) -> String {
    let mut out = String::with_capacity(openmetrics.len());
    // A family's help stands before its type, which decides its name.
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
