//! What changed from one look to the next, as an event.

use crate::api::{Figures, GroupRow, PerSecond, items, number};
use crate::frame::Frame;
use ledgerline::GroupId;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
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
    figures: Differing<Figures>,
    #[serde(skip_serializing_if = "Option::is_none")]
    items: Option<BTreeMap<String, i64>>,
}

#[derive(Serialize)]
struct Gone(#[serde(serialize_with = "number")] GroupId);

/// The figures that differ.
struct Differing<T> {
    before: T,
    now: T,
}

/// Writes the fields that differ into a map.
macro_rules! differing {
    ($differing:ident, $map:ident: $($field:ident)*) => {
        $(if $differing.before.$field != $differing.now.$field {
            $map.serialize_entry(stringify!($field), &$differing.now.$field)?;
        })*
    };
}

impl Serialize for Differing<Figures> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        differing!(self, map: state current peak charges uncharges refused max_events high_events reclaimed max high low min);
        let rates = Differing { before: self.before.rates, now: self.now.rates };
        if rates.before != rates.now {
            map.serialize_entry("rates", &rates)?;
        }
        map.end()
    }
}

impl Serialize for Differing<PerSecond> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        differing!(self, map: growth charges refused max_events high_events reclaimed);
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
                    let figures = Differing { before, now };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Groups;
    use ledgerline_watch::{Look, Rates, Row, State};
    use serde_json::{Map, Value};
    use std::time::{Duration, Instant, UNIX_EPOCH};

    fn frame(number: u64, rows: Vec<(Row, Rates)>) -> Frame {
        let clock = Duration::from_secs(number);
        let (rows, rates) = rows.into_iter().unzip();
        let look =
            Look { at: UNIX_EPOCH, clock, unit: "bytes", steady: true, damaged: false, rows };
        Frame::new(number, look, rates, Instant::now(), Duration::ZERO)
    }

    fn groups(frame: &Frame) -> Map<String, Value> {
        let document = serde_json::to_value(Groups::of(1, "a job", frame)).unwrap();
        let groups = document["groups"].as_array().unwrap().iter();
        groups.map(|group| (group["id"].as_str().unwrap().to_owned(), group.clone())).collect()
    }

    /// Does what `feed.js` does.
    fn apply(to: &mut Map<String, Value>, change: &Change) {
        let data = change.text.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
        let change: Value = serde_json::from_str(data).unwrap();
        let each = |name: &str| change[name].as_array().cloned().unwrap_or_default();
        for id in each("gone") {
            to.remove(id.as_str().unwrap()).expect("it was there");
        }
        for group in each("new") {
            to.insert(group["id"].as_str().unwrap().to_owned(), group);
        }
        for mut figures in each("groups") {
            let group = to[figures["id"].as_str().unwrap()].as_object_mut().unwrap();
            if let Some(Value::Object(mut rates)) = figures.as_object_mut().unwrap().remove("rates")
            {
                group["rates"].as_object_mut().unwrap().append(&mut rates);
            }
            group.append(figures.as_object_mut().unwrap());
        }
    }

    #[test]
    fn who_applies_the_changes_has_what_a_new_reader_gets() {
        let mut state = 1_u64;
        let mut below = |most: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % most
        };
        let row = |index: u32| {
            let path = if index == 0 { "/".to_owned() } else { format!("/{index}") };
            (Row::new(GroupId::from_parts(index, 1), &path), Rates::default())
        };
        let mut rows = vec![row(0), row(1), row(2)];
        let mut before = frame(1, rows.clone());
        let mut known = groups(&before);
        for number in 2..300 {
            if below(5) == 0 {
                rows.push(row(number as u32 + 10));
            }
            if rows.len() > 2 && below(6) == 0 {
                rows.remove(1 + below(rows.len() as u64 - 1) as usize);
            }
            for (row, rates) in &mut rows {
                match below(9) {
                    0 => row.current = below(1 << 40),
                    1 => (row.charges, rates.charges) = (row.charges + 10, below(100) as f64),
                    2 => row.max = (below(2) == 0).then(|| below(1 << 40)),
                    3 => rates.growth = below(1000) as f64 - 500.0,
                    4 => row.state = if below(2) == 0 { State::Live } else { State::Exited },
                    5 => row.refused += below(3),
                    // Less than what is told of a rate.
                    6 => rates.charges += 0.01,
                    _ => {}
                }
            }
            let now = frame(number, rows.clone());
            apply(&mut known, &change(&before, &now));
            assert_eq!(known, groups(&now), "look {number}");
            before = now;
        }
    }
}
