//! Books as JSON: `docs/schemas/fleet.v1.json`.

use ledgerline_fleet::book::{Event, Full, Refused, What};
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
