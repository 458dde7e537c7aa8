//! OpenMetrics of books. At most [`BUDGETS`] budgets and [`NODES`] nodes have series, the largest first.

use std::cmp::Reverse;
use std::fmt;
use std::time::Instant;

use ledgerline_fleet::book::{BudgetView, View};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use crate::watch::Seen;

/// How many budgets have series.
const BUDGETS: usize = 500;

/// How many nodes have series.
const NODES: usize = 500;

pub(super) fn of(seen: Seen, now: Instant) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Scrape { seen, now }));
    let mut out = String::new();
    text::encode(&mut out, &registry)?;
    Ok(out)
}

#[derive(Debug)]
struct Scrape {
    seen: Seen,
    now: Instant,
}

/// One figure of a budget.
type Figure = (&'static str, &'static str, fn(&BudgetView) -> u64);

const GAUGES: [Figure; 7] = [
    ("ledgerline_fleet_max", "How much may be leased.", |budget| budget.limit),
    ("ledgerline_fleet_leased", "The sum of all leases.", |budget| budget.leased),
    ("ledgerline_fleet_used", "What nodes used when they last spoke.", |budget| {
        budget.holds.iter().map(|hold| hold.used).sum()
    }),
    ("ledgerline_fleet_idle", "Leased, and used by nobody.", |budget| budget.idle),
    ("ledgerline_fleet_unmet", "What nodes want and lack.", |budget| budget.unmet),
    ("ledgerline_fleet_excess", "What nodes use beyond their leases.", |budget| budget.excess),
    ("ledgerline_fleet_over", "Leased or in excess above max.", |budget| budget.over),
];

/// One figure of a node.
struct Node {
    organisation: String,
    name: String,
    leased: u64,
    /// What its leases have left, by the store's clock when it was read.
    left: f64,
    drained: bool,
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let mut one = |name, help, unit: Option<Unit>, value: f64| {
            let mut family =
                encoder.encode_descriptor(name, help, unit.as_ref(), MetricType::Gauge)?;
            family.encode_gauge(&value)
        };
        let up = self.seen.trouble.is_none() && self.seen.books.is_some();
        one(
            "ledgerline_fleet_up",
            "1 if the last reading of the store succeeded.",
            None,
            f64::from(u8::from(up)),
        )?;
        let Some((books, _)) = &self.seen.books else { return Ok(()) };
        let age = super::age(&self.seen, self.now).unwrap_or(0.0);
        one("ledgerline_fleet_age", "How old the other figures are.", Some(Unit::Seconds), age)?;
        let all = || {
            books.books.iter().flat_map(|book| {
                book.view.budgets.iter().map(move |budget| (label(&book.organisation), budget))
            })
        };
        let mut budgets: Vec<(String, &BudgetView)> = all().collect();
        budgets.sort_by_key(|(_, budget)| Reverse(budget.leased.max(budget.limit)));
        let nodes = nodes(books.books.iter().map(|book| (&*book.organisation, &book.view)));
        let unlisted = [
            (
                "ledgerline_fleet_unlisted_organisations",
                "Organisations that are not read.",
                books.more,
            ),
            (
                "ledgerline_fleet_unlisted_budgets",
                "Budgets without series.",
                budgets.len().saturating_sub(BUDGETS),
            ),
            (
                "ledgerline_fleet_unlisted_nodes",
                "Nodes without series.",
                nodes.len().saturating_sub(NODES),
            ),
        ];
        for (name, help, number) in unlisted {
            one(name, help, None, number as f64)?;
        }
        budgets.truncate(BUDGETS);
        self.of_budgets(&mut encoder, &budgets)?;
        of_nodes(&mut encoder, &nodes[..nodes.len().min(NODES)])
    }
}

impl Scrape {
    fn of_budgets(
        &self,
        encoder: &mut DescriptorEncoder,
        budgets: &[(String, &BudgetView)],
    ) -> fmt::Result {
        // (A family without a sample is not allowed.)
        if budgets.is_empty() {
            return Ok(());
        }
        let paths: Vec<String> = budgets.iter().map(|(_, budget)| label(&budget.path)).collect();
        let named = || budgets.iter().zip(&paths);
        for (name, help, of) in GAUGES {
            let bytes = Some(&Unit::Bytes);
            let mut family = encoder.encode_descriptor(name, help, bytes, MetricType::Gauge)?;
            for ((organisation, budget), path) in named() {
                let labels = [("organisation", &**organisation), ("budget", &**path)];
                family.encode_family(&labels)?.encode_gauge(&whole(of(budget)))?;
            }
        }
        let help = "Nodes that use it.";
        let mut family =
            encoder.encode_descriptor("ledgerline_fleet_nodes", help, None, MetricType::Gauge)?;
        for ((organisation, budget), path) in named() {
            let labels = [("organisation", &**organisation), ("budget", &**path)];
            family.encode_family(&labels)?.encode_gauge(&whole(budget.holds.len() as u64))?;
        }
        let help = "Charges that were refused, on all nodes that ever were.";
        let mut family = encoder.encode_descriptor(
            "ledgerline_fleet_refused",
            help,
            None,
            MetricType::Counter,
        )?;
        for ((organisation, budget), path) in named() {
            let labels = [("organisation", &**organisation), ("budget", &**path)];
            let mut family = family.encode_family(&labels)?;
            family.encode_counter::<[(&str, &str); 0], _, f64>(&budget.refused, None)?;
        }
        Ok(())
    }
}

/// The nodes that are here, those that leased most first.
fn nodes<'v>(books: impl Iterator<Item = (&'v str, &'v View)>) -> Vec<Node> {
    let mut nodes = Vec::new();
    for (organisation, view) in books {
        for node in view.nodes.iter().filter(|node| !node.incarnations.is_empty()) {
            // What is leased of the organisation itself: leases below it are parts of that.
            let top = view.budgets.iter().filter(|budget| budget.path.matches('/').count() == 1);
            let holds = top.flat_map(|budget| &budget.holds).filter(|hold| hold.node == node.name);
            let ends = node.incarnations.iter().map(|start| start.ends).max().unwrap_or(0);
            nodes.push(Node {
                organisation: label(organisation),
                name: label(&node.name),
                leased: holds.map(|hold| hold.lease).sum(),
                left: ends.saturating_sub(view.at) as f64 / 1000.0,
                drained: node.draining,
            });
        }
    }
    nodes.sort_by_key(|node| Reverse(node.leased));
    nodes
}

fn of_nodes(encoder: &mut DescriptorEncoder, nodes: &[Node]) -> fmt::Result {
    if nodes.is_empty() {
        return Ok(());
    }
    let mut each = |name, help, unit: Option<Unit>, of: &dyn Fn(&Node) -> f64| {
        let mut family = encoder.encode_descriptor(name, help, unit.as_ref(), MetricType::Gauge)?;
        for node in nodes {
            let labels = [("organisation", &*node.organisation), ("node", &*node.name)];
            family.encode_family(&labels)?.encode_gauge(&of(node))?;
        }
        Ok(())
    };
    let bytes = || Some(Unit::Bytes);
    each("ledgerline_fleet_node_leased", "What the node has leased.", bytes(), &|node| {
        node.leased as f64
    })?;
    let help = "For how long its leases hold unless it speaks.";
    each("ledgerline_fleet_node_lease_left", help, Some(Unit::Seconds), &|node| node.left)?;
    let help = "1 if its leases are asked back, and it gets no more.";
    each("ledgerline_fleet_node_drained", help, None, &|node| f64::from(u8::from(node.drained)))
}

/// A number as the encoder takes it. (A store counts up to 2^53.)
fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The value of a label, as it stands between quotes.
fn label(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}
