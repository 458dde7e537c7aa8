//! Finds the fields that share a line, before and after.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::Sides;
use super::pair::Pairs;
use crate::leaf::Leaf;
use crate::lines::Lines;
use crate::model::{Type, TypeId, Types};

/// Fields that share a line with others. For an array, the elements that do are named.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mates(pub Vec<String>);

/// Fields that share the same lines in both builds, with the fields whose line they left and those that they share a
/// line with now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The fields.
    pub fields: Vec<String>,
    /// The groups of fields whose line they left.
    pub left: Vec<Mates>,
    /// The groups of fields that they share a line with now.
    pub joined: Vec<Mates>,
    /// Their first line, before and after.
    pub lines: (u64, u64),
}

/// Fields on the same lines in both builds.
struct Block {
    old: Option<(u64, u64)>,
    new: (u64, u64),
    fields: Vec<(Option<usize>, usize)>,
}

fn meet(a: (u64, u64), b: (u64, u64)) -> bool {
    a.0 <= b.1 && b.0 <= a.1
}

impl Block {
    fn met(&self, other: &Block) -> bool {
        matches!((self.old, other.old), (Some(a), Some(b)) if meet(a, b))
    }

    fn meets(&self, other: &Block) -> bool {
        meet(self.new, other.new)
    }
}

/// Returns the changes, those of few fields first: a field that left many others is named before the others.
pub(super) fn changes(
    sides: Sides,
    lines: Lines,
    old: &[Leaf],
    new: &[Leaf],
    pairs: &Pairs,
) -> Vec<Change> {
    let mut blocks: BTreeMap<_, Block> = BTreeMap::new();
    for (index, leaf) in new.iter().enumerate().filter(|(_, leaf)| leaf.bits > 0) {
        let before = pairs.of_new[index].filter(|&before| old[before].bits > 0);
        let was = before.map(|before| lines.leaf(&old[before]));
        let now = lines.leaf(leaf);
        let block = blocks.entry((now, was));
        let block = block.or_insert(Block { old: was, new: now, fields: Vec::new() });
        block.fields.push((before, index));
    }
    let blocks: Vec<Block> = blocks.into_values().collect();
    let naming = Naming { sides, lines, old, new };
    let mut open: Vec<Vec<usize>> = (0..blocks.len()).map(|_| Vec::new()).collect();
    for (index, other) in neighbours(&blocks) {
        let (one, two) = (&blocks[index], &blocks[other]);
        // If both are new, no old field's line changed.
        let known = one.old.is_some() || two.old.is_some();
        if known && one.met(two) != one.meets(two) {
            open[index].push(other);
            open[other].push(index);
        }
    }
    let spread: Vec<&Block> = blocks.iter().filter(|block| block.new.0 != block.new.1).collect();
    let mut order: Vec<usize> = (0..blocks.len()).filter(|&b| blocks[b].old.is_some()).collect();
    order.sort_by_key(|&b| {
        let wide = blocks[b].new.0 != blocks[b].new.1;
        (wide, blocks[b].fields.len(), blocks[b].new.0, blocks[b].fields[0].1)
    });
    let mut changes = Vec::new();
    for index in order {
        let mut others = std::mem::take(&mut open[index]);
        others.sort_unstable();
        if others.is_empty() {
            continue;
        }
        let block = &blocks[index];
        let (mut left, mut joined) = (Vec::new(), Vec::new());
        for &other in &others {
            open[other].retain(|&back| back != index);
            if block.meets(&blocks[other]) {
                joined.push(naming.now(&blocks[other], block.new));
            } else {
                left.push(naming.before(&blocks[other], block.old));
            }
        }
        // An array may stay beside them with other elements.
        for other in spread.iter().filter(|other| block.met(other) && block.meets(other)) {
            let (was, now) = (naming.before(other, block.old), naming.now(other, block.new));
            if now.0.len() == 1 && now != was && now.0[0].ends_with(']') {
                joined.push(Mates(vec![format!("{} (was {})", now.0[0], was.0[0])]));
            }
        }
        let fields = block.fields.iter().map(|&(_, index)| new[index].path.clone()).collect();
        let before = block.old.map_or(0, |old| old.0);
        changes.push(Change { fields, left, joined, lines: (before, block.new.0) });
    }
    changes
}

/// Returns the pairs of blocks that share a line before or after, each once.
fn neighbours(blocks: &[Block]) -> BTreeSet<(usize, usize)> {
    let mut pairs = BTreeSet::new();
    for before in [true, false] {
        let range = |block: &Block| if before { block.old } else { Some(block.new) };
        let mut order: Vec<((u64, u64), usize)> =
            (0..blocks.len()).filter_map(|b| Some((range(&blocks[b])?, b))).collect();
        order.sort_unstable();
        for (at, &(one, index)) in order.iter().enumerate() {
            for &(_, other) in order[at + 1..].iter().take_while(|(two, _)| two.0 <= one.1) {
                pairs.insert((index.min(other), index.max(other)));
            }
        }
    }
    pairs
}

struct Naming<'a> {
    sides: Sides<'a>,
    lines: Lines,
    old: &'a [Leaf],
    new: &'a [Leaf],
}

impl Naming<'_> {
    fn now(&self, block: &Block, on: (u64, u64)) -> Mates {
        let name = |&(_, index): &(_, usize)| self.part(self.sides.new.0, &self.new[index], on);
        Mates(block.fields.iter().map(name).collect())
    }

    fn before(&self, block: &Block, on: Option<(u64, u64)>) -> Mates {
        let name = |&(before, index): &(Option<usize>, usize)| match (before, on) {
            (Some(before), Some(on)) => self.part(self.sides.old.0, &self.old[before], on),
            _ => self.new[index].path.clone(),
        };
        Mates(block.fields.iter().map(name).collect())
    }

    /// Returns a field's name; for an array that continues on other lines, the elements that touch these lines.
    fn part(&self, types: &Types, leaf: &Leaf, (first, last): (u64, u64)) -> String {
        let range = self.lines.leaf(leaf);
        let Some(element) = element(types, leaf.ty) else { return leaf.path.clone() };
        if range.0 >= first && range.1 <= last || element == 0 {
            return leaf.path.clone();
        }
        let size = self.lines.size();
        let from = first.saturating_mul(size).max(leaf.offset()) - leaf.offset();
        let to = (last.saturating_add(1).saturating_mul(size)).min(leaf.offset() + leaf.size());
        let to = to.saturating_sub(leaf.offset()).max(1);
        format!("{}[{}..{}]", leaf.path, from / element, (to - 1) / element)
    }
}

/// Returns the bytes of an array's element.
fn element(types: &Types, ty: TypeId) -> Option<u64> {
    match types.get(types.resolve(ty)) {
        Type::Array { element, .. } => types.size(*element),
        _ => None,
    }
}
