//! The changes from one look to the next, as an event.

use crate::serve::api::{Figures, GroupRow, Id, PerSecond, items};
use crate::serve::frame::Frame;
use crate::terminal::output::plain_json;
use crate::watch::Row;
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The order of the changes in an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum By {
    /// By group: each with its changed fields.
    #[default]
    Group,
    /// By field: each with the groups in which it changed. That is half as long, and is read in a third of the time.
    Field,
}

impl By {
    pub(crate) const ALL: [By; 2] = [By::Group, By::Field];
}

/// The changes from one look to the next, as an event.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    /// The number of the look that it leads to, from the previous one.
    pub(crate) number: u64,
    pub(crate) text: Arc<str>,
}

/// The changes from one look to the next.
pub(crate) struct Changed<'f> {
    now: &'f Frame,
    groups: Vec<ChangedGroup>,
    new: Vec<GroupRow<'f>>,
    gone: Vec<Id>,
}

#[derive(Serialize)]
struct Document<'c> {
    schema: &'static str,
    number: u64,
    at: f64,
    damaged: bool,
    steady: bool,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    groups: &'c [ChangedGroup],
    #[serde(skip_serializing_if = "Option::is_none")]
    fields: Option<Fields<'c>>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    new: &'c [GroupRow<'c>],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    gone: &'c [Id],
}

#[derive(Serialize)]
struct ChangedGroup {
    id: Id,
    #[serde(flatten)]
    figures: Differing<Figures>,
    #[serde(skip_serializing_if = "Option::is_none")]
    items: Option<BTreeMap<String, i64>>,
}

/// The figures that differ.
struct Differing<T> {
    before: T,
    now: T,
}

/// Calls a macro with the names of the figures, or of the rates.
macro_rules! each {
    (figures: $then:ident!($($with:tt)*)) => {
        $then!($($with)* state current peak charges uncharges refused max_events high_events reclaimed max high low min)
    };
    (rates: $then:ident!($($with:tt)*)) => {
        $then!($($with)* growth charges refused max_events high_events reclaimed)
    };
}

/// Writes the fields that differ into a map.
macro_rules! differing {
    ($differing:ident, $map:ident, $($field:ident)*) => {
        $(if $differing.before.$field != $differing.now.$field {
            $map.serialize_entry(stringify!($field), &$differing.now.$field)?;
        })*
    };
}

impl Serialize for Differing<Figures> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        each!(figures: differing!(self, map,));
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
        each!(rates: differing!(self, map,));
        map.end()
    }
}

/// The groups that changed, by field.
struct Fields<'c>(&'c [ChangedGroup]);

/// A field: its new values, and the positions of their groups among the ids, unless all groups have one.
#[derive(Serialize)]
struct Column<T> {
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<Vec<usize>>,
    is: Vec<T>,
}

/// Writes a column of the groups in which a value changed, if there are any.
fn column<M: SerializeMap, T: Serialize>(
    map: &mut M,
    name: &'static str,
    groups: &[ChangedGroup],
    changed: impl Fn(&ChangedGroup) -> Option<T>,
) -> Result<(), M::Error> {
    let (at, is): (Vec<usize>, Vec<T>) = groups
        .iter()
        .enumerate()
        .filter_map(|(place, group)| Some((place, changed(group)?)))
        .unzip();
    if is.is_empty() {
        return Ok(());
    }
    let at = (at.len() < groups.len()).then_some(at);
    map.serialize_entry(name, &Column { at, is })
}

/// Writes a column for each field.
macro_rules! columns {
    ($groups:expr, $map:ident, $of:ident, $($field:ident)*) => {
        $(column(&mut $map, stringify!($field), $groups, |group| {
            let (before, now) = $of(group);
            (before.$field != now.$field).then_some(now.$field)
        })?;)*
    };
}

impl Serialize for Fields<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        let ids: Vec<Id> = self.0.iter().map(|group| group.id).collect();
        map.serialize_entry("ids", &ids)?;
        let of = |group: &ChangedGroup| (group.figures.before, group.figures.now);
        each!(figures: columns!(self.0, map, of,));
        column(&mut map, "items", self.0, |group| group.items.clone())?;
        map.serialize_entry("rates", &RateFields(self.0))?;
        map.end()
    }
}

struct RateFields<'c>(&'c [ChangedGroup]);

impl Serialize for RateFields<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        let of = |group: &ChangedGroup| (group.figures.before.rates, group.figures.now.rates);
        each!(rates: columns!(self.0, map, of,));
        map.end()
    }
}

fn has_its_name(before: &Row, now: &Row) -> bool {
    (&before.path, &before.name) == (&now.path, &now.name)
}

impl<'f> Changed<'f> {
    /// Returns the changes from one look to the next.
    pub(crate) fn between(before: &Frame, now: &'f Frame) -> Changed<'f> {
        let mut changed = Changed { now, groups: Vec::new(), new: Vec::new(), gone: Vec::new() };
        let figures =
            |frame: &Frame, place: usize| Figures::of(&frame.look.rows[place], &frame.rates[place]);
        for (place, row) in now.look.rows.iter().enumerate() {
            // Most groups keep their place from look to look.
            let same = before.look.rows.get(place).is_some_and(|before| before.id == row.id);
            let was = if same { Some(place) } else { before.places.get(&row.id).copied() };
            match was {
                // A group whose process became another program, or changed its title, has another name.
                Some(was) if has_its_name(&before.look.rows[was], row) => {
                    let items = (before.look.rows[was].items != row.items).then(|| {
                        items(row).map(|(name, value)| (name.to_owned(), value)).collect()
                    });
                    let (before, now) = (figures(before, was), figures(now, place));
                    if before != now || items.is_some() {
                        let figures = Differing { before, now };
                        changed.groups.push(ChangedGroup { id: Id(row.id), figures, items });
                    }
                }
                _ => changed.new.push(GroupRow::of(now, place)),
            }
        }
        let gone = before.look.rows.iter().filter(|row| !now.places.contains_key(&row.id));
        changed.gone.extend(gone.map(|row| Id(row.id)));
        changed
    }

    pub(crate) fn event(&self, by: By) -> Event {
        let (now, groups) = (self.now, &self.groups[..]);
        let document = Document {
            schema: "ledgerline/serve-change.v1",
            number: now.number,
            at: now.at(),
            damaged: now.look.damaged,
            steady: now.look.steady,
            groups: if by == By::Group { groups } else { &[] },
            fields: (by == By::Field && !groups.is_empty()).then_some(Fields(groups)),
            new: &self.new,
            gone: &self.gone,
        };
        Event { number: now.number, text: event("change", now.number, &document).into() }
    }
}

/// Returns an event with a document of one line.
pub(crate) fn event(kind: &str, number: u64, document: &impl Serialize) -> String {
    // Its keys are strings, so encoding it cannot fail.
    let json = serde_json::to_string(document).unwrap_or_else(|_| "{}".to_owned());
    let json = plain_json(&json);
    format!("event: {kind}\nid: {number}\ndata: {json}\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::api::Groups;
    use crate::watch::{Look, Rates, Row, State};
    use ledgerline::GroupId;
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

    /// Applies an event like `feed.js` does.
    fn apply(to: &mut Map<String, Value>, change: &Event) {
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
        let fields = change["fields"].as_object().cloned().unwrap_or_default();
        for (name, column) in &fields {
            match &**name {
                "ids" => {}
                "rates" => {
                    for (rate, column) in column.as_object().unwrap() {
                        put(to, &fields["ids"], column, |group| &mut group["rates"][rate]);
                    }
                }
                _ => put(to, &fields["ids"], column, |group| &mut group[name]),
            }
        }
    }

    /// Writes a column's values to their groups.
    fn put(
        to: &mut Map<String, Value>,
        ids: &Value,
        column: &Value,
        place: impl Fn(&mut Value) -> &mut Value,
    ) {
        let is = column["is"].as_array().unwrap();
        let at = column["at"].as_array().cloned();
        let at = at.unwrap_or_else(|| (0..is.len()).map(Value::from).collect());
        assert_eq!(at.len(), is.len());
        for (at, is) in at.iter().zip(is) {
            let id = ids[at.as_u64().unwrap() as usize].as_str().unwrap();
            *place(&mut to[id]) = is.clone();
        }
    }

    #[test]
    fn who_applies_the_changes_has_what_a_new_reader_gets() {
        let mut state = crate::seed::seed(1);
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
        let mut known_by_field = known.clone();
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
                    1 => {
                        (row.counts.charges, rates.counts.charges) =
                            (row.counts.charges + 10, below(100) as f64)
                    }
                    2 => row.max = (below(2) == 0).then(|| below(1 << 40)),
                    3 => rates.growth = below(1000) as f64 - 500.0,
                    4 => row.state = if below(2) == 0 { State::Live } else { State::Exited },
                    5 => row.counts.refused += below(3),
                    // Less than the precision of a rate.
                    6 => rates.counts.charges += 0.01,
                    _ => {}
                }
            }
            let now = frame(number, rows.clone());
            let changed = Changed::between(&before, &now);
            apply(&mut known, &changed.event(By::Group));
            apply(&mut known_by_field, &changed.event(By::Field));
            assert_eq!(known, groups(&now), "look {number}");
            assert_eq!(known_by_field, known, "look {number}");
            before = now;
        }
    }
}
