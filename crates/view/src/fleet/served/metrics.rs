//! OpenMetrics of books. At most [`BUDGETS`] budgets and [`NODES`] nodes have series, the largest first.

use std::cmp::Reverse;
use std::fmt;
use std::time::Instant;

use crate::serve::{label, signed};
use ledgerline_fleet::book::BudgetView;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use crate::fleet::read::{Book, Damaged};
use crate::fleet::watch::Seen;
use crate::fleet::words::used;

/// The most budgets with series.
const BUDGETS: usize = 500;

/// The most nodes with series.
const NODES: usize = 500;

#[derive(Debug)]
pub(super) struct Scrape {
    pub(super) seen: Seen,
    pub(super) now: Instant,
}

/// One figure of a budget.
type Figure = (&'static str, &'static str, Option<Unit>, fn(&BudgetView) -> u64);

const BYTES: Option<Unit> = Some(Unit::Bytes);

const GAUGES: [Figure; 8] = [
    ("fleet_max", "How much may be leased.", BYTES, |budget| budget.limit),
    ("fleet_leased", "The sum of all leases.", BYTES, |budget| budget.leased),
    ("fleet_used", "What nodes used when they last spoke.", BYTES, used),
    ("fleet_idle", "Leased, and not used.", BYTES, |budget| budget.idle),
    ("fleet_unmet", "What nodes want and lack.", BYTES, |budget| budget.unmet),
    ("fleet_excess", "What nodes use beyond their leases.", BYTES, |budget| budget.excess),
    ("fleet_over", "Leased or in excess above max.", BYTES, |budget| budget.over),
    ("fleet_nodes", "Nodes that use it.", None, |budget| budget.holds.len() as u64),
];

/// One figure of a node.
struct Node {
    organisation: String,
    name: String,
    leased: u64,
    /// The time that its leases have left, by the store's clock when it was read.
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
        one("fleet_up", "1 if the last reading of the store succeeded.", None, f64::from(up))?;
        let Some((books, _)) = &self.seen.books else { return Ok(()) };
        let age = super::age(&self.seen, self.now).unwrap_or(0.0);
        one("fleet_age", "How old the other figures are.", Some(Unit::Seconds), age)?;
        let mut budgets: Vec<(String, &BudgetView)> = Vec::new();
        for Book { organisation, view } in &books.books {
            budgets.extend(view.budgets.iter().map(|budget| (label(organisation), budget)));
        }
        budgets.sort_by_key(|(_, budget)| Reverse(budget.leased.max(budget.limit)));
        let nodes = nodes(&books.books);
        let unlisted = |all: usize, most: usize| all.saturating_sub(most) as f64;
        let help = "Organisations that are not read.";
        one("fleet_unlisted_organisations", help, None, books.more as f64)?;
        let help = "Organisations whose books make no sense.";
        one("fleet_damaged_organisations", help, None, books.damaged.len() as f64)?;
        let (name, more) = ("fleet_unlisted_budgets", unlisted(budgets.len(), BUDGETS));
        one(name, "Budgets without series.", None, more)?;
        let (name, more) = ("fleet_unlisted_nodes", unlisted(nodes.len(), NODES));
        one(name, "Nodes without series.", None, more)?;
        budgets.truncate(BUDGETS);
        of_damaged(&mut encoder, &books.damaged)?;
        of_budgets(&mut encoder, &budgets)?;
        of_nodes(&mut encoder, &nodes[..nodes.len().min(NODES)])
    }
}

fn of_damaged(encoder: &mut DescriptorEncoder, damaged: &[Damaged]) -> fmt::Result {
    if damaged.is_empty() {
        return Ok(());
    }
    let help = "1 for each organisation whose book makes no sense.";
    let mut family = encoder.encode_descriptor("fleet_damaged", help, None, MetricType::Gauge)?;
    for Damaged { organisation, .. } in damaged {
        family.encode_family(&[("organisation", &*label(organisation))])?.encode_gauge(&1_i64)?;
    }
    Ok(())
}

fn of_budgets(encoder: &mut DescriptorEncoder, budgets: &[(String, &BudgetView)]) -> fmt::Result {
    // A family without a sample is not allowed.
    if budgets.is_empty() {
        return Ok(());
    }
    let paths: Vec<String> = budgets.iter().map(|(_, budget)| label(&budget.path)).collect();
    let labelled = || {
        budgets.iter().zip(&paths).map(|((organisation, budget), path)| {
            ([("organisation", &**organisation), ("budget", &**path)], budget)
        })
    };
    for (name, help, unit, of) in GAUGES {
        let mut family = encoder.encode_descriptor(name, help, unit.as_ref(), MetricType::Gauge)?;
        for (labels, budget) in labelled() {
            family.encode_family(&labels)?.encode_gauge(&signed(of(budget)))?;
        }
    }
    let help = "Charges that were refused, on all nodes that ever were.";
    let kind = MetricType::Counter;
    let mut family = encoder.encode_descriptor("fleet_refused", help, None, kind)?;
    for (labels, budget) in labelled() {
        let mut family = family.encode_family(&labels)?;
        family.encode_counter::<[(&str, &str); 0], _, f64>(&budget.refused, None)?;
    }
    Ok(())
}

/// Returns the nodes that are present, those with the largest leases first.
fn nodes(books: &[Book]) -> Vec<Node> {
    let mut nodes = Vec::new();
    for Book { organisation, view } in books {
        for node in view.nodes.iter().filter(|node| !node.incarnations.is_empty()) {
            // Only the organisation's own budget: leases below it are parts of that.
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
    let help = "What the node has leased.";
    each("fleet_node_leased", help, BYTES, &|node| node.leased as f64)?;
    let help = "For how long its leases hold unless it speaks.";
    each("fleet_node_lease_left", help, Some(Unit::Seconds), &|node| node.left)?;
    let help = "1 if its leases are asked back, and it gets no more.";
    each("fleet_node_drained", help, None, &|node| f64::from(node.drained))
}
