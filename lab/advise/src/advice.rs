//! Finds a better order for a type, with the reason and the gain of each move, or reports that today's order is good.
//!
//! The search uses a quick estimate. The best orders that it finds are simulated beside today's layout, at each design
//! point. An order is proposed only if it is cheaper at half of the points and dearer at none. A move that gains
//! nothing by itself is taken back.

use ledgerline_coherence::experiments::Interval;
use ledgerline_layout::Error;
use ledgerline_layout::model::{TypeId, Types};

use crate::cost::{self, Cost, Difference, PAIR, Place, Question, Timed, Work};
use crate::order::{Laid, Order, moved, sequence};
use crate::pieces::{Freedom, Pieces};
use crate::profile::TypeProfile;
use crate::reason::{Change, Group};
use crate::search::{self, Problem};
use crate::uses::Uses;

/// Number of orders that are simulated.
const CANDIDATES: usize = 3;
/// Most moves without a gain that are taken back.
const ROUNDS: usize = 8;

/// The user's wishes for an order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wishes {
    /// Members that may not move, and members that may be taken apart.
    pub freedom: Freedom,
    /// Bytes that the type may have. The default is today's size in whole lines and one pair of lines.
    pub size_max: Option<u64>,
    /// All addresses of objects are multiples of this. By default, objects begin a pair of lines.
    pub base: Option<u64>,
    /// The machine on which operations were timed, for profiles that have times of whole operations. The default is the
    /// machine of the question.
    pub timed: Option<Timed>,
}

/// The cost of a type today, and a better order if there is one.
#[derive(Clone, Debug)]
pub struct Advice {
    /// The type.
    pub name: String,
    /// Its members.
    pub pieces: Pieces,
    /// The profile's accesses.
    pub uses: Uses,
    /// The works that were fitted to the profile's times.
    pub works: Vec<Work>,
    /// Bytes that it may have.
    pub size_max: u64,
    /// The places of its fields.
    pub place: Place,
    /// Whether the place of objects is assumed, because neither the wishes nor the profile give it.
    pub assumed: bool,
    /// The cost of today's layout.
    pub today: Cost,
    /// The better order, if there is one.
    pub proposal: Option<Proposal>,
    /// The gain of the best order that was found, if it is not certain.
    pub unsure: Option<Difference>,
}

/// A better order.
#[derive(Clone, Debug)]
pub struct Proposal {
    /// The pieces by their new offsets, as indices into [`Pieces::list`].
    pub order: Vec<usize>,
    /// Each piece's new offset, by its index.
    pub offsets: Vec<u64>,
    /// The alignment that each piece needs in the source: 64 to begin a line, 128 to begin a pair, 1 for none.
    pub begins: Vec<u64>,
    /// Its size in bytes.
    pub size: u64,
    /// Its alignment.
    pub align: u64,
    /// The places of the fields.
    pub place: Place,
    /// The cost of the new order.
    pub cost: Cost,
    /// The difference from today's cost.
    pub change: Difference,
    /// Which fields move, and why.
    pub moves: Vec<Move>,
}

/// Fields that leave today's order together.
#[derive(Clone, Debug, PartialEq)]
pub struct Move {
    /// Their names.
    pub fields: Vec<String>,
    /// The offset of the first field, before and after, in bytes.
    pub offsets: (u64, u64),
    /// 64 if the first begins a line now, 128 if a pair of lines.
    pub begins: Option<u64>,
    /// The reason, as one sentence.
    pub reason: String,
    /// Nanoseconds an operation that this move gains: the cost of taking it back alone. `None` if no role touches the
    /// fields that move.
    pub gain: Option<Interval>,
}

/// Predicts the cost of a type, and looks for a better order.
///
/// Takes seconds: a search, and some ten simulations for each design point.
///
/// # Errors
/// If the type has no order, like a union; if the profile names fields that do not exist, or too many; and if a wish
/// cannot be granted.
pub fn advise(
    types: &Types,
    id: TypeId,
    profile: &TypeProfile,
    question: &Question<'_>,
    wishes: &Wishes,
) -> Result<Advice, Error> {
    let uses = Uses::resolve(types, id, profile)?;
    let pieces = Pieces::of(types, id, &profile.name, &wishes.freedom)?;
    let size_max = wishes.size_max.unwrap_or(pieces.size.next_multiple_of(64) + PAIR);
    if size_max < pieces.size {
        let error = Error::new(format!("{} has {} bytes today", profile.name, pieces.size));
        return Err(error.advise("let it have as many at least"));
    }
    let place = Place::of(&uses).based(wishes.base);
    let place = Place { base: place.base.max(pieces.align.min(PAIR)), ..place };
    let (uses, works) = cost::settle(question, wishes.timed.as_ref(), uses, &place)?;
    let today = cost::of(question, &uses, &place)?;
    let mut advice = Advice {
        name: crate::uses::clean(&profile.name),
        pieces,
        works,
        size_max,
        place,
        assumed: wishes.base.is_none() && uses.instances.row().is_none(),
        today,
        uses,
        proposal: None,
        unsure: None,
    };
    (advice.proposal, advice.unsure) = propose(&advice, question)?;
    Ok(advice)
}

/// The proposal, if there is one; otherwise the uncertain gain of the best order that was found.
type Proposed = (Option<Proposal>, Option<Difference>);

fn propose(advice: &Advice, question: &Question<'_>) -> Result<Proposed, Error> {
    let Advice { pieces, uses, size_max, place, today, .. } = advice;
    let problem = Problem::new(pieces, question, uses, *size_max, place.base);
    let now: Vec<u64> = pieces.list.iter().map(|piece| piece.offset).collect();
    let mut tried: Vec<Tried> = Vec::new();
    let fits = |order: &Order| problem.lay(order).size <= *size_max;
    let apart: Vec<Order> = apart(pieces, place).into_iter().filter(fits).collect();
    let most = CANDIDATES + apart.len();
    let orders = apart.into_iter().chain(search::best(&problem));
    for order in orders {
        let laid = problem.lay(&order);
        // The alignment of objects matters by itself only in a row.
        let alike = |other: &[u64], align: u64| {
            laid.offsets == other && (place.row.is_none() || laid.align == align)
        };
        if alike(&now, pieces.align)
            || tried.iter().any(|of| alike(&of.laid.offsets, of.laid.align))
        {
            continue;
        }
        tried.push(Tried::new(&problem, order)?);
        if tried.len() == most {
            break;
        }
    }
    // Orders are sorted by their estimated price. A later one wins only if the simulation is certain that it is
    // cheaper.
    let sooner = |best: Tried, next: Tried| {
        let change = cost::difference(&best.cost, &next.cost);
        if change.is_gain() { next } else { best }
    };
    let Some(mut best) = tried.into_iter().reduce(sooner) else { return Ok((None, None)) };
    let change = cost::difference(today, &best.cost);
    if !change.is_gain() {
        return Ok((None, Some(change)));
    }
    for _ in 0..ROUNDS {
        let Some(undone) = best.idle(&problem, today)? else { break };
        best = undone;
    }
    let gains = best.gains(&problem)?;
    let change = cost::difference(today, &best.cost);
    let new = &best.laid.offsets;
    let name = |&piece: &usize| pieces.list[piece].name().to_owned();
    let moves = (best.groups(&problem).into_iter().zip(gains))
        .map(|(group, gain)| Move {
            fields: group.pieces.iter().map(name).collect(),
            offsets: (pieces.list[group.pieces[0]].offset, new[group.pieces[0]]),
            begins: Some(best.order.begins[group.pieces[0]]).filter(|&begins| begins > 1),
            reason: {
                // No reason is given for a gain that is too small to be certain.
                let told = gain.as_ref().filter(|(change, _)| change.is_sure());
                let undone = told.map(|(_, undone)| (undone, problem.offsets(&undone.laid)));
                let undone = undone.as_ref().map(|(undone, at)| (&undone.cost, &at[..]));
                let (problem, group, cost) = (&problem, &group, &best.cost);
                Change { problem, group, today, cost, new, undone }.reason()
            },
            gain: gain.map(|(change, _)| change.change),
        })
        .collect();
    let mut order: Vec<usize> = (0..pieces.list.len()).collect();
    order.sort_by_key(|&piece| new[piece]);
    let place = problem.place(&best.laid);
    let Tried { order: Order { begins, .. }, laid, cost } = best;
    let Laid { offsets, size, align } = laid;
    let proposal = Proposal { order, offsets, begins, size, align, place, cost, change, moves };
    Ok((Some(proposal), None))
}

/// Returns today's order with objects aligned to a line or to a pair of lines, for objects in a row that share lines
/// with their neighbours.
fn apart(pieces: &Pieces, place: &Place) -> Vec<Order> {
    let shares = |line: u64| {
        place.row.is_some_and(|row| {
            let begins = row.begins.unwrap_or(place.base);
            !row.stride.is_multiple_of(line) || !begins.is_multiple_of(line)
        })
    };
    let begun = |line: u64| {
        let mut order = Order::today(pieces);
        order.begins.iter_mut().take(1).for_each(|begins| *begins = line);
        order
    };
    [64, PAIR].into_iter().filter(|&line| shares(line)).map(begun).collect()
}

/// An order that was simulated.
struct Tried {
    order: Order,
    laid: Laid,
    cost: Cost,
}

impl Tried {
    fn new(problem: &Problem<'_>, order: Order) -> Result<Tried, Error> {
        let laid = problem.lay(&order);
        let cost = cost::of(problem.question, problem.uses, &problem.place(&laid))?;
        // The order of the result: pieces that filled holes are declared there.
        let order = Order { sequence: sequence(problem.pieces, &laid), fill: false, ..order };
        Ok(Tried { order, laid, cost })
    }

    /// Groups the pieces that move together, by the new order.
    fn groups(&self, problem: &Problem<'_>) -> Vec<Group> {
        let today = Order::today(problem.pieces);
        let weight = |piece: usize| if problem.cold[piece] { 1.01 } else { 1.0 };
        let gone = moved(&self.order.sequence, weight);
        let mut groups: Vec<Group> = Vec::new();
        let mut last: Option<(usize, (bool, bool, u64))> = None;
        for (at, &piece) in self.order.sequence.iter().enumerate() {
            let begun = self.order.begins[piece] > today.begins[piece];
            let moved = gone.contains(&piece);
            if !moved && !begun {
                continue;
            }
            let line = self.laid.offsets[piece] / 64;
            let key = (moved, problem.cold[piece], line);
            let joins = last == Some((at.wrapping_sub(1), key)) && !begun;
            match groups.last_mut() {
                Some(group) if joins => group.pieces.push(piece),
                _ => groups.push(Group { pieces: vec![piece], moved }),
            }
            last = Some((at, key));
        }
        let held = (0..problem.pieces.list.len())
            .filter(|&piece| problem.pieces.list[piece].held.is_some())
            .filter(|&piece| self.order.begins[piece] > today.begins[piece]);
        groups.extend(held.map(|piece| Group { pieces: vec![piece], moved: false }));
        groups
    }

    /// Returns the order with a group back at its place of today.
    fn without(&self, problem: &Problem<'_>, group: &Group) -> Order {
        let today = Order::today(problem.pieces);
        let mut order = self.order.clone();
        for &piece in &group.pieces {
            order.begins[piece] = today.begins[piece];
        }
        if group.moved {
            order.sequence.retain(|piece| !group.pieces.contains(piece));
            let mut home = group.pieces.clone();
            home.sort_unstable();
            for piece in home {
                let before = order.sequence.iter().rposition(|&other| other < piece);
                order.sequence.insert(before.map_or(0, |at| at + 1), piece);
            }
        }
        order
    }

    /// Returns the order without a move that gains nothing by itself: by the estimate the order is no dearer without
    /// it, and the simulation is not certain that it is.
    fn idle(&self, problem: &Problem<'_>, today: &Cost) -> Result<Option<Tried>, Error> {
        let price = problem.price(&self.order);
        for group in self.groups(problem) {
            let undone = self.without(problem, &group);
            if problem.price(&undone) > price {
                continue;
            }
            let undone = Tried::new(problem, undone)?;
            let dearer = cost::difference(&undone.cost, &self.cost).is_gain();
            if !dearer && cost::difference(today, &undone.cost).is_gain() {
                return Ok(Some(undone));
            }
        }
        Ok(None)
    }

    /// Returns the gain of each group's move, with the order without it. `None` for a group that no role touches.
    fn gains(&self, problem: &Problem<'_>) -> Result<Vec<Option<(Difference, Tried)>>, Error> {
        let gain = |group: Group| {
            if group.moved && group.pieces.iter().all(|&piece| problem.cold[piece]) {
                return Ok(None);
            }
            let undone = self.without(problem, &group);
            let undone = Tried::new(problem, undone)?;
            Ok(Some((cost::difference(&self.cost, &undone.cost), undone)))
        };
        self.groups(problem).into_iter().map(gain).collect()
    }
}
