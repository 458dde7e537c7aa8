//! Books as JSON: `docs/schemas/fleet.v1.json`.

use ledgerline_fleet::book::{Event, Full, Refused, View, What};
use serde_json::{Value, json};

use crate::read::{Book, Books};

/// All books in one document. Sizes are units (bytes, unless a fleet counts other things), times milliseconds.
#[must_use]
pub fn text(books: &Books) -> Value {
    let told: Vec<Value> =
        books.books.iter().map(|Book { organisation, view }| book(organisation, view)).collect();
    json!({ "schema": "ledgerline/fleet.v1", "books": told, "more": books.more })
}

fn book(organisation: &str, view: &View) -> Value {
    let budgets = view.budgets.iter().map(|budget| {
        let holds = budget.holds.iter().map(|hold| {
            json!({
                "node": hold.node,
                // (Numbers of 64 bits are not exact in all readers.)
                "incarnation": format!("{:016x}", hold.incarnation),
                "lease": hold.lease,
                "used": hold.used,
                "want": hold.want,
                "unmet": hold.unmet,
                "waiting": hold.waiting,
                "lacking": hold.lacking,
                "excess": hold.excess,
                "refused": hold.refused,
            })
        });
        json!({
            "path": budget.path,
            "max": budget.limit,
            "min": budget.minimum,
            "deleted": budget.closing,
            "leased": budget.leased,
            "idle": budget.idle,
            "unmet": budget.unmet,
            "waiting": budget.waiting,
            "lacking": budget.lacking,
            "excess": budget.excess,
            "over": budget.over,
            "refused": budget.refused,
            "nodes": holds.collect::<Vec<_>>(),
        })
    });
    let nodes = view.nodes.iter().map(|node| {
        let starts = node.incarnations.iter().map(|start| {
            json!({
                "incarnation": format!("{:016x}", start.incarnation),
                "replaced": start.fenced,
                "messages": start.sequence,
                "ends": start.ends,
                "freed": start.freed,
            })
        });
        json!({ "name": node.name, "drained": node.draining, "starts": starts.collect::<Vec<_>>() })
    });
    json!({
        "organisation": organisation,
        "at": view.at,
        "lease_ms": view.ttl,
        "grace_ms": view.grace,
        "budgets": budgets.collect::<Vec<_>>(),
        "nodes": nodes.collect::<Vec<_>>(),
        "events": view.events.iter().map(happened).collect::<Vec<_>>(),
        "refusals": view.refusals.iter().map(refused).collect::<Vec<_>>(),
    })
}

fn happened(event: &Event) -> Value {
    let (what, path, units, over) = match &event.what {
        What::Adopted { path, units, over } => ("adopted", Some(path), Some(units), Some(over)),
        What::Fenced { .. } => ("replaced", None, None, None),
        What::Ended { .. } => ("ended", None, None, None),
    };
    json!({ "at": event.at, "node": event.node, "what": what, "path": path, "units": units, "over": over })
}

fn refused(refused: &Refused) -> Value {
    json!({
        "since": refused.since,
        "at": refused.at,
        "node": refused.node,
        "incarnation": format!("{:016x}", refused.incarnation),
        "budget": refused.budget,
        "group": refused.group,
        "full": match refused.full {
            Full::Limit => "limit",
            Full::Lease => "lease",
            Full::Deleted => "deleted",
            Full::Drained => "drained",
        },
        "units": refused.units,
        "count": refused.count,
    })
}
