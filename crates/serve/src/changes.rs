//! What changed from one look to the next, as an event.

use crate::api::{Figures, GroupRow, items, number};
use crate::frame::Frame;
use ledgerline::GroupId;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What changed from one look to the next, as an event.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    /// The number of the look that it leads to, from the one before.
    pub(crate) number: u64,
    pub(crate) text: Arc<str>,
}

#[derive(Serialize)]
struct Changed<'f> {
    number: u64,
    at: f64,
    damaged: bool,
    steady: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    groups: Vec<ChangedGroup>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    new: Vec<GroupRow<'f>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    gone: Vec<Gone>,
}

#[derive(Serialize)]
struct ChangedGroup {
    #[serde(serialize_with = "number")]
    id: GroupId,
    #[serde(flatten)]
    figures: ChangedFigures,
    #[serde(skip_serializing_if = "Option::is_none")]
    items: Option<BTreeMap<String, i64>>,
}

#[derive(Serialize)]
struct Gone(#[serde(serialize_with = "number")] GroupId);

/// The figures that differ.
struct ChangedFigures {
    before: Figures,
    now: Figures,
}

impl Serialize for ChangedFigures {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        let mut map = to.serialize_map(None)?;
        macro_rules! differing {
            ($($field:ident)*) => {
                $(if self.before.$field != self.now.$field {
                    map.serialize_entry(stringify!($field), &self.now.$field)?;
                })*
            };
        }
        differing!(state current peak charges uncharges refused max_events high_events reclaimed max high low min rates);
        map.end()
    }
}

impl Change {
    /// How long its text is.
    pub(crate) fn bytes(&self) -> usize {
        self.text.len()
    }
}

/// What changed from one look to the next.
pub(crate) fn change(before: &Frame, now: &Frame) -> Change {
    let mut changed = Changed {
        number: now.number,
        at: now.at(),
        damaged: now.look.damaged,
        steady: now.look.steady,
        groups: Vec::new(),
        new: Vec::new(),
        gone: Vec::new(),
    };
    let figures =
        |frame: &Frame, place: usize| Figures::of(&frame.look.rows[place], &frame.rates[place]);
    for (place, row) in now.look.rows.iter().enumerate() {
        // A group stays where it is in most looks.
        let same = before.look.rows.get(place).is_some_and(|before| before.id == row.id);
        let was = if same { Some(place) } else { before.places.get(&row.id).copied() };
        match was {
            // (A group whose process became another program has another name.)
            Some(was) if before.look.rows[was].path == row.path => {
                let items = (before.look.rows[was].items != row.items)
                    .then(|| items(row).map(|(name, value)| (name.to_owned(), value)).collect());
                let (before, now) = (figures(before, was), figures(now, place));
                if before != now || items.is_some() {
                    let figures = ChangedFigures { before, now };
                    changed.groups.push(ChangedGroup { id: row.id, figures, items });
                }
            }
            _ => changed.new.push(GroupRow::of(now, place)),
        }
    }
    let gone = before.look.rows.iter().filter(|row| !now.places.contains_key(&row.id));
    changed.gone.extend(gone.map(|row| Gone(row.id)));
    Change { number: now.number, text: event("change", now.number, &changed).into() }
}

/// An event with a document of one line.
pub(crate) fn event(kind: &str, number: u64, document: &impl Serialize) -> String {
    // (Its keys are strings, so it can be encoded.)
    let json = serde_json::to_string(document).unwrap_or_else(|_| "{}".to_owned());
    format!("event: {kind}\nid: {number}\ndata: {json}\n\n")
}
