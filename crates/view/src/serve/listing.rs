//! Which groups of a ledger metrics name, and what the others come to.
//!
//! Metrics that name each of a million groups would bring down whoever keeps them. So at most `limit` groups are listed,
//! none of them more than `depth` levels below the root, and the rest is one row, `other`. Three things hold:
//!
//! * **A listed group's parent is listed.** So the groups that are not are whole subtrees, and what the topmost of them
//!   hold is what all of them hold. What each listed group holds by itself, with what `other` holds, is what the root holds.
//! * **No counter goes back.** Where a program charges while it is looked at, a look may find a little less than the one
//!   before: then the number from before stands. (Who reads metrics would take it for a program that began anew.) `other`
//!   adds up what its groups counted since the look before, and never takes anything away: a group that is listed from
//!   now on leaves there what it counted before. A group that is listed no more adds only what it counts from then on.
//! * **The listed ones seldom change.** Room goes to the largest first. A group then stays listed while it lives, unless
//!   one that is twice as large finds no room: it may take the place of the smallest that was listed for five minutes.
//!
//! ```text
//! update      keep what was listed, lives, and has a listed parent
//!             give room to the largest whose parent is listed, again and again
//!             exchange: the largest without room for the smallest leaf, while it is twice as large
//!             add to `other` what the groups without room counted since the look before
//! ```

use crate::serve::frame::{Frame, holds};
use crate::watch::{Counts, Row, State};
use ledgerline::GroupId;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

/// How long a group is listed at least, if it lives.
const STAY: Duration = Duration::from_secs(5 * 60);

/// What a ledger's metrics name, from scrape to scrape.
#[derive(Debug)]
pub(crate) struct Listing {
    limit: usize,
    /// Groups that are more levels below the root are not listed.
    depth: u32,
    /// Since when a group is listed, by the clock of looks.
    since: HashMap<GroupId, Duration>,
    /// The most that a look found of each group.
    before: HashMap<GroupId, Counts>,
    other: Counts,
    /// The look that was last, and what it came to.
    last: Option<(u64, Listed)>,
}

/// What metrics name of one look.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Listed {
    /// The places of the listed groups, in the order of the look. The root is the first.
    pub(crate) places: Vec<usize>,
    /// What each of them holds by itself, and no group below it.
    pub(crate) own: Vec<i64>,
    /// What each of them counted. None of it ever goes back.
    pub(crate) counted: Vec<Counts>,
    /// How many groups are not listed.
    pub(crate) others: usize,
    /// What those hold together.
    pub(crate) held: u64,
    /// What those counted while they were not listed.
    pub(crate) counts: Counts,
}

/// Adds to `sum` what was counted since `before`. Counts of a group have those below it, but for what it says itself
/// about its limits: so `topmost` says whether no group above it adds the same.
fn add_since(sum: &mut Counts, before: Counts, now: Counts, topmost: bool) {
    let own = Counts { max_events: now.max_events, high_events: now.high_events, ..before };
    let grown = if topmost { now } else { own }.zip(before, u64::saturating_sub);
    *sum = sum.zip(grown, u64::saturating_add);
}

impl Listing {
    /// One that lists so many groups at most, the root among them, down to so many levels below the root.
    pub(crate) fn new(limit: usize, depth: u32) -> Listing {
        Listing {
            limit: limit.max(1),
            depth,
            since: HashMap::new(),
            before: HashMap::new(),
            other: Counts::default(),
            last: None,
        }
    }

    /// What metrics name of a look. A look that was seen before gives the same again, as does one that is older.
    pub(crate) fn update(&mut self, frame: &Frame) -> Listed {
        if let Some((number, listed)) = &self.last
            && *number >= frame.number
        {
            return listed.clone();
        }
        let listed = self.list(frame);
        self.last = Some((frame.number, listed.clone()));
        listed
    }

    fn list(&mut self, frame: &Frame) -> Listed {
        let rows = &frame.look.rows;
        let is_listed = self.choose(frame);
        let clock = frame.look.clock;
        let chosen = rows.iter().zip(&is_listed).filter(|&(_, listed)| *listed);
        self.since = chosen
            .map(|(row, _)| (row.id, self.since.get(&row.id).copied().unwrap_or(clock)))
            .collect();

        let before = |row: &Row| self.before.get(&row.id).copied().unwrap_or_default();
        let counts: Vec<Counts> =
            rows.iter().map(|row| row.counts.zip(before(row), u64::max)).collect();
        let mut own: Vec<i64> = rows.iter().map(|row| holds(row).cast_signed()).collect();
        let (mut others, mut held) = (0, 0_u64);
        for (place, row) in rows.iter().enumerate().skip(1) {
            let parent = frame.parents[place];
            own[parent] = own[parent].saturating_sub(holds(row).cast_signed());
            if !is_listed[place] {
                let topmost = is_listed[parent];
                others += 1;
                held = held.saturating_add(if topmost { holds(row) } else { 0 });
                add_since(&mut self.other, before(row), counts[place], topmost);
            }
        }
        self.before.clear();
        self.before.extend(rows.iter().map(|row| row.id).zip(counts.iter().copied()));
        let places: Vec<usize> = (0..rows.len()).filter(|&place| is_listed[place]).collect();
        let own = places.iter().map(|&place| own[place]).collect();
        let counted = places.iter().map(|&place| counts[place]).collect();
        Listed { places, own, counted, others, held, counts: self.other }
    }

    /// Whether each group is listed.
    fn choose(&self, frame: &Frame) -> Vec<bool> {
        let (rows, parents) = (&frame.look.rows, &frame.parents);
        let mut listed = vec![false; rows.len()];
        listed[0] = true;
        let mut many = 1;
        // How many listed groups lie right below each: a group without any is a leaf, and may go.
        let mut below = vec![0_usize; rows.len()];
        // The largest that are not listed and whose parent is.
        let mut waiting: BinaryHeap<(u64, Reverse<usize>)> = BinaryHeap::new();
        let mut children: Vec<Vec<usize>> = vec![Vec::new(); rows.len()];
        for place in 1..rows.len() {
            if rows[place].state != State::Live || rows[place].depth > self.depth {
                continue;
            }
            let parent = parents[place];
            children[parent].push(place);
            // (Fewer than before may be wanted, in a test.)
            if listed[parent] && many < self.limit && self.since.contains_key(&rows[place].id) {
                listed[place] = true;
                below[parent] += 1;
                many += 1;
            }
        }
        let offer = |waiting: &mut BinaryHeap<_>, listed: &[bool], parent: usize| {
            let open = children[parent].iter().filter(|&&child| !listed[child]);
            waiting.extend(open.map(|&child| (holds(&rows[child]), Reverse(child))));
        };
        for place in 0..rows.len() {
            if listed[place] {
                offer(&mut waiting, &listed, place);
            }
        }
        while many < self.limit
            && let Some((_, Reverse(place))) = waiting.pop()
        {
            listed[place] = true;
            below[parents[place]] += 1;
            many += 1;
            offer(&mut waiting, &listed, place);
        }
        self.exchange(frame, &mut listed, &mut below, waiting);
        listed
    }

    /// Gives the places of small groups to those that are twice as large and found no room.
    fn exchange(
        &self,
        frame: &Frame,
        listed: &mut [bool],
        below: &mut [usize],
        mut waiting: BinaryHeap<(u64, Reverse<usize>)>,
    ) {
        let (rows, parents) = (&frame.look.rows, &frame.parents);
        let may_go = |place: usize, below: &[usize]| {
            let since = self.since.get(&rows[place].id);
            let stayed = since.is_some_and(|&since| frame.look.clock.saturating_sub(since) >= STAY);
            place > 0 && below[place] == 0 && stayed
        };
        let mut leaves: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
        let leaf = |place: usize| Reverse((holds(&rows[place]), place));
        leaves.extend((0..rows.len()).filter(|&at| listed[at] && may_go(at, below)).map(leaf));
        while let (Some(&(large, Reverse(comes))), Some(&Reverse((small, goes)))) =
            (waiting.peek(), leaves.peek())
        {
            if large <= small.saturating_mul(2) {
                break;
            }
            if !listed[parents[comes]] {
                waiting.pop();
                continue;
            }
            leaves.pop();
            if !listed[goes] || below[goes] > 0 || parents[comes] == goes {
                continue;
            }
            waiting.pop();
            listed[goes] = false;
            below[parents[goes]] -= 1;
            listed[comes] = true;
            below[parents[comes]] += 1;
            if may_go(parents[goes], below) && listed[parents[goes]] {
                leaves.push(leaf(parents[goes]));
            }
        }
    }
}

#[cfg(test)]
mod tests;
