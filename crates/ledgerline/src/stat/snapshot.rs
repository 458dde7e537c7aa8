//! A whole table as owned data: names and values, without item types or locks.

use super::counters::Counters;
use super::items::Item;
use super::layout::View;
use super::places::{PlaceId, PlaceKind, PlaceSnapshot};
use super::read::{row, steady};
use super::width::{Width, WidthKind};
use crate::sync::{Ordering, PATIENCE};

/// A table at the time of a snapshot, for printers. Made by [`Counters::table`], or from a file by
/// [`CountersFile::table`](super::CountersFile::table).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountersSnapshot {
    /// How wide the differences are.
    pub width: WidthKind,
    /// How many columns were added up.
    pub cpus: u32,
    /// The items' names, in the order of their declaration.
    pub items: Vec<String>,
    /// The places; the root first, each after the place that it lies in.
    pub places: Vec<PlaceSnapshot>,
    /// Whether no fold moved numbers during the read. It is `false` only if a fold was under way all the
    /// time, or the process of a file died in the middle of one. Then some differences may be missing, or
    /// counted twice.
    pub steady: bool,
}

impl CountersSnapshot {
    /// Returns the value of an item at a place.
    pub fn value(&self, place: usize, item: &str) -> Option<u64> {
        let item = self.items.iter().position(|name| name == item)?;
        self.places.get(place)?.values.get(item).copied()
    }

    /// Iterates over the items of a place, by name.
    pub fn values(&self, place: usize) -> impl Iterator<Item = (&str, u64)> {
        let values = self.places.get(place).map_or(&[][..], |place| &place.values);
        self.items.iter().map(String::as_str).zip(values.iter().copied())
    }

    /// Iterates over the positions of all places of a kind.
    pub fn of_kind(&self, kind: PlaceKind) -> impl Iterator<Item = usize> {
        let places = self.places.iter().enumerate();
        places.filter(move |(_, place)| place.kind == kind).map(|(at, _)| at)
    }

    /// Iterates over the positions of the places right below a place.
    pub fn children(&self, parent: usize) -> impl Iterator<Item = usize> {
        let places = self.places.iter().enumerate();
        places.filter(move |(_, place)| place.parent == Some(parent)).map(|(at, _)| at)
    }

    /// Returns the position of the place at a path of names below the root (`node/zone`); the empty path
    /// is the root.
    pub fn find(&self, path: &str) -> Option<usize> {
        let mut names = path.split('/').filter(|name| !name.is_empty());
        names.try_fold(0, |at, name| self.children(at).find(|&c| self.places[c].name == name))
    }

    /// Reads a table whose names and places are given.
    pub(super) fn read(
        view: &View,
        items: Vec<String>,
        mut places: Vec<PlaceSnapshot>,
        patience: u32,
    ) -> CountersSnapshot {
        let add_up = match view.layout.width {
            WidthKind::I8 => row::<i8>,
            WidthKind::U16 => row::<u16>,
            WidthKind::I64 => row::<i64>,
        };
        let (values, steady) = steady(view, patience, || {
            let here = |place, item| {
                i128::from(view.total_sum(view.layout.width, place, item))
                    + add_up(view, place, item)
            };
            let mut values: Vec<Vec<i128>> = (0..places.len())
                .map(|place| (0..items.len()).map(|item| here(place, item)).collect())
                .collect();
            // The loop starts at the end, so the places below a place are added to it before its own
            // turn.
            for (at, place) in places.iter().enumerate().rev() {
                let Some(parent) = place.parent else { continue };
                let (above, below) = values.split_at_mut(at);
                for (up, own) in above[parent].iter_mut().zip(&below[0]) {
                    *up += own;
                }
            }
            values
        });
        let clamp = |value: i128| value.clamp(0, i64::MAX.into()) as u64;
        for (at, (place, values)) in places.iter_mut().zip(values).enumerate() {
            place.threshold = view.place(at).threshold.load(Ordering::Relaxed);
            place.values = values.into_iter().map(clamp).collect();
        }
        let (width, cpus) = (view.layout.width, view.layout.columns);
        CountersSnapshot { width, cpus, items, places, steady }
    }
}

impl<I: Item, W: Width> Counters<I, W> {
    /// Returns the whole table as owned data, each number as [`snapshot`](Self::snapshot) gives it.
    pub fn table(&self) -> CountersSnapshot {
        let items = I::ALL.iter().map(|item| item.name().to_owned()).collect();
        let tree = self.places();
        let place = |at| {
            let parent = tree.parent(at).map(PlaceId::index);
            PlaceSnapshot::unread(tree.name(at).to_owned(), tree.kind(at), parent)
        };
        CountersSnapshot::read(&self.view, items, tree.iter().map(place).collect(), PATIENCE)
    }
}
