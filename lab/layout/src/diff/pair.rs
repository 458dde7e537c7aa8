//! Pairs the fields of the new build with those of the old one.

use std::collections::{HashMap, HashSet};

use super::Sides;
use crate::leaf::{self, Expand, Leaf};
use crate::model::{TypeId, Types};
use crate::spell::spell;

/// The levels of nested records that are opened to find a field again.
const NESTED: usize = 4;

/// For each field of the old build, the index of the same field in the new build, and the reverse.
#[derive(Debug)]
pub(super) struct Pairs {
    pub of_old: Vec<Option<usize>>,
    pub of_new: Vec<Option<usize>>,
}

impl Pairs {
    fn add(&mut self, old: usize, new: usize) {
        (self.of_old[old], self.of_new[new]) = (Some(new), Some(old));
    }

    /// Pairs of indices (old, new) in the order of the old build.
    pub fn list(&self) -> impl Iterator<Item = (usize, usize)> {
        self.of_old.iter().enumerate().filter_map(|(old, new)| Some((old, (*new)?)))
    }
}

/// Pairs the fields.
///
/// Fields with the same path are paired first. Then come fields that moved into or out of a record; they have the
/// same name and type. Then come renamed fields; they have the same type and size, and lie at the same place or
/// between the same neighbours. A record that received fields is opened, in `old` or in `new`.
pub(super) fn pair(sides: Sides, old: &mut Vec<Leaf>, new: &mut Vec<Leaf>) -> Pairs {
    // Each round opens one level of nesting.
    let _ = (0..NESTED).all(|_| open_for(sides.new.0, new, sides.old.0, old));
    let _ = (0..NESTED).all(|_| open_for(sides.old.0, old, sides.new.0, new));
    let mut pairs = Pairs { of_old: vec![None; old.len()], of_new: vec![None; new.len()] };
    let mut by_path: HashMap<&str, Vec<usize>> = HashMap::new();
    for (index, leaf) in new.iter().enumerate().rev() {
        by_path.entry(&leaf.path).or_default().push(index);
    }
    for (index, leaf) in old.iter().enumerate() {
        // Nameless fields all have the same path.
        if let Some(other) = by_path.get_mut(leaf.path.as_str()).and_then(Vec::pop) {
            pairs.add(index, other);
        }
    }
    // The field may be elsewhere, under its own name.
    let mut last: HashMap<(String, String), Vec<usize>> = HashMap::new();
    for (index, leaf) in new.iter().enumerate().filter(|&(index, _)| pairs.of_new[index].is_none())
    {
        last.entry(identity(sides.new.0, leaf)).or_default().push(index);
    }
    for (index, leaf) in old.iter().enumerate() {
        if pairs.of_old[index].is_none()
            && let Some(&[other]) = last.get(&identity(sides.old.0, leaf)).map(Vec::as_slice)
            && pairs.of_new[other].is_none()
        {
            pairs.add(index, other);
        }
    }
    renamed(sides, old, new, &mut pairs);
    pairs
}

fn renamed(sides: Sides, old: &[Leaf], new: &[Leaf], pairs: &mut Pairs) {
    for index in 0..old.len() {
        let Pairs { of_old, of_new } = &*pairs;
        if of_old[index].is_some() {
            continue;
        }
        let same = |other: usize| {
            of_new[other].is_none()
                && old[index].bits == new[other].bits
                && spell(sides.old.0, old[index].ty).to_string()
                    == spell(sides.new.0, new[other].ty).to_string()
        };
        // Its neighbours before and after are the same as in the old build.
        let after = match index.checked_sub(1) {
            None => Some(0),
            Some(before) => of_old[before].map(|other| other + 1),
        };
        let between = after.filter(|&other| {
            let next = of_old.get(index + 1).copied();
            other < new.len() && (next.is_none_or(|next| next == Some(other + 1) || next.is_none()))
        });
        let there = new.partition_point(|leaf| leaf.start < old[index].start);
        let there = (there < new.len() && new[there].start == old[index].start).then_some(there);
        if let Some(other) = [there, between].into_iter().flatten().find(|&other| same(other)) {
            pairs.add(index, other);
        }
    }
}

/// Returns the last step of a field's path, and its type.
fn identity(types: &Types, leaf: &Leaf) -> (String, String) {
    let step = leaf.path.rsplit('.').next().unwrap_or_default();
    (step.to_owned(), spell(types, leaf.ty).to_string())
}

/// Returns whether one of these fields is in a record, or in a record within it.
fn holds(types: &Types, of: TypeId, alone: &HashSet<(String, String)>, depth: usize) -> bool {
    let inner = leaf::leaves(types, of, Expand::Anonymous);
    inner.iter().any(|inner| {
        alone.contains(&identity(types, inner))
            || depth > 1 && inner.ty != of && holds(types, inner.ty, alone, depth - 1)
    })
}

/// Opens, by one level, the records of `leaves` that the other build does not have and that hold a field which lies
/// outside of them in the other build. Returns whether there were any.
fn open_for(types: &Types, leaves: &mut Vec<Leaf>, others: &Types, other: &[Leaf]) -> bool {
    let here: HashSet<&str> = other.iter().map(|leaf| leaf.path.as_str()).collect();
    let there: HashSet<&str> = leaves.iter().map(|leaf| leaf.path.as_str()).collect();
    let alone = other.iter().filter(|leaf| !there.contains(leaf.path.as_str()));
    let alone: HashSet<_> = alone.map(|leaf| identity(others, leaf)).collect();
    if alone.is_empty() {
        return false;
    }
    let mut any = false;
    let mut opened = Vec::with_capacity(leaves.len());
    for leaf in leaves.iter() {
        if !here.contains(leaf.path.as_str()) && holds(types, leaf.ty, &alone, NESTED) {
            any = true;
            let inner = leaf::leaves(types, leaf.ty, Expand::Anonymous);
            opened.extend(inner.into_iter().map(|inner| Leaf {
                path: format!("{}.{}", leaf.path, inner.path),
                start: leaf.start.saturating_add(inner.start),
                ..inner
            }));
        } else {
            opened.push(leaf.clone());
        }
    }
    opened.sort_by_key(|leaf| leaf.start);
    *leaves = opened;
    any
}
