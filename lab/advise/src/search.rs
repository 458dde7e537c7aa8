//! The search for a better order.
//!
//! Pieces that are touched alike, in the same phases and either read or written, are an atom. Atoms are put into
//! groups, each of which begins a pair of lines. Few atoms are grouped in every possible way. Many are grouped by
//! merging, again and again, the two groups that gain most by it. Starting from the best of these and from today's
//! order, the search moves single pieces and runs and begins lines as long as that helps. The price of an order is the
//! estimate of the proxy, and a little for each member that leaves today's order, for each byte that the type grows and
//! for each line that an operation touches.

use std::collections::{BTreeMap, HashSet};

use crate::cost::{PAIR, Place, Question};
use crate::order::{Laid, Order, count_moved, sequence};
use crate::pieces::{Held, Pieces};
use crate::proxy::Proxy;
use crate::uses::Uses;

/// The most atoms that are grouped in every way: 877 groupings.
const EXACT: usize = 7;
/// Groupings from which the local search starts.
const STARTS: usize = 4;
/// The gain that a moved member has to bring, as a share of today's cost.
const OF_A_MOVE: f64 = 5e-5;
/// The gain that a begun line has to bring.
const OF_A_LINE: f64 = 2.5e-5;
/// The gain that 64 more bytes have to bring.
const OF_GROWTH: f64 = 5e-5;
/// Most touches that a search looks at, which take a second or two.
const EFFORT: usize = 10_000_000;
/// How often the search leaves the best order by random moves.
const SHAKES: usize = 100;
/// Number of places where a piece is tried, besides those next to touched pieces.
const PLACES: usize = 32;

/// The input of the search.
pub(crate) struct Problem<'a> {
    pub pieces: &'a Pieces,
    pub question: &'a Question<'a>,
    pub uses: &'a Uses,
    proxy: Proxy<'a>,
    /// The piece of each spot, and the offset in it.
    pub spots: Vec<(usize, u64)>,
    /// Marks the pieces that no role touches.
    pub cold: Vec<bool>,
    /// Bytes that the record may have.
    pub most: u64,
    /// Objects begin at multiples of this today.
    pub base: u64,
    /// Atoms: free pieces that are touched alike.
    atoms: Vec<Vec<usize>>,
    today: f64,
}

impl<'a> Problem<'a> {
    pub(crate) fn new(
        pieces: &'a Pieces,
        question: &'a Question<'a>,
        uses: &'a Uses,
        most: u64,
        base: u64,
    ) -> Problem<'a> {
        let spots: Vec<(usize, u64)> =
            uses.spots.iter().map(|spot| pieces.holds(spot.offset)).collect();
        let mut cold = vec![true; pieces.list.len()];
        spots.iter().for_each(|&(piece, _)| cold[piece] = false);
        let atoms = atoms(pieces, uses, &spots);
        let begins: Vec<u64> = places(base).collect();
        let proxy = Proxy::new(question, uses);
        let today = proxy.cost(&uses.offsets(), &begins);
        Problem { pieces, question, uses, proxy, spots, cold, most, base, atoms, today }
    }

    pub(crate) fn lay(&self, order: &Order) -> Laid {
        order.lay(self.pieces, &self.cold)
    }

    /// Returns the offsets of the spots.
    pub(crate) fn offsets(&self, laid: &Laid) -> Vec<u64> {
        self.spots.iter().map(|&(piece, within)| laid.offsets[piece] + within).collect()
    }

    /// Returns the places of the spots and of the objects.
    pub(crate) fn place(&self, laid: &Laid) -> Place {
        laid.place(self.pieces, self.uses, self.base)
    }

    /// Returns the price: nanoseconds an operation by the proxy, and the small additions.
    pub(crate) fn price(&self, order: &Order) -> f64 {
        let laid = self.lay(order);
        if laid.size > self.most {
            return f64::INFINITY;
        }
        let moved = count_moved(&sequence(self.pieces, &laid)) as f64;
        let begun = order.begins.iter().filter(|&&begins| begins > 1).count() as f64;
        let grown = (laid.size as f64 - self.pieces.size as f64) / 64.0;
        let (cost, touching) = self.estimate(&laid);
        let beside = OF_A_MOVE * moved + OF_A_LINE * begun + OF_GROWTH * grown;
        cost + touching + self.today * beside
    }

    fn estimate(&self, laid: &Laid) -> (f64, f64) {
        let begins: Vec<u64> = places(laid.base(self.pieces, self.base)).collect();
        self.proxy.cost_and_touching(&self.offsets(laid), &begins)
    }

    /// Returns about how many touches the computation of a price looks at.
    fn visits(&self) -> usize {
        4 * self.proxy.touches() * places(self.base).count() + self.pieces.list.len()
    }
}

/// Returns the offsets in a pair of lines at which objects may begin.
fn places(base: u64) -> impl Iterator<Item = u64> {
    let step = base.clamp(1, PAIR);
    (0..PAIR / step).map(move |turn| turn * step)
}

/// A role, a phase of it, and whether it writes.
type Mark = (usize, usize, bool);

/// Groups free pieces that are touched in the same phases in the same way, by today's order.
fn atoms(pieces: &Pieces, uses: &Uses, spots: &[(usize, u64)]) -> Vec<Vec<usize>> {
    let mut marks: BTreeMap<usize, Vec<Mark>> = BTreeMap::new();
    for (role, of) in uses.roles.iter().enumerate() {
        for (phase, of) in of.phases.iter().enumerate() {
            for touch in &of.accesses {
                let (piece, _) = spots[touch.spot];
                marks.entry(piece).or_default().push((role, phase, touch.kind.writes()));
            }
        }
    }
    let mut atoms: Vec<(Vec<Mark>, Vec<usize>)> = Vec::new();
    for (piece, mut mark) in marks {
        if pieces.list[piece].held.is_some() {
            continue;
        }
        mark.sort_unstable();
        mark.dedup();
        // A piece larger than a line never joins others.
        let wide = pieces.list[piece].size > 64;
        match atoms.iter_mut().find(|(known, _)| !wide && *known == mark) {
            Some((_, list)) => list.push(piece),
            None if wide => atoms.push((Vec::new(), vec![piece])),
            None => atoms.push((mark, vec![piece])),
        }
    }
    atoms.into_iter().map(|(_, list)| list).collect()
}

/// Returns the best orders that the search finds, the lowest price first. Today's order is one of the starts.
pub(crate) fn best(problem: &Problem<'_>) -> Vec<Order> {
    let today = Order::today(problem.pieces);
    let mut starts: Vec<(f64, Order)> = groupings(problem)
        .into_iter()
        .flat_map(|groups| [true, false].map(|front| arranged(problem, &groups, front)))
        .map(|order| (problem.price(&order), order))
        .filter(|(price, _)| price.is_finite())
        .collect();
    starts.sort_by(|a, b| a.0.total_cmp(&b.0));
    starts.dedup_by(|a, b| a.1 == b.1);
    starts.truncate(STARTS);
    starts.push((problem.price(&today), today));
    let mut left = EFFORT / problem.visits().max(1);
    let each = left / starts.len();
    let mut improved: Vec<(f64, Order)> = Vec::new();
    for (price, order) in starts {
        let mut here = each;
        improved.push(improve(problem, order, price, &mut here));
        left = left.saturating_sub(each - here);
    }
    improved.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (price, order) = improved[0].clone();
    improved.insert(0, shaken(problem, order, price, &mut left));
    improved.into_iter().map(|(_, order)| order).collect()
}

/// Returns ways to put atoms into groups.
fn groupings(problem: &Problem<'_>) -> Vec<Vec<Vec<usize>>> {
    let atoms = &problem.atoms;
    if atoms.len() <= EXACT {
        let mut all = Vec::new();
        partitions(atoms, &mut Vec::new(), &mut all);
        return all;
    }
    // Merges from all apart to all together. Every step is a start.
    let mut groups = atoms.clone();
    let mut all = vec![groups.clone()];
    while groups.len() > 1 {
        let mut best: Option<(f64, Vec<Vec<usize>>)> = None;
        let pairs = (0..groups.len()).flat_map(|a| (a + 1..groups.len()).map(move |b| (a, b)));
        for (one, other) in pairs {
            let mut merged = groups.clone();
            let taken = merged.remove(other);
            merged[one].extend(taken);
            merged[one].sort_unstable();
            let laid = problem.lay(&arranged(problem, &merged, true));
            let cost = problem.estimate(&laid).0;
            if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                best = Some((cost, merged));
            }
        }
        let Some((_, merged)) = best else { break };
        groups = merged;
        all.push(groups.clone());
    }
    all
}

fn partitions(atoms: &[Vec<usize>], groups: &mut Vec<Vec<usize>>, all: &mut Vec<Vec<Vec<usize>>>) {
    let Some((first, rest)) = atoms.split_first() else {
        let mut done = groups.clone();
        done.iter_mut().for_each(|group| group.sort_unstable());
        all.push(done);
        return;
    };
    for into in 0..=groups.len() {
        if into == groups.len() {
            groups.push(first.clone());
            partitions(rest, groups, all);
            groups.pop();
        } else {
            let length = groups[into].len();
            groups[into].extend(first);
            partitions(rest, groups, all);
            groups[into].truncate(length);
        }
    }
}

/// Returns an order with groups that begin a pair of lines each, before all other pieces or after them.
fn arranged(problem: &Problem<'_>, groups: &[Vec<usize>], front: bool) -> Order {
    let pieces = problem.pieces;
    let mut groups: Vec<&Vec<usize>> = groups.iter().collect();
    groups.sort_by_key(|group| group.first().copied());
    let touched: HashSet<usize> = groups.iter().flat_map(|group| group.iter().copied()).collect();
    let free = (0..pieces.list.len()).filter(|&index| pieces.list[index].held.is_none());
    let rest: Vec<usize> = free.filter(|index| !touched.contains(index)).collect();
    let mut order = Order { sequence: Vec::new(), begins: vec![1; pieces.list.len()], fill: true };
    if !front {
        order.sequence.extend(&rest);
    }
    for group in &groups {
        // The widest alignment comes first, so that a group has no holes; today's order otherwise.
        let mut group = (*group).clone();
        group.sort_by_key(|&index| (std::cmp::Reverse(pieces.list[index].align), index));
        if let Some(&first) = group.first() {
            order.begins[first] = PAIR;
        }
        order.sequence.extend(group);
    }
    if front {
        order.sequence.extend(&rest);
    }
    order
}

/// Leaves the local minimum of the best order: makes some random moves, improves the result, and keeps it if it is
/// cheaper.
fn shaken(
    problem: &Problem<'_>,
    mut order: Order,
    mut price: f64,
    left: &mut usize,
) -> (f64, Order) {
    // The random numbers are always the same, so that the answer to a question does not change.
    let mut state = 0u64;
    let mut throw = |sides: usize| {
        const FACTOR: u64 = 6_364_136_223_846_793_005;
        state = state.wrapping_mul(FACTOR).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % sides.max(1)
    };
    for round in 0..SHAKES {
        let mut next = order.clone();
        for _ in 0..2 + round % 2 {
            let blocks = blocks(problem, &next);
            if blocks.is_empty() {
                return (price, order);
            }
            let block = &blocks[throw(blocks.len())];
            let mut near = neighbours(problem, &next, block);
            next = near.swap_remove(throw(near.len()));
        }
        let start = problem.price(&next);
        let (cost, next) = improve(problem, next, start, left);
        if cost < price {
            (price, order) = (cost, next);
        }
        if *left == 0 {
            break;
        }
    }
    (price, order)
}

/// Moves pieces and begins lines as long as the price falls. Computes at most `left` prices.
fn improve(
    problem: &Problem<'_>,
    mut order: Order,
    mut price: f64,
    left: &mut usize,
) -> (f64, Order) {
    loop {
        let before = price;
        for block in blocks(problem, &order) {
            for next in neighbours(problem, &order, &block) {
                let Some(rest) = left.checked_sub(1) else { return (price, order) };
                *left = rest;
                let cost = problem.price(&next);
                if cost < price {
                    (price, order) = (cost, next);
                }
            }
        }
        // A smaller gain is not worth another round.
        if price > before - problem.today * 1e-6 || !price.is_finite() {
            return (price, order);
        }
    }
}

/// Returns the blocks that move as one: each touched piece, and each run of them.
fn blocks(problem: &Problem<'_>, order: &Order) -> Vec<Vec<usize>> {
    let mut blocks = Vec::new();
    let mut run: Vec<usize> = Vec::new();
    for &index in order.sequence.iter().chain([&usize::MAX]) {
        if index != usize::MAX && !problem.cold[index] {
            blocks.push(vec![index]);
            run.push(index);
            continue;
        }
        if run.len() > 1 {
            blocks.push(std::mem::take(&mut run));
        }
        run.clear();
    }
    // If all touched pieces are held, the pieces between them may still make room.
    if blocks.is_empty() {
        blocks.extend(order.sequence.last().map(|&last| vec![last]));
    }
    let alike = problem.atoms.iter().filter(|atom| atom.len() > 1);
    blocks.extend(alike.cloned());
    blocks
}

/// Returns orders that differ in the place of a block, or in what begins a line.
fn neighbours(problem: &Problem<'_>, order: &Order, block: &[usize]) -> Vec<Order> {
    let rest: Vec<usize> =
        order.sequence.iter().copied().filter(|index| !block.contains(index)).collect();
    let hot = |index: usize| !problem.cold[index];
    let mut places: Vec<usize> = vec![0, rest.len()];
    for (at, &index) in rest.iter().enumerate() {
        if hot(index) {
            places.extend([at, at + 1]);
        }
    }
    // Today's place: behind the piece that it follows today.
    let home = rest.iter().rposition(|&index| index < block[0]).map_or(0, |at| at + 1);
    places.push(home);
    let step = (rest.len() / PLACES).max(1);
    places.extend((0..rest.len()).step_by(step));
    places.sort_unstable();
    places.dedup();
    let mut next = Vec::with_capacity(8 * places.len() + 8);
    for &place in &places {
        let mut moved = Order { sequence: rest.clone(), ..order.clone() };
        moved.sequence.splice(place..place, block.iter().copied());
        let follower = rest.get(place).copied();
        // Unchanged; with a begun line for the block, for its follower, or for both; or with none for the block.
        let (pair, nothing) = (Some(PAIR), Some(1));
        for (own, after) in [
            (None, None),
            (pair, None),
            (None, pair),
            (pair, pair),
            (nothing, None),
            (nothing, pair),
        ] {
            let mut wish = moved.clone();
            if let Some(own) = own {
                block.iter().for_each(|&index| wish.begins[index] = 1);
                wish.begins[block[0]] = own;
            }
            match (after, follower) {
                (Some(after), Some(follower)) => wish.begins[follower] = after,
                (Some(_), None) => continue,
                _ => {}
            }
            next.push(wish);
        }
    }
    // The block in its place, with other begun lines.
    let at = order.sequence.iter().rposition(|index| block.contains(index)).unwrap_or(0);
    let follower = order.sequence.get(at + 1).copied();
    // An array without a length stays last, and may begin a line there.
    let held = problem.pieces.list.iter().position(|piece| piece.held == Some(Held::Last));
    for index in [Some(block[0]), follower, held].into_iter().flatten() {
        for begins in [1, 64, PAIR] {
            let mut wish = order.clone();
            wish.begins[index] = begins;
            next.push(wish);
        }
    }
    next.push(Order { fill: !order.fill, ..order.clone() });
    // Swaps the piece with an untouched piece of its size, so that nothing else moves.
    if let [index] = block {
        let size = problem.pieces.list[*index].size;
        let like = order
            .sequence
            .iter()
            .filter(|&&other| problem.cold[other] && problem.pieces.list[other].size == size);
        let near = |other: &&usize| other.abs_diff(*index);
        let mut like: Vec<&usize> = like.collect();
        like.sort_by_key(near);
        for &other in like.into_iter().take(8) {
            let mut swapped = order.clone();
            for place in &mut swapped.sequence {
                if *place == *index {
                    *place = other;
                } else if *place == other {
                    *place = *index;
                }
            }
            next.push(swapped);
        }
    }
    next
}

#[cfg(test)]
mod tests;
