//! Books as JSON: `docs/schemas/fleet.v1.json`.

use ledgerline_fleet::book::{Event, Full, Moved, Refused, What};
use serde_json::{Value, json};

use crate::fleet::read::{Book, Books, Damaged};

/// Returns all books in one document. Sizes are units (bytes, unless a fleet counts other things), times milliseconds.
#[must_use]
pub fn text(books: &Books) -> Value {
    let told: Vec<Value> = books.books.iter().map(book).collect();
    let damaged: Vec<Value> = books
        .damaged
        .iter()
        .map(|Damaged { organisation, why }| json!({ "organisation": organisation, "why": why }))
        .collect();
    json!({ "schema": "ledgerline/fleet.v1", "books": told, "damaged": damaged, "more": books.more })
}

fn book(Book { organisation, view }: &Book) -> Value {
    let mut book = serde_json::to_value(view).expect("names are text");
    book["organisation"] = organisation.as_str().into();
    // A store's own record of events has other names.
    book["events"] = view.events.iter().map(happened).collect();
    book["refusals"] = view.refusals.iter().map(refused).collect();
    book
}

fn happened(event: &Event) -> Value {
    let (mut path, mut units, mut over) = (None, None, None);
    let (mut change, mut from, mut to) = (None, None, None);
    let two = |first: &Moved, second: &Moved, names: [&str; 2]| {
        let of =
            |pick: fn(&Moved) -> Value| json!({ names[0]: pick(first), names[1]: pick(second) });
        (Some(of(|moved| json!(moved.from))), Some(of(|moved| json!(moved.to))))
    };
    let what = match &event.what {
        What::Adopted { path: budget, units: adopted, over: by } => {
            (path, units, over) = (Some(budget), Some(adopted), Some(by));
            "adopted"
        }
        What::Fenced { .. } => "replaced",
        What::Ended { .. } => "ended",
        What::Damaged { .. } => "damaged",
        What::Set { path: budget, limit, minimum } => {
            path = Some(budget);
            (from, to) = two(limit, minimum, ["max", "min"]);
            change = Some("set");
            "changed"
        }
        What::Deleted { path: budget } => {
            (path, change) = (Some(budget), Some("delete"));
            "changed"
        }
        What::Terms { ttl, grace } => {
            (from, to) = two(ttl, grace, ["lease_ms", "grace_ms"]);
            change = Some("terms");
            "changed"
        }
        What::Drained { node, on } => {
            let drained = |on: bool| Some(json!({ "node": node, "drained": on }));
            (from, to) = (drained(!on), drained(*on));
            change = Some("drain");
            "changed"
        }
        What::Repaired { .. } => {
            change = Some("repair");
            "changed"
        }
    };
    json!({
        "at": event.at, "node": event.node, "what": what, "path": path, "units": units, "over": over,
        "change": change, "from": from, "to": to,
    })
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
